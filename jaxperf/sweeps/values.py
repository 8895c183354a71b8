"""Lists of numbers for axes: `powers`, `linspace`, `geomspace`, `arange`, `whole`.

Integers in give exact Python integers out wherever every value is one; otherwise all values are floats.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable

from hwspecs.errors import InputError

Number = int | float
Numbers = tuple[int, ...] | tuple[float, ...]


class Generated(tuple[Number, ...]):
    """Values that a rule made, which nobody wrote one by one: where whole ones are meant, they may be rounded."""


# Longer lists are a slip of the pen (a step of 1e-9): refuse them before allocating anything.
MAX_VALUES = 10_000_000
_ROUNDING = 1e-9


def powers(start: Number, stop: Number, base: Number = 2) -> Numbers:
    """`start`, `start * base`, `start * base**2`, ... up to and including `stop`.

    **Raises:** `InputError` unless 0 < start <= stop and base > 1.
    """
    call = f"powers({start}, {stop}, {base})"
    start, stop, base = _checked(call, start=start, stop=stop, base=base)
    _require(start > 0, call, "start must be above zero")
    _require(base > 1, call, "base must be above one")
    _require(start <= stop, call, "start must not exceed stop")
    _require_count(call, math.log(stop / start) / math.log(base) + 1)
    limit = stop if isinstance(stop, int) and isinstance(start * base, int) else stop * (1 + _ROUNDING)
    found = []
    exponent = 0
    while (value := start * base**exponent) <= limit:
        found.append(value)
        exponent += 1
    return _exact(found)


def linspace(start: Number, stop: Number, count: int) -> Numbers:
    """`count` evenly spaced values from `start` to `stop`, both included.

    **Raises:** `InputError` for count < 1, start > stop, or several values over an empty interval.
    """
    call = f"linspace({start}, {stop}, {count})"
    start, stop = _checked(call, start=start, stop=stop)
    count = _checked_count(call, start, stop, count)
    if count == 1:
        return (start,)
    last = count - 1
    if isinstance(start, int) and isinstance(stop, int):
        numerators = [start * last + (stop - start) * step for step in range(count)]
        if all(value % last == 0 for value in numerators):
            return tuple(value // last for value in numerators)
        return tuple(value / last for value in numerators)  # int / int is correctly rounded
    inner = (start + (stop - start) * (step / last) for step in range(1, last))
    return (float(start), *inner, float(stop))


def geomspace(start: Number, stop: Number, count: int) -> Numbers:
    """`count` values from `start` to `stop`, both included, each the same multiple of the one before.

    Values within rounding of an integer become that integer when both ends are integers.

    **Raises:** `InputError` for count < 1, start <= 0 or start > stop.
    """
    call = f"geomspace({start}, {stop}, {count})"
    start, stop = _checked(call, start=start, stop=stop)
    _require(start > 0, call, "start must be above zero")
    count = _checked_count(call, start, stop, count)
    if count == 1:
        return (start,)
    last = count - 1
    rate = math.log(stop / start) / last
    inner = [start * math.exp(rate * step) for step in range(1, last)]
    if isinstance(start, int) and isinstance(stop, int):
        inner = [_snapped(value) for value in inner]
    return _exact([start, *inner, stop])


def arange(start: Number, stop: Number, step: Number = 1) -> Numbers:
    """`start`, `start + step`, ... below `stop` (`stop` itself is left out, as in Python's `range`).

    **Raises:** `InputError` unless start < stop and step > 0.
    """
    call = f"arange({start}, {stop}, {step})"
    start, stop, step = _checked(call, start=start, stop=stop, step=step)
    _require(step > 0, call, "step must be above zero")
    _require(start < stop, call, "start must be below stop")
    _require_count(call, (stop - start) / step)
    if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
        return tuple(range(start, stop, step))
    count = max(1, math.ceil((stop - start) / step - _ROUNDING))
    return _exact([start + index * step for index in range(count)])


def whole(values: Iterable[Number]) -> tuple[int, ...]:
    """`values` rounded to the nearest integers, repeats dropped: `whole(geomspace(512, 131072, 12))` for lengths.

    **Raises:** `InputError` for an empty list, NaN or infinity.
    """
    found = [_checked("whole(...)", value=value)[0] for value in values]
    _require(bool(found), "whole(...)", "the list is empty")
    return tuple(dict.fromkeys(math.floor(value + 0.5) if isinstance(value, float) else value for value in found))


def _checked(call: str, **values: Number) -> list[Number]:
    """Each value as a finite Python int or float."""
    found: list[Number] = []
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise InputError(f"{call}: {name} must be a number, not {value!r}.")
        plain = int(value) if isinstance(value, numbers.Integral) else float(value)
        try:
            finite = math.isfinite(plain)
        except OverflowError:
            finite = False
        _require(finite, call, f"{name} must be finite")
        found.append(plain)
    return found


def _checked_count(call: str, start: Number, stop: Number, count: Number) -> int:
    """How many values there are over an interval that is one; `1e3` is a whole number too."""
    if isinstance(count, bool) or not isinstance(count, numbers.Real) or count % 1 != 0:
        raise InputError(f"{call}: count must be a whole number, not {count!r}.")
    _require(count >= 1, call, "count must be at least one")
    _require(start <= stop, call, "start must not exceed stop")
    _require(count == 1 or start < stop, call, "start and stop are equal, so every value would be the same")
    _require_count(call, count)
    return int(count)


def _require_count(call: str, count: Number) -> None:
    _require(count <= MAX_VALUES, call, f"that is more than {MAX_VALUES:,} values")


def _require(condition: bool, call: str, message: str) -> None:
    if not condition:
        raise InputError(f"{call}: {message}.")


def _snapped(value: float) -> Number:
    nearest = round(value)
    return nearest if abs(value - nearest) <= _ROUNDING * nearest else value


def _exact(values: list[Number]) -> Numbers:
    """All integers, or all floats."""
    if all(isinstance(value, int) for value in values):
        return tuple(values)
    return tuple(float(value) for value in values)
