"""The named dimensions of a sweep: values for the point function, labels for the reader of its results."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree, Shaped

from hwspecs.errors import InputError

Labels = Shaped[np.ndarray, " size"]
LabelValues = Sequence | np.ndarray
EXACT = {"b": bool, "i": np.int64, "f": np.float64}  # kinds of arrays -> types that hold each of their values


@dataclass(frozen=True, eq=False)
class Axis:
    """One dimension of a sweep.

    **Arguments:**

    - `name`: the dimension's name in results.
    - `arguments`: argument name of the point function -> pytree of arrays that share a leading length n. A plain axis
        has one argument; a zip axis has several, which advance together.
    - `labels`: column name -> n scalars (numbers or text), recorded beside the results.

    **Raises:** `InputError` for an empty axis, lengths that disagree, or labels that are neither numbers nor text.
    """

    name: str
    arguments: Mapping[str, PyTree]
    labels: Mapping[str, Labels]

    def __post_init__(self) -> None:
        if not self.name or not self.arguments or not self.labels:
            raise InputError(f"Axis '{self.name}' needs a name, at least one argument and at least one label column.")
        arguments = {key: jax.tree.map(_host_array, tree) for key, tree in self.arguments.items()}
        labels = {column: _label_array(column, values) for column, values in self.labels.items()}
        sizes = {f"argument '{key}'": _leading_sizes(self.name, key, tree) for key, tree in arguments.items()}
        sizes |= {f"label '{column}'": {len(values)} for column, values in labels.items()}
        if len(set().union(*sizes.values())) != 1:
            found = "; ".join(f"{what}: {', '.join(map(str, sorted(lengths)))}" for what, lengths in sizes.items())
            raise InputError(f"Axis '{self.name}' has parts of different lengths ({found}).")
        if 0 in set().union(*sizes.values()):
            raise InputError(f"Axis '{self.name}' is empty; give it at least one value.")
        object.__setattr__(self, "arguments", arguments)
        object.__setattr__(self, "labels", labels)

    @property
    def size(self) -> int:
        """The number of values along this axis."""
        return len(next(iter(self.labels.values())))


def axis(
    name: str,
    values: Any,
    labels: LabelValues | Mapping[str, LabelValues] | None = None,
    *,
    argument: str | None = None,
    dtype: Any = None,
) -> Axis:
    """An axis over one argument of the point function.

    **Arguments:**

    - `name`: the axis, and unless `argument` says otherwise the argument it feeds.
    - `values`: numbers (a sequence or a 1-D array); or a list of equally structured pytrees, which are stacked; or one
        pytree whose leaves already have the axis as their leading dimension.
    - `labels`: n scalars, or several columns as a mapping. Defaults to the numbers themselves, or 0..n-1 for pytrees.
    - `dtype`: how numbers reach the point function. Defaults to the default float (bool for booleans): counts are
        floats holding integers, while their labels stay exact integers.

    **Returns:** the `Axis`.

    **Raises:** `InputError` for no values, NaN, mixed kinds or text without numbers behind it.
    """
    numeric = _as_numbers(name, values)
    if numeric is not None:
        default = bool if numeric.dtype == bool else np.float64
        tree: PyTree = numeric.astype(default if dtype is None else dtype)
        columns = numeric
    else:
        tree = stack(name, values) if _is_plain_sequence(values) else values
        columns = np.arange(max(_leading_sizes(name, name, tree)))
    if labels is None:
        labels = columns
    by_column = labels if isinstance(labels, Mapping) else {name: labels}
    arrays = {column: _label_array(column, each) for column, each in by_column.items()}
    return Axis(name, {argument or name: tree}, arrays)


def zip_axes(name: str, *axes: Axis) -> Axis:
    """One axis whose arguments advance together, such as (tensor_parallel, pipeline_parallel) layouts.

    **Arguments:** `name`: of the new axis. `axes`: axes of equal size; their arguments and label columns are merged.

    **Returns:** the merged `Axis`.

    **Raises:** `InputError` if sizes differ, or an argument or label column appears twice.
    """
    if not axes:
        raise InputError(f"Zip axis '{name}' needs at least one axis to zip.")
    if len({one.size for one in axes}) != 1:
        sizes = ", ".join(f"{one.name}: {one.size}" for one in axes)
        raise InputError(f"Zip axis '{name}' needs axes of equal length ({sizes}).")
    _refuse_repeats([key for one in axes for key in one.arguments], f"Zip axis '{name}' gives argument")
    _refuse_repeats([column for one in axes for column in one.labels], f"Zip axis '{name}' gives label column")
    arguments = {key: tree for one in axes for key, tree in one.arguments.items()}
    return Axis(name, arguments, {column: values for one in axes for column, values in one.labels.items()})


def stack(name: str, trees: Sequence[PyTree]) -> PyTree:
    """Stack equally structured pytrees of arrays along a new leading axis.

    **Raises:** `InputError` when the list is empty or the structures or shapes differ; `name` is used in the message.
    """
    if len(trees) == 0:
        raise InputError(f"Axis '{name}' is empty; give it at least one value.")
    structures = [jax.tree.structure(tree) for tree in trees]
    for position, structure in enumerate(structures):
        if structure != structures[0]:
            raise InputError(f"Axis '{name}' mixes values of different structure (the first and number {position}).")
    try:
        return jax.tree.map(lambda *leaves: np.stack([_host_array(leaf) for leaf in leaves]), *trees)
    except ValueError as error:
        raise InputError(f"Axis '{name}' mixes values whose arrays differ in shape: {error}.") from error


def check_axes(axes: Sequence[Axis]) -> None:
    """Refuse axes that cannot form one labeled product.

    **Raises:** `InputError` for no axes, a name, argument or label column used twice, or a value listed twice.
    """
    if not axes:
        raise InputError("A sweep needs at least one axis.")
    names = [one.name for one in axes]
    _refuse_repeats(names, "The sweep has axis")
    _refuse_repeats([key for one in axes for key in one.arguments], "The sweep's axes give argument")
    _refuse_repeats([column for one in axes for column in one.labels], "The sweep's axes give label column")
    for one in axes:
        for column in one.labels:
            if column != one.name and column in names:
                raise InputError(f"Label column '{column}' of axis '{one.name}' has the name of another axis.")
        _refuse_repeated_rows(one)


def _refuse_repeats(names: Sequence[str], what: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{what} '{name}' twice; each may appear once.")


def _refuse_repeated_rows(one: Axis) -> None:
    """Two points with the same labels could not be told apart, and are nearly always a slip."""
    columns = list(one.labels.values())
    if any(len(np.unique(column)) == one.size for column in columns):
        return
    seen: set[tuple] = set()
    for row in zip(*(column.tolist() for column in columns), strict=True):
        if row in seen:
            shown = ", ".join(f"{column} = {value}" for column, value in zip(one.labels, row, strict=True))
            raise InputError(f"Axis '{one.name}' lists {shown} twice; drop one or add a label that tells them apart.")
        seen.add(row)


def _is_plain_sequence(values: Any) -> bool:
    """A list or tuple of elements, as opposed to a named tuple, which is one pytree."""
    return isinstance(values, (list, tuple, range)) and not hasattr(values, "_fields")


def _as_numbers(name: str, values: Any) -> np.ndarray | None:
    """`values` as a 1-D array of exact numbers, or `None` when they are pytrees."""
    if isinstance(values, (np.ndarray, jax.Array)):
        if values.ndim != 1:
            return None
        return _finite_or_refuse(name, np.asarray(values))
    if not _is_plain_sequence(values):
        return None
    if len(values) == 0:
        raise InputError(f"Axis '{name}' is empty; give it at least one value.")
    if any(isinstance(value, str) for value in values):
        raise InputError(
            f"Axis '{name}' lists text; give the numbers (or pytrees) it stands for as values and the text as labels."
        )
    if not all(_is_number(value) for value in values):
        return None
    return _finite_or_refuse(name, _number_array(name, [_plain(value) for value in values]))


def _finite_or_refuse(name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind not in "biuf":
        raise InputError(f"Axis '{name}' must list numbers, not {array.dtype} values.")
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise InputError(f"Axis '{name}' contains NaN, which is not a value a sweep can visit.")
    return array


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Real, np.bool_)) or (isinstance(value, jax.Array) and value.ndim == 0)


def _plain(value: Any) -> bool | int | float:
    value = value.item() if hasattr(value, "item") else value
    return value if isinstance(value, (bool, int, float)) else float(value)


def _number_array(name: str, values: Sequence[bool | int | float]) -> np.ndarray:
    """One array for a list of numbers: booleans, exact integers, or floats when any is a float."""
    booleans = sum(isinstance(value, bool) for value in values)
    if booleans:
        if booleans != len(values):
            raise InputError(f"'{name}' mixes booleans with numbers.")
        return np.array(values, dtype=bool)
    if all(isinstance(value, int) and abs(value) < 2**63 for value in values):
        return np.array(values, dtype=np.int64)
    try:
        return np.array([float(value) for value in values])
    except OverflowError:
        raise InputError(f"'{name}' holds a number beyond the float range.") from None


def _label_array(column: str, values: LabelValues) -> Labels:
    """Labels as a read-only bool, int64, float64 or text array."""
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in EXACT:  # fast for long tables
        array = values.astype(EXACT[values.dtype.kind])
        return _readable(column, array, np.isnan(array).any())
    items = [value.item() if hasattr(value, "item") else value for value in values]
    if items and all(isinstance(item, str) for item in items):
        array = np.array(items, dtype=np.str_)
    elif all(_is_number(item) for item in items):
        array = _number_array(column, [_plain(item) for item in items])
    else:
        kinds = ", ".join(sorted({type(item).__name__ for item in items}))
        raise InputError(f"Label column '{column}' must be all numbers or all text, not {kinds}.")
    return _readable(column, array, any(isinstance(item, float) and math.isnan(item) for item in items))


def _readable(column: str, array: Labels, unreadable: bool | np.bool_) -> Labels:
    if unreadable:
        raise InputError(f"Label column '{column}' contains NaN; label that value with something readable.")
    array.setflags(write=False)
    return array


def _host_array(leaf: Any) -> np.ndarray:
    try:
        array = np.asarray(leaf)
    except TypeError:
        array = np.asarray(None)
    if array.dtype == object or array.dtype.kind in "USMm":
        raise InputError(f"A sweep axis may hold only arrays of numbers, not {type(leaf).__name__} values.")
    return array


def _leading_sizes(axis_name: str, argument: str, tree: PyTree) -> set[int]:
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(tree)]
    if not shapes:
        raise InputError(f"Axis '{axis_name}': argument '{argument}' holds no array.")
    if any(shape == () for shape in shapes):
        raise InputError(f"Axis '{axis_name}': argument '{argument}' needs a leading dimension on every array.")
    return {shape[0] for shape in shapes}
