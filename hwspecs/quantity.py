"""Numbers with units: read "3.35 TB/s" into SI base units, and print SI numbers the way people write them.

Decimal prefixes are powers of ten (GB = 1e9 byte), binary prefixes are powers of two (GiB = 2**30 byte).
Bits must be spelled out ("400 Gbit/s"), because "Gb" and "GB" are too easily confused.
"""

from __future__ import annotations

import functools
import math
import re
from decimal import Decimal
from typing import Any

from hwspecs.errors import InputError, nearest

_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(.*)", re.DOTALL)
# Words joined by / or *, each at most squared: nothing that could make the unit parser work hard.
_UNIT_TEXT = re.compile(r"[A-Za-zµμ]+(\^2|\*\*2|²|2)?(\s*[/*·]\s*[A-Za-zµμ]+(\^2|\*\*2|²|2)?){0,5}")
_BIT_WORD = re.compile(r"\b[kKMGTP]?b(ps)?\b")

_DEFINITIONS = """
femto- = 1e-15 = f-
pico- = 1e-12 = p-
nano- = 1e-9 = n-
micro- = 1e-6 = µ- = μ- = u-
milli- = 1e-3 = m-
kilo- = 1e3 = k- = K-
mega- = 1e6 = M-
giga- = 1e9 = G-
tera- = 1e12 = T-
peta- = 1e15 = P-
exa- = 1e18 = E-
kibi- = 1024 = Ki-
mebi- = 1048576 = Mi-
gibi- = 1073741824 = Gi-
tebi- = 1099511627776 = Ti-
pebi- = 1125899906842624 = Pi-
second = [time] = s = sec
minute = 60 * second = min
hour = 3600 * second = h
meter = [length] = m = metre
byte = [information] = B
bit = byte / 8 = bit
FLOP = [operation] = FLOP = FLOPs
OP = FLOP = OP = OPs
FLOPS = FLOP / second
OPS = FLOP / second
Bps = byte / second
hertz = 1 / second = Hz
gram = [mass] = g
joule = 1000 * gram * meter ** 2 / second ** 2 = J
watt = joule / second = W
"""

_EXAMPLES = {
    "byte": "an amount of data such as 80 GB or 40 MiB",
    "byte/s": "a data rate such as 3.35 TB/s or 400 Gbit/s",
    "FLOP": "a number of operations such as 2 TFLOP",
    "FLOP/s": "a compute rate such as 989.4 TFLOP/s",
    "Hz": "a frequency such as 1.83 GHz",
    "W": "a power such as 700 W",
    "s": "a time such as 2 us or 30 ms",
    "m": "a length such as 7 nm",
    "m^2": "an area such as 814 mm^2",
    "J": "an energy such as 1.5 pJ",
    "J/FLOP": "an energy per operation such as 0.16 pJ/FLOP",
    "J/byte": "an energy per amount of data such as 4 pJ/bit",
    "1": "a plain number such as 132",
}

_SYMBOLS = {
    "byte": "B",
    "byte/s": "B/s",
    "FLOP": "FLOP",
    "FLOP/s": "FLOP/s",
    "Hz": "Hz",
    "W": "W",
    "s": "s",
    "m": "m",
    "J": "J",
    "J/FLOP": "J/FLOP",
    "J/byte": "J/B",
}
_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_SMALL_PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"), (1e-12, "p"), (1e-15, "f"))
_AREA_UNITS = ((1.0, "m^2"), (1e-6, "mm^2"), (1e-12, "um^2"), (1e-18, "nm^2"))
_BINARY_UNITS = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))


def parse_quantity(text: str, unit: str, zero: bool = False) -> float:
    """Read a positive number with a unit into SI base units.

    **Arguments:** `text`: for example "3.35 TB/s"; `unit`: the SI unit of the answer, one of byte, byte/s, FLOP,
    FLOP/s, Hz, W, s, m, m^2, J, J/FLOP, J/byte, or 1 for a plain number; `zero`: whether 0 will do.
    **Returns:** the value in `unit`, finite and greater than zero, or 0 where that will do.
    **Raises:** `InputError` naming what is wrong and what is allowed.
    """
    allowed = _EXAMPLES.get(unit)
    if allowed is None:
        raise InputError(f"{unit!r} is not a supported unit; use one of {', '.join(_EXAMPLES)}.")
    if not isinstance(text, str):
        raise InputError(f"{text!r} is not text with a unit; write {allowed}.")
    found = _NUMBER.fullmatch(text)
    text = text if len(text) <= 60 else text[:57] + "..."
    if found is None:
        raise InputError(f'"{text}" does not start with a finite number; write {allowed}.')
    unit_text = found.group(2).strip()
    if unit != "1" and not unit_text:
        raise InputError(f'"{text}" has no unit; write {allowed}.')
    try:
        number = Decimal(found.group(1))
        value = float(number * _factor(unit_text, unit))
    except ArithmeticError:
        raise InputError(f'"{text}" is too large or too small; write {allowed}.') from None
    except InputError as problem:
        raise InputError(f'"{text}": {problem}; write {allowed}.') from None
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        least = "not below zero" if zero else "greater than zero"
        raise InputError(f'"{text}" must be finite and {least}; write {allowed}.')
    return value


def format_quantity(value: float, unit: str, digits: int = 4) -> str:
    """Print a number in SI base units the way people write it, such as "3.35 TB/s", "40 MiB" or "30 ms".

    **Arguments:** `value` in `unit` (see `parse_quantity`); `digits`: significant digits kept.
    **Returns:** text that `parse_quantity` reads back to `value` within `digits` digits, when it is positive.
    Data sizes take a binary prefix only where that is exact and a decimal one is not.
    """
    if unit not in _EXAMPLES:
        raise InputError(f"{unit!r} is not a supported unit; use one of {', '.join(_EXAMPLES)}.")
    if not math.isfinite(value) or value == 0:
        return f"{value:g} {_SYMBOLS.get(unit, unit if unit != '1' else '')}".strip()
    if unit == "1":
        return f"{value:.{max(digits, len(str(int(abs(value)))))}g}" if abs(value) < 1e15 else f"{value:.{digits}g}"
    if unit == "m^2":
        return _scaled(value, _AREA_UNITS, digits)
    symbol = _SYMBOLS[unit]
    decimal = _scaled(value, [(scale, prefix + symbol) for scale, prefix in _prefixes(value, unit)], digits)
    if unit == "byte" and value >= 1024 and float(decimal.split()[0]) * _scale_of(decimal, symbol) != value:
        for scale, name in _BINARY_UNITS:
            if value >= scale and float(f"{value / scale:.{digits}g}") * scale == value:
                return f"{value / scale:.{digits}g} {name}"
    return decimal


def _prefixes(value: float, unit: str) -> tuple[tuple[float, str], ...]:
    """Prefixes people use: seconds and meters have no kilo here, and bytes have no milli."""
    if unit in ("s", "m", "J", "J/FLOP", "J/byte", "W") and abs(value) < 1:
        return _SMALL_PREFIXES
    return ((1.0, ""),) if unit in ("s", "m") or abs(value) < 1 else _PREFIXES


def _scaled(value: float, units: Any, digits: int) -> str:
    """Print with the largest unit that leaves a number of at least one, after rounding."""
    rounded = abs(float(f"{value:.{digits}g}"))
    scale, name = next(((s, n) for s, n in units if rounded >= s * (1 - 1e-12)), units[-1])
    number = float(f"{value / scale:.{digits}g}")
    return f"{number:.{max(digits, 6)}g} {name}"


def _scale_of(text: str, symbol: str) -> float:
    prefix = text.split()[1].removesuffix(symbol)
    return next(scale for scale, name in _PREFIXES if name == prefix)


@functools.cache
def _units() -> Any:
    """The pint registry: ours is built from scratch, because pint's own counts bytes and bits as dimensionless."""
    import pint

    registry: Any = pint.UnitRegistry  # its stubs know neither lists of definitions nor Decimal
    return registry(_DEFINITIONS.strip().splitlines(), non_int_type=Decimal)


@functools.cache
def _factor(unit_text: str, unit: str) -> Decimal:
    """How many `unit` are in one `unit_text`, exactly."""
    import pint

    if unit == "1":
        if unit_text:
            raise InputError(f'"{unit_text}" is not allowed here, because the value is a plain number')
        return Decimal(1)
    if _BIT_WORD.search(unit_text):
        raise InputError(f'"{unit_text}" could mean bits or bytes (spell bits as Gbit/s, bytes as GB/s)')
    if not _UNIT_TEXT.fullmatch(unit_text):
        raise InputError(f'"{unit_text[:40]}" is not a unit')
    spelled = re.sub(r"m2\b", "m^2", unit_text.replace("²", "^2").replace("·", "*"))
    try:
        return Decimal(_units().Quantity(Decimal(1), spelled).to(unit).magnitude)
    except pint.DimensionalityError:
        raise InputError(f'"{unit_text}" is the wrong kind of unit') from None
    except Exception:  # pint's parser raises many types on nonsense; each means the same to the user
        known = ("GB", "GB/s", "TB/s", "GiB", "MiB", "TFLOP/s", "GHz", "MHz", "W", "us", "ms", "s", "pJ", "mm^2")
        close = nearest(unit_text, known, count=2)
        hint = f" (did you mean {' or '.join(close)}?)" if close else ""
        raise InputError(f'"{unit_text}" is not a known unit{hint}') from None
