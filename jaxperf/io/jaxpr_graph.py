"""Any JAX function as a program of steps, through its jaxpr: shapes only, nothing is computed.

Calls, `custom_jvp`, `custom_vjp`, `remat` and `shard_map` are entered; the body of a `scan` counts as often as it runs;
of a `while` whose trips nobody knows, once; of a `cond`, its costliest branch. The last two are said in the notes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from hwspecs.errors import InputError
from jaxperf.io.avals import value_of
from jaxperf.io.jaxpr_loops import LOOPS
from jaxperf.io.jaxpr_writer import Names, Place, Trace, append, edge, inside, scopes
from jaxperf.io.primitives.call import Call
from jaxperf.io.primitives.describe import RULES, describe
from jaxperf.io.program import Program, without_dead_steps

Environment = dict[Any, str | None]


def trace(function: Callable[..., Any], *arguments: Any, name: str | None = None) -> Program:
    """The program that JAX makes of a function for arguments of these shapes.

    **Arguments:** `arguments`: pytrees of arrays or `jax.ShapeDtypeStruct`.
    **Raises:** `InputError` naming the function where it cannot be traced, with the place and the cause.
    """
    called = name or getattr(function, "__name__", "function")
    try:
        closed = jax.make_jaxpr(function)(*arguments)
    except InputError:
        raise
    except Exception as error:  # whatever the user's function raises
        raise InputError(f"{called} cannot be traced: {_cause(error)}") from None
    return program_of(closed, called)


def program_of(closed: ClosedJaxpr, name: str) -> Program:
    """The program of a closed jaxpr. Arrays that the function closes over are its parameters."""
    made = Trace()
    jaxpr = closed.jaxpr
    environment: Environment = {variable: made.new(variable) for variable in (*jaxpr.constvars, *jaxpr.invars)}
    found = _walk(made, jaxpr, environment, Place())
    outputs = tuple(dict.fromkeys(value for value in found if value is not None))
    steps = without_dead_steps(made.steps, outputs)
    parameters = tuple(str(environment[variable]) for variable in jaxpr.constvars)
    inputs = tuple(str(environment[variable]) for variable in jaxpr.invars)
    return Program(name, steps, made.values, inputs, outputs, parameters, tuple(made.notes))


def _cause(error: Exception) -> str:
    """The first line of an error and the user's own line that raised it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0].rstrip(".") if lines else "no message"
    place, step = "", error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if "site-packages" not in file and file != __file__:
            place = f" ({file}, line {step.tb_lineno})"
        step = step.tb_next
    return f"{type(error).__name__}: {text}{place}."


# --- the walk ---------------------------------------------------------------------------------------------------------


def _walk(made: Trace, jaxpr: Jaxpr, environment: Environment, place: Place) -> list[str | None]:
    """Write the steps of a jaxpr whose inputs have names; return the names of its outputs, None for literals."""
    for equation in jaxpr.eqns:
        names = [_name_of(variable, environment) for variable in equation.invars]
        outputs = _equation(made, equation, names, place)
        environment.update(zip(equation.outvars, outputs, strict=True))
    return [_name_of(variable, environment) for variable in jaxpr.outvars]


def _name_of(variable: Any, environment: Environment) -> str | None:
    return None if isinstance(variable, Literal) else environment[variable]


def _equation(made: Trace, equation: JaxprEqn, names: Names, place: Place) -> Names:
    operation = equation.primitive.name
    if operation in LOOPS:
        return LOOPS[operation](made, equation, names, place, _enter)
    inner = None if operation in RULES else _called(equation)
    if inner is not None:
        return _call(made, equation, inner, names, inside(place, equation))
    return _write(made, equation, names, place)


def _called(equation: JaxprEqn) -> ClosedJaxpr | None:
    """The one jaxpr that a primitive calls with its own operands: jit, custom_jvp, remat, shard_map, ..."""
    for each in equation.params.values():
        jaxpr = each if isinstance(each, ClosedJaxpr) else ClosedJaxpr(each, ()) if isinstance(each, Jaxpr) else None
        if jaxpr is None or len(jaxpr.jaxpr.outvars) != len(equation.outvars):
            continue
        if len(jaxpr.jaxpr.invars) == len(equation.invars):
            return jaxpr
    return None


def _call(made: Trace, equation: JaxprEqn, inner: ClosedJaxpr, names: Names, place: Place) -> Names:
    """Walk a called jaxpr; that of a `shard_map` works on one rank's part of its operands, and makes such parts."""
    given = [_as_seen(made, name, variable, place) for name, variable in zip(names, inner.jaxpr.invars, strict=True)]
    found = _enter(made, inner, given, place)
    if equation.primitive.name == "shard_map":
        made.notes[f"{'/'.join(place.path) or 'shard_map'}: the work of one rank"] = None
    return [_as_seen(made, name, variable, place) for name, variable in zip(found, equation.outvars, strict=True)]


def _as_seen(made: Trace, name: str | None, variable: Any, place: Place) -> str | None:
    """A value under the shape it has on the other side of a call."""
    if name is None or made.values[name].shape == value_of(variable.aval).shape:
        return name
    return edge(made, "shard", [name], variable, place, in_place=True)


def _enter(made: Trace, closed: ClosedJaxpr, names: Names, place: Place) -> list[str | None]:
    """Walk a called jaxpr with the caller's values as its inputs."""
    jaxpr = closed.jaxpr
    environment: Environment = {variable: made.new(variable) for variable in jaxpr.constvars}
    environment.update(zip(jaxpr.invars, names, strict=True))
    return _walk(made, jaxpr, environment, place)


def _write(made: Trace, equation: JaxprEqn, names: Names, place: Place) -> list[str]:
    """Write one primitive as a step."""
    operation = equation.primitive.name
    inputs = tuple(value_of(variable.aval) for variable in equation.invars)
    outputs = [made.new(variable) for variable in equation.outvars]
    found = describe(Call(operation, inputs, tuple(made.values[name] for name in outputs), equation.params))
    path = (*place.path, *scopes(equation))
    append(made, operation, found, names, outputs, Place(path, place.scope, place.count))
    return outputs
