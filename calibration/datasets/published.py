"""The layouts of published artefacts, rewritten into the standard columns before anything else reads them."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from calibration.datasets import neusight
from calibration.datasets.columns import parse_numbers, parse_text, with_columns

_LLMCOMPASS_WORDS = {"layernorm": "norm", "allreduce": "all_reduce"}


def rewrite(table: pa.Table) -> pa.Table:
    """A table of a published layout with standard columns; any other table as it is. `table`: its columns by their
    standard names, in lower case."""
    names = set(table.column_names)
    if neusight.is_neusight(names):
        return neusight.rewrite_operations(table)
    if neusight.is_nodes(names):
        return neusight.rewrite_nodes(table)
    if {"op", "device", "dtype", "m", "n", "k", "n_dev"} <= names:
        return _llmcompass(table)
    if {"kind", "tokens", "elems_in", "elems_out"} <= names:
        return _vidur(table)
    return table


def _llmcompass(table: pa.Table) -> pa.Table:
    """LLMCompass (BSD-3): `M`, `N`, `K` mean rows, columns, reduction; elements; or bytes, by the operation.

    The blocks of GPT-3 state the model's sizes, not a kernel's: they belong to no family and are noted as such.
    """
    op = parse_text(table["op"])
    words = [_LLMCOMPASS_WORDS.get(word, word) for word in op.values]
    m, n = (parse_numbers(table[name])[0] for name in ("m", "n"))
    elements = np.where(np.isnan(n), m, m * n)
    added = {
        "kind": pa.array(np.array(words, object)[op.codes], pa.string()),
        "rows": np.where(np.isnan(n), 1.0, m),
        "columns": table["n"],
        "elements_in": elements,
        "elements_out": elements,
        "message_size": m,
        # A node of four A100 ("A100x4") is four devices of that kind, which n_dev says as well.
        "device": _text(table["device"], lambda name: re.sub(r"x\d+$", "", name)),
        # The all-reduce has "bytes" for a format: its buffer is counted in bytes and of no format.
        "dtype": _text(table["dtype"], lambda name: "" if name == "bytes" else name),
        "framework": pa.repeat("torch", len(table)),
    }
    return with_columns(table, added)


def _vidur(table: pa.Table) -> pa.Table:
    """Vidur and LLMServingSim: `tokens` rows; the columns of a norm or an embedding follow from its elements."""
    rows, elements = (parse_numbers(table[name])[0] for name in ("tokens", "elems_out"))
    # Whole by construction; a quotient that is not whole is refused later, as a shape.
    columns = np.divide(elements, rows, out=np.full(len(rows), np.nan), where=rows > 0.0)
    return with_columns(table, {"columns": columns})


def _text(column: pa.ChunkedArray, meaning: Callable[[str], str]) -> pa.Array:
    text = parse_text(column)
    return pa.array(np.array([meaning(value) for value in text.values], object)[text.codes], pa.string())
