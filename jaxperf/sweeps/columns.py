"""Long-form columns of a product: which labels belong to which rows, as NumPy and as Arrow arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Integer, Shaped

from jaxperf.sweeps.axes import Axis

if TYPE_CHECKING:
    import pyarrow as pa

Column = Shaped[np.ndarray, " rows"]
Codes = Integer[np.ndarray, " rows"]


def codes_of_block(slices: Sequence[slice]) -> list[Codes]:
    """For each axis, the position along it of every row of a block, in row order."""
    shape = tuple(piece.stop - piece.start for piece in slices)
    codes = []
    for position, piece in enumerate(slices):
        along = np.arange(piece.start, piece.stop, dtype=np.int32)
        column = along.reshape((-1,) + (1,) * (len(shape) - position - 1))
        codes.append(np.broadcast_to(column, shape).reshape(-1))
    return codes


def codes_of_rows(sizes: Sequence[int], rows: Integer[np.ndarray, " rows"]) -> list[Codes]:
    """For each axis, the position along it of the given flat rows."""
    return [codes.astype(np.int32) for codes in np.unravel_index(rows, tuple(sizes))]


def label_columns(axes: Sequence[Axis], codes: Sequence[Codes]) -> dict[str, Column]:
    """Every label column at the given positions along the axes."""
    return {
        column: labels[along] for one, along in zip(axes, codes, strict=True) for column, labels in one.labels.items()
    }


def arrow_schema(
    axes: Sequence[Axis],
    metrics: Mapping[str, np.dtype],
    units: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> pa.Schema:
    """Label columns (text dictionary-encoded), then metrics; each field with units carries them in its metadata."""
    import pyarrow as pa

    units = units or {}
    types = {}
    for one in axes:
        for column, labels in one.labels.items():
            text = labels.dtype.kind == "U"
            types[column] = pa.dictionary(pa.int32(), pa.string()) if text else pa.from_numpy_dtype(labels.dtype)
    types |= {name: pa.from_numpy_dtype(_storable(dtype)) for name, dtype in metrics.items()}
    fields = [
        pa.field(name, kind, metadata={"units": units[name]} if name in units else None) for name, kind in types.items()
    ]
    return pa.schema(fields, metadata=dict(metadata) if metadata else None)


def arrow_table(
    axes: Sequence[Axis], codes: Sequence[Codes], metrics: Mapping[str, Column], schema: pa.Schema
) -> pa.Table:
    """The long-form table of the rows at `codes`, in the layout of `arrow_schema`."""
    import pyarrow as pa

    arrays = []
    for one, along in zip(axes, codes, strict=True):
        for labels in one.labels.values():
            if labels.dtype.kind == "U":
                distinct, positions = np.unique(labels, return_inverse=True)
                indices = pa.array(positions.astype(np.int32)[along])
                arrays.append(pa.DictionaryArray.from_arrays(indices, pa.array(distinct.tolist(), pa.string())))
            else:
                arrays.append(pa.array(labels[along]))
    for values in metrics.values():
        arrays.append(pa.array(values.astype(_storable(values.dtype), copy=False)))
    return pa.Table.from_arrays(arrays, schema=schema)


def _storable(dtype: np.dtype) -> np.dtype:
    """Half-precision kinds that Parquet readers do not know are widened exactly to float32."""
    return np.dtype(dtype) if dtype.kind in "biu" or dtype in (np.float32, np.float64) else np.dtype(np.float32)
