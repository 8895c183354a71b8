"""Axes from plain values by name, as a sweep file gives them: names checked, mappings zipped, repeats dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.numerics import plain_number
from jaxperf.sweeps.axes import Axis, zip_axes
from jaxperf.sweeps.plan import check_size


def named_axes(
    values: Mapping[str, Any],
    task: str,
    parameters: Sequence[str],
    defaults: Mapping[str, Any],
    checked: Callable[[str, Any], list[Any]],
    axis_of: Callable[[str, list[Any]], Axis],
) -> list[Axis]:
    """One axis for each entry of `values` in their order, then one for each of `defaults` that is not named.

    **Arguments:** `values`: parameter -> a value or a sequence of them; a mapping of several parameters is a zip axis;
    `checked`: the values of a parameter as a list, each in its canonical form; `axis_of`: the axis of such a list.
    **Raises:** `InputError` for a name that `task` does not have or that is given twice, and as `checked` does.
    """
    check_names(values, task, parameters)
    check_size({key: _count(value) for key, value in values.items()})
    given = dict(given_values(values))
    complete = {**values, **{name: value for name, value in defaults.items() if name not in given}}
    return [
        zip_axes(key, *(axis_of(name, checked(name, each)) for name, each in value.items()))
        if isinstance(value, Mapping)
        else axis_of(key, list(dict.fromkeys(checked(key, value))))
        for key, value in complete.items()
    ]


def given_values(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Every parameter with its values, those of zip axes included."""
    pairs = [value.items() if isinstance(value, Mapping) else [(key, value)] for key, value in values.items()]
    return [pair for each in pairs for pair in each]


def entries_of(name: str, value: Any) -> list[Any]:
    """One value or a sequence of them as a list.

    **Raises:** `InputError` for an empty one.
    """
    value = plain_number(value)
    entries = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    if not entries:
        raise InputError(f"'{name}' is empty; give it at least one value.")
    return entries


def check_names(values: Mapping[str, Any], task: str, parameters: Sequence[str]) -> None:
    """Raises `InputError` for a name that `task` does not have, that is given twice, or that a zip axis takes."""
    named = [name for name, _ in given_values(values)]
    for name in named:
        if name not in parameters:
            hint = did_you_mean(name, parameters)
            raise InputError(f"'{name}' is not a parameter of task {task}; allowed: {', '.join(parameters)}.{hint}")
        if named.count(name) > 1:
            raise InputError(f"'{name}' is given twice, alone or in a zip axis; give it once.")
    for key, value in values.items():
        if isinstance(value, Mapping) and key in parameters:
            raise InputError(f"The zip axis '{key}' has the name of a parameter; choose another, such as layout.")


def _count(value: Any) -> int:
    """How many values one entry lists, before they are looked at."""
    if isinstance(value, Mapping):
        return max(map(_count, value.values()), default=1)
    return len(value) if isinstance(value, Sequence) and not isinstance(value, str) else 1
