"""One number of a specification: its text, its value in SI units, where it comes from and how sure we are."""

from __future__ import annotations

import functools
import re
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from hwspecs.errors import InputError
from hwspecs.quantity import format_quantity, parse_quantity

Confidence = Literal["confirmed", "single source", "derived", "estimated"]
Format = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4", "int4"]
SourceKind = Literal[
    "datasheet", "whitepaper", "documentation", "database", "tool config", "article", "measurement", "estimate"
]

#: confirmed: two or more independent sources agree. single source: one source, or several that copy it.
#: derived: a formula over other values, written in `note`. estimated: judgement, with the reason in `note`.
CONFIDENCES: tuple[str, ...] = get_args(Confidence)
#: Number formats with a dense matrix rate; fp8 covers E4M3 and E5M2, fp4 covers NVFP4 and MXFP4.
FORMATS: tuple[str, ...] = get_args(Format)


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; write at least one word")
    return text


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Text = Annotated[str, AfterValidator(_not_blank)]
Year = Annotated[str, Field(pattern=r"^(19|20)\d\d(-(0[1-9]|1[0-2]))?$")]
Date = Annotated[str, Field(pattern=r"^(19|20)\d\d(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?$")]


class Record(BaseModel):
    """Base of every table: immutable, and a key that is not in the schema is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(Record):
    """Where a value comes from; `year` is the year of the edition used, `note` how it was read."""

    title: Text
    publisher: Text
    kind: SourceKind
    year: int = Field(ge=1990, le=2100)
    note: Text | None = None


# A device's rates read its values hundreds of times.
_parsed = functools.lru_cache(maxsize=2**14)(parse_quantity)


class Value(Record):
    """A number with a unit and its provenance; the subclasses fix the unit.

    `source` holds keys into the `[sources]` table of the same file. `note` must give the formula of a derived value
    and the reason of an estimated one.
    """

    unit: ClassVar[str] = "1"
    whole: ClassVar[bool] = True  # a plain number counts things
    # Far beyond any hardware: what lies outside is a slip, such as a unit's wrong prefix [`unit`].
    least: ClassVar[float] = 1.0
    most: ClassVar[float] = 1e12
    quantity: str
    source: Annotated[tuple[Text, ...], BeforeValidator(_as_list), Field(min_length=1)]
    confidence: Confidence
    date: Date | None = None
    note: Text | None = None

    @property
    def si(self) -> float:
        """The value in SI base units (byte, byte/s, FLOP/s, Hz, W, s, m, m^2, J/FLOP, J/byte, or 1)."""
        return _parsed(self.quantity, self.unit)

    @field_validator("quantity", mode="before")
    @classmethod
    def _check_quantity(cls, value: Any) -> Any:
        counting = cls.unit == "1" and cls.whole
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        text: Any = str(value) if counting and is_integer else value
        if counting and isinstance(value, str | float) and not re.fullmatch(r"\s*[+-]?\d+\s*", str(value)):
            raise InputError(f"is {value!r}, which is not a whole number; write a plain number such as 132.")
        if not cls.least <= parse_quantity(text, cls.unit) <= cls.most:
            lowest, highest = (format_quantity(end, cls.unit) for end in (cls.least, cls.most))
            raise InputError(f'"{text}" is out of range; allowed: {lowest} to {highest}.')
        return text

    @model_validator(mode="after")
    def _check_provenance(self) -> Value:
        if len(set(self.source)) != len(self.source):
            raise InputError("source names the same key twice; give each source once.")
        if self.confidence == "confirmed" and len(self.source) < 2:
            raise InputError(
                'confidence "confirmed" needs two or more sources; add one to source, or write "single source".'
            )
        if self.confidence in ("derived", "estimated") and self.note is None:
            raise InputError(f'confidence "{self.confidence}" needs a note with the formula or the reason.')
        return self


class Count(Value):
    """A whole number of things [1]."""


class Ratio(Value):
    """One quantity over another of its kind [1]."""

    whole: ClassVar[bool] = False
    least: ClassVar[float] = 1e-6
    most: ClassVar[float] = 1e6


class DataSize(Value):
    """An amount of data [byte]."""

    unit: ClassVar[str] = "byte"
    least: ClassVar[float] = 1.0
    most: ClassVar[float] = 1e18


class DataRate(Value):
    """A data rate [byte/s]."""

    unit: ClassVar[str] = "byte/s"
    least: ClassVar[float] = 1e6
    most: ClassVar[float] = 1e18


class ComputeRate(Value):
    """A compute rate, a multiply-add counting as two [FLOP/s]."""

    unit: ClassVar[str] = "FLOP/s"
    least: ClassVar[float] = 1e6
    most: ClassVar[float] = 1e21


class Frequency(Value):
    """A frequency [Hz]."""

    unit: ClassVar[str] = "Hz"
    least: ClassVar[float] = 1e3
    most: ClassVar[float] = 1e12


class Power(Value):
    """A power [W]."""

    unit: ClassVar[str] = "W"
    least: ClassVar[float] = 1e-6
    most: ClassVar[float] = 1e9


class Duration(Value):
    """A time [s]."""

    unit: ClassVar[str] = "s"
    least: ClassVar[float] = 1e-12
    most: ClassVar[float] = 1e3


class Length(Value):
    """A length [m]."""

    unit: ClassVar[str] = "m"
    least: ClassVar[float] = 1e-11
    most: ClassVar[float] = 1e-3


class Area(Value):
    """An area of silicon [m^2]."""

    unit: ClassVar[str] = "m^2"
    least: ClassVar[float] = 1e-8
    most: ClassVar[float] = 1.0


class EnergyPerFlop(Value):
    """Energy of one floating-point or integer operation, a multiply-add counting as two [J/FLOP]."""

    unit: ClassVar[str] = "J/FLOP"
    least: ClassVar[float] = 1e-18
    most: ClassVar[float] = 1e-3


class EnergyPerByte(Value):
    """Energy of moving one byte [J/byte]."""

    unit: ClassVar[str] = "J/byte"
    least: ClassVar[float] = 1e-15
    most: ClassVar[float] = 1e-3
