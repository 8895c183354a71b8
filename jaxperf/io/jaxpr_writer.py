"""What is written while a jaxpr is walked: steps and values, named and counted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jax.extend.core import JaxprEqn

from jaxperf.io.avals import value_of
from jaxperf.io.primitives.call import Description
from jaxperf.io.program import Kind, Step, Value

Names = Sequence[str | None]  # of values; None for a literal


@dataclass
class Trace:
    """What is written while a jaxpr is walked. The names of values and steps are counted."""

    steps: list[Step] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    def new(self, variable: Any) -> str:
        """A name for a new value."""
        name = f"v{len(self.values)}"
        self.values[name] = value_of(variable.aval)
        return name

    def part(self) -> Trace:
        """A trace that continues this one and can be dropped or kept."""
        return Trace(list(self.steps), dict(self.values), dict(self.notes))


@dataclass(frozen=True)
class Place:
    """Where in the program a jaxpr stands: the words of its path, the loops around it, and how often it runs."""

    path: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    count: float = 1.0


def scopes(equation: JaxprEqn) -> tuple[str, ...]:
    """The user's `jax.named_scope`s around an equation; what differentiation adds to them as one word."""
    spelled = str(equation.source_info.name_stack)
    backward = ("backward",) if "transpose(" in spelled else ()
    words = re.sub(r"transpose\(|jvp\(|vmap\(|\)", "", spelled)
    return (*backward, *(word for word in words.split("/") if word))


def append(
    made: Trace,
    operation: str,
    found: Description,
    names: Names,
    outputs: Sequence[str],
    place: Place,
) -> None:
    label = "/".join((*place.path, f"{operation}.{len(made.steps)}"))
    made.steps.append(
        Step(
            label,
            operation,
            found.kind,
            tuple(dict.fromkeys(name for name in names if name is not None)),
            tuple(outputs),
            found.flops,
            found.ops,
            found.read,
            found.written,
            place.scope,
            place.count,
            found.in_place,
        )
    )


def edge(made: Trace, what: str, names: Names, variable: Any, place: Place, in_place: bool) -> str:
    """A value that crosses the edge of a loop or a branch: a new one without a kernel."""
    out = made.new(variable)
    append(made, what, Description(Kind.FREE, in_place=in_place), names, [out], place)
    return out


def inside(place: Place, equation: JaxprEqn) -> Place:
    """The place of a jaxpr that an equation calls."""
    word = equation.params.get("name")
    path = (*place.path, *scopes(equation), *((str(word),) if word else ()))
    return Place(path, place.scope, place.count)
