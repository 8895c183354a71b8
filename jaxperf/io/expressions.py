"""Lists of numbers as people write them in a sweep file: `powers(1, 512)`, `linspace(512, 131072, 64)`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hwspecs.errors import InputError, did_you_mean
from jaxperf.sweeps.values import Generated, arange, geomspace, linspace, powers

FUNCTIONS = {"powers": powers, "linspace": linspace, "geomspace": geomspace, "range": arange, "arange": arange}
_CALL = re.compile(r"^\s*([a-z_]+)\s*\((.*)\)\s*$")


def expand(where: str, value: Any) -> Any:
    """A number list from a call such as `powers(1, 512)`, as `Generated`; anything else is returned as it is.

    **Arguments:** `where`: what the value belongs to, for messages.
    **Raises:** `InputError` for an unknown function or arguments that are not numbers.
    """
    match = _CALL.match(value) if isinstance(value, str) else None
    if match is None or match.group(1) == "all":
        return value
    name, inside = match.groups()
    if name not in FUNCTIONS:
        raise InputError(
            f"{where}: unknown function '{name}'; allowed: {', '.join(FUNCTIONS)}.{did_you_mean(name, FUNCTIONS)}"
        )
    arguments = _arguments(where, name, inside)
    try:
        return Generated(FUNCTIONS[name](*arguments))
    except InputError as error:  # which names the function and its numbers as they are called here
        reason = str(error).partition(": ")[2]
        raise InputError(f"{where}: {name}({inside}): {reason}") from None
    except ArithmeticError:
        raise InputError(f"{where}: the numbers of {name}({inside}) are too large or too small.") from None


def _arguments(where: str, name: str, inside: str) -> Sequence[int | float]:
    parts = [part.strip().replace("_", "") for part in inside.split(",")]
    if not 2 <= len(parts) <= 3:
        raise InputError(f"{where}: {name}({inside}) needs two or three numbers.")
    if name in ("linspace", "geomspace") and len(parts) != 3:
        raise InputError(f"{where}: {name}({inside}) needs a start, a stop and a count.")
    return [_number(where, f"{name}({inside})", part) for part in parts]


def _number(where: str, call: str, text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{where}: '{text}' in {call} is not a number.") from None
