"""Checked access to Megatron-style options."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hwspecs.errors import InputError
from hwspecs.whole import whole_number
from jaxperf.core.cells import float_or_nan
from jaxperf.io.megatron.options import Options

_YES_OR_NO = frozenset("true false yes no on off none null 0 1".split())


@dataclass(frozen=True)
class Reader:
    """Checked access to options; all methods raise `InputError` naming the option."""

    options: Options
    source: str

    def flag(self, name: str) -> bool:
        return name in self.options

    def count(self, name: str, default: int | None = None) -> int:
        value = self.optional_count(name)
        found = default if value is None else value
        if found is None:
            raise InputError(f"{self.source}: {option_text(name)} is missing.")
        return found

    def optional_count(self, name: str) -> int | None:
        if name not in self.options:
            return None
        text = " ".join(self.options[name])
        found = whole_number(text)
        if not found:
            hint = "; the file does not set the variable, or not to one value" if "$" in text else ""
            raise InputError(f"{self.source}: {option_text(name)} is '{text}'; it must be an integer from 1{hint}.")
        return found

    def share(self, name: str, default: float) -> float:
        """A number from 0 to 1."""
        if name not in self.options:
            return default
        text = " ".join(self.options[name])
        value = float_or_nan(text)
        if not 0.0 <= value <= 1.0:
            raise InputError(f"{self.source}: {option_text(name)} is '{text}'; it must be a number from 0 to 1.")
        return value

    def word(self, name: str, allowed: Sequence[str]) -> str | None:
        if name not in self.options:
            return None
        text = " ".join(self.options[name])
        if text not in allowed:
            raise InputError(f"{self.source}: {option_text(name)} is '{text}'; it must be one of {', '.join(allowed)}.")
        return text

    def alone(self, names: Collection[str]) -> None:
        """Raises `InputError` for one of these options that is told yes or no: it is set by being there, so that a
        "false" behind it would count as a yes."""
        for name, values in self.options.items():
            if name in names and len(values) == 1 and values[0].lower() in _YES_OR_NO:
                raise InputError(
                    f"{self.source}: {option_text(name)} takes no value, but '{values[0]}' follows it; "
                    "give it alone, or leave it out."
                )

    def refuse(self, *pairs: tuple[str, str]) -> None:
        """Raises `InputError` where both options of a pair are given."""
        for one, other in pairs:
            if one in self.options and other in self.options:
                raise InputError(
                    f"{self.source}: {option_text(one)} and {option_text(other)} contradict each other; give one."
                )


def option_text(name: str) -> str:
    """An option as it is written."""
    return f"--{name.replace('_', '-')}"
