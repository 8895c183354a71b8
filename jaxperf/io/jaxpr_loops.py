"""Loops and branches of a jaxpr: what crosses their edges, and how often their bodies count."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jax.extend.core import ClosedJaxpr, JaxprEqn

from jaxperf.core.loop_operands import scan_operands
from jaxperf.io.jaxpr_writer import Names, Place, Trace, edge, inside, scopes
from jaxperf.io.program import Kind

Enter = Callable[[Trace, ClosedJaxpr, Names, Place], list[str | None]]  # walks an inner jaxpr, returns its outputs


def _scan(made: Trace, equation: JaxprEqn, names: Names, place: Place, enter: Enter) -> list[str]:
    """The body once a trip: it reads a slice of every stacked input and writes one of every stacked output."""
    p = equation.params
    body, (constants, carried) = p["jaxpr"].jaxpr, scan_operands(p)
    within = _loop(made, equation, place, float(p["length"]))
    given: list[str | None] = list(names[:constants])
    for position in range(constants, len(names)):
        what = "carry" if position < constants + carried else "slice"
        given.append(edge(made, what, [names[position]], body.invars[position], within, in_place=True))
    found = enter(made, p["jaxpr"], given, within)
    return _leave(made, equation, found, found[:carried], place, carried)


def _while(made: Trace, equation: JaxprEqn, names: Names, place: Place, enter: Enter) -> list[str]:
    """Condition and body once: how often they run is decided by the data."""
    p = equation.params
    within = _loop(made, equation, place, 1.0)
    made.notes[f"{within.path[-1]}: a while loop of unknown length, its body counted once"] = None
    first, second = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    variables = p["body_jaxpr"].jaxpr.invars[p["body_nconsts"] :]
    carried = [
        edge(made, "carry", [name], variable, within, in_place=True)
        for name, variable in zip(names[second:], variables, strict=True)
    ]
    decided = enter(made, p["cond_jaxpr"], [*names[:first], *carried], within)
    found = enter(made, p["body_jaxpr"], [*names[first:second], *carried], within)
    return _leave(made, equation, found, [*found, *decided], place, len(found))


def _leave(made: Trace, equation: JaxprEqn, found: Names, needed: Names, place: Place, carried: int) -> list[str]:
    """The outputs of a loop. Each waits for all that is carried from trip to trip (`needed`): none of it is dead while
    some output is read."""
    outputs = []
    for position, (name, variable) in enumerate(zip(found, equation.outvars, strict=True)):
        what = "carry" if position < carried else "stack"
        outputs.append(edge(made, what, [name, *needed], variable, place, in_place=position < carried))
    return outputs


def _loop(made: Trace, equation: JaxprEqn, place: Place, trips: float) -> Place:
    """The inside of a new loop."""
    word = f"{equation.primitive.name}.{len(made.steps)}"
    return Place((*place.path, *scopes(equation), word), (*place.scope, word), place.count * trips)


def _cond(made: Trace, equation: JaxprEqn, names: Names, place: Place, enter: Enter) -> list[str]:
    """The costliest branch, by FLOP and then by bytes."""
    branches = equation.params["branches"]
    tried = []
    for branch in branches:
        part = made.part()
        found = enter(part, branch, names[1:], inside(place, equation))
        tried.append((_weight(part, len(made.steps)), part, found))
    position = int(max(range(len(tried)), key=lambda at: tried[at][0]))
    _, part, found = tried[position]
    made.steps[:], made.values, made.notes = part.steps, part.values, part.notes
    if len(branches) > 1:
        label = "/".join((*place.path, *scopes(equation), f"cond.{len(made.steps)}"))
        made.notes[f"{label}: branch {position} of {len(branches)}, the costliest, counted alone"] = None
    return [
        edge(made, "branch", [name], variable, place, in_place=True)
        for name, variable in zip(found, equation.outvars, strict=True)
    ]


def _weight(part: Trace, start: int) -> tuple[float, float]:
    """FLOP and bytes of the steps from `start`."""
    steps = [step for step in part.steps[start:] if step.kind not in (Kind.FREE, Kind.ALIAS, Kind.VIEW)]
    moved = sum(step.count * sum(part.values[name].nbytes for name in (*step.inputs, *step.outputs)) for step in steps)
    return sum(step.count * step.flops for step in steps), moved


LOOPS: Mapping[str, Callable[..., list[str]]] = {"scan": _scan, "while": _while, "cond": _cond}
