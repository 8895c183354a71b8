"""Columns of text by their distinct values: a table of a million rows names few devices, and each is looked at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, eq=False)
class Text:
    """A text column as its `values` [V], Python strings, and the position of each row's value among them, `codes` [R].

    It is indexed, compared and turned into an array like the array of its rows' strings; a value may occur twice.
    """

    values: np.ndarray
    codes: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def __getitem__(self, index: Any) -> Any:
        """The text of one row, or the column of the rows that an index or a mask selects."""
        codes = self.codes[index]
        return self.values[codes] if np.ndim(codes) == 0 else Text(self.values, codes)

    def __eq__(self, other: object) -> np.ndarray:  # type: ignore[override]
        """Which rows are the text `other`, or that of the same row of another column [R]."""
        if isinstance(other, str):
            return (self.values == other)[self.codes]
        return np.asarray(self) == np.asarray(other)

    def __ne__(self, other: object) -> np.ndarray:  # type: ignore[override]
        return ~(self == other)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.values[self.codes] if dtype is None else self.astype(dtype)

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.Array:  # noqa: A002 the protocol's name
        values = pa.array(self.values.tolist(), pa.string())
        return values.take(pa.array(self.codes)).cast(type or pa.string())

    def astype(self, dtype: Any) -> np.ndarray:
        """The rows as an array of another type."""
        return self.values.astype(dtype)[self.codes]

    @property
    def dtype(self) -> np.dtype:
        """That of the array of the rows' strings."""
        return np.dtype(object)

    def among(self, texts: Sequence[str]) -> np.ndarray:
        """Which rows are one of some texts [as `codes`]."""
        return np.isin(self.values.astype(str), texts)[self.codes]

    def distinct(self) -> Text:
        """The same column, each value once."""
        place = {value: number for number, value in enumerate(dict.fromkeys(self.values.tolist()))}
        if len(place) == len(self.values):
            return self
        codes = np.array([place[value] for value in self.values.tolist()])
        return Text(np.array(list(place), object), codes[self.codes])

    def tolist(self) -> list[str]:
        """The rows as Python strings."""
        return self.values[self.codes].tolist()

    def translated(self, meaning: Callable[[str], str]) -> Text:
        """Each distinct value replaced by its meaning."""
        return Text(np.array([meaning(value) for value in self.values.tolist()], object), self.codes)

    def counts(self) -> dict[str, int]:
        """How many rows have each value that occurs."""
        found: dict[str, int] = {}
        for value, count in zip(self.values.tolist(), np.bincount(self.codes, minlength=len(self.values)), strict=True):
            if count:
                found[value] = found.get(value, 0) + int(count)
        return found


Column = np.ndarray | Text


def as_text(column: Column) -> Text:
    """A column of text as `Text`; an array of Python strings is looked through once."""
    if isinstance(column, Text):
        return column
    encoded = pa.array(column.tolist(), pa.string()).dictionary_encode()
    return Text(np.array(encoded.dictionary.to_pylist(), object), encoded.indices.to_numpy().astype(np.int64))


def joined(columns: Sequence[Column]) -> Text:
    """Columns one below the other."""
    texts = [as_text(column) for column in columns]
    before = np.cumsum([0, *(len(text.values) for text in texts)])
    codes = [text.codes.astype(np.int64) + start for text, start in zip(texts, before[:-1], strict=True)]
    return Text(np.concatenate([text.values for text in texts]), np.concatenate(codes))


def repeated(value: str, rows: int) -> Text:
    """A column of one text."""
    return Text(np.array([value], object), np.zeros(rows, np.int64))
