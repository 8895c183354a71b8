"""A traced point function as a flat list of equations, and which axes each of them depends on."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.extend.core
import numpy as np

# Calls that are only a way of writing: their body is put in their place. Loops and branches stay whole.
INLINED = {
    "pjit": "jaxpr",
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
WRITING = ("scatter", "dynamic_update_slice")  # primitives that XLA may carry out in the place of their operand
_ADDRESS = re.compile(r"0x[0-9a-f]+")


@dataclass(frozen=True)
class Fixed:
    """A literal of the program."""

    value: Any


Operand = int | Fixed  # a value is known by its number


@dataclass(frozen=True)
class Equation:
    """One primitive applied to operands, giving values with new numbers."""

    primitive: Any
    params: Mapping[str, Any]
    operands: tuple[Operand, ...]
    results: tuple[int, ...]

    def apply(self, values: Mapping[int, Any]) -> Sequence[Any]:
        """Evaluate on the values of its operands."""
        return self.bind(*(one.value if isinstance(one, Fixed) else values[one] for one in self.operands))

    def bind(self, *operands: Any) -> Sequence[Any]:
        """Evaluate on these operands."""
        found = self.primitive.bind(*operands, **self.primitive.get_bind_params(dict(self.params)))
        return found if self.primitive.multiple_results else [found]

    @property
    def plain(self) -> bool:
        """Whether it only makes new values of old ones. A loop that is unrolled (`jnp.polyval`) is none."""
        unrolled = self.primitive.name == "scan" and self.params["unroll"] >= self.params["length"]
        inside = _has_program(self.params.values()) and not unrolled
        return not (inside or self.primitive.name.startswith(WRITING))

    @property
    def numbers(self) -> list[int]:
        """The numbered operands."""
        return [one for one in self.operands if isinstance(one, int)]


@dataclass(frozen=True)
class Program:
    """`equations` in an order that can be evaluated; values 0, 1, ... are the inputs."""

    inputs: int
    equations: tuple[Equation, ...]
    outputs: tuple[Operand, ...]

    def evaluate(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs, one equation after the other; traced inside a transformation, computed outside."""
        values = dict(enumerate(inputs))
        for equation in self.equations:
            values.update(zip(equation.results, equation.apply(values), strict=True))
        return [one.value if isinstance(one, Fixed) else values[one] for one in self.outputs]

    @functools.cached_property
    def last_uses(self) -> list[list[int]]:
        """After which equation which values are read no more; outputs are kept."""
        seen = {one for one in self.outputs if isinstance(one, int)}
        found: list[list[int]] = []
        for equation in reversed(self.equations):
            done = {*equation.numbers, *equation.results} - seen
            seen |= done
            found.append(sorted(done))
        return found[::-1]

    def fingerprint(self) -> str:
        """A hash of what is computed, equal in every process."""
        digest = hashlib.sha256(repr((self.inputs, _operand_keys(self.outputs))).encode())
        for each in self.equations:
            params = [(name, _ADDRESS.sub("", str(value))) for name, value in sorted(each.params.items())]
            digest.update(repr((each.primitive.name, _operand_keys(each.operands), params, each.results)).encode())
        return digest.hexdigest()

    @property
    def plain(self) -> bool:
        """Whether no equation is a loop or branch, or writes into an array that others may still read."""
        return all(each.plain for each in self.equations)


def flatten(closed: jax.extend.core.ClosedJaxpr) -> Program:
    """The program without nested calls, without equations written twice, and without those nobody needs.

    Inputs are the jaxpr's constants, then its arguments.
    """
    builder = _Builder()
    jaxpr = closed.jaxpr
    names: dict[Any, Operand] = {var: builder.new() for var in (*jaxpr.constvars, *jaxpr.invars)}
    inputs = builder.count
    outputs = builder.add(jaxpr, names)
    needed = _needed(builder.equations, outputs)
    return Program(inputs, tuple(needed), tuple(outputs))


@dataclass
class _Builder:
    """Numbers values while equations are collected; an equation seen before gives its old results."""

    count: int = 0
    equations: list[Equation] = field(default_factory=list)
    seen: dict[Any, tuple[int, ...]] = field(default_factory=dict)

    def new(self) -> int:
        self.count += 1
        return self.count - 1

    def add(self, jaxpr: Any, names: dict[Any, Operand]) -> list[Operand]:
        """Collect the equations of a jaxpr whose inputs have these names; returns those of its outputs."""
        for eqn in jaxpr.eqns:
            operands = [_named(var, names) for var in eqn.invars]
            inner = eqn.params.get(INLINED.get(eqn.primitive.name, ""))
            if isinstance(inner, jax.extend.core.ClosedJaxpr):
                consts = [Fixed(const) for const in inner.consts]
                inside = dict(zip((*inner.jaxpr.constvars, *inner.jaxpr.invars), (*consts, *operands), strict=True))
                results: Sequence[Operand] = self.add(inner.jaxpr, inside)
            else:
                results = self._collect(eqn, tuple(operands))
            names |= dict(zip(eqn.outvars, results, strict=True))
        return [_named(var, names) for var in jaxpr.outvars]

    def _collect(self, eqn: Any, operands: tuple[Operand, ...]) -> tuple[int, ...]:
        key = _key(eqn, operands)
        if key is not None and key in self.seen:
            return self.seen[key]
        results = tuple(self.new() for _ in eqn.outvars)
        self.equations.append(Equation(eqn.primitive, eqn.params, operands, results))
        if key is not None:
            self.seen[key] = results
        return results


def _named(var: Any, names: Mapping[Any, Operand]) -> Operand:
    if not isinstance(var, jax.extend.core.Literal):
        return names[var]
    kind: Any = var.aval  # of a typed number: NumPy takes a plain one for the default type
    return Fixed(np.asarray(var.val, kind.dtype))


def _key(eqn: Any, operands: tuple[Operand, ...]) -> Any:
    """What makes two equations the same; None where a parameter is itself a program."""
    if _has_program(eqn.params.values()):
        return None
    params = [(name, str(value)) for name, value in sorted(eqn.params.items()) if value is not None]
    return eqn.primitive.name, _operand_keys(operands), tuple(params), tuple(var.aval for var in eqn.outvars)


def _has_program(params: Iterable[Any]) -> bool:
    return any(hasattr(each, "eqns") or hasattr(each, "jaxpr") for value in params for each in _items(value))


def _items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, tuple | list) else (value,)


def _operand_keys(operands: Sequence[Operand]) -> tuple[Any, ...]:
    return tuple(one if isinstance(one, int) else _literal_key(one.value) for one in operands)


def _literal_key(value: Any) -> tuple[str, tuple[int, ...], bytes]:
    array = np.asarray(value)
    return str(array.dtype), array.shape, array.tobytes()


def _needed(equations: Sequence[Equation], outputs: Sequence[Operand]) -> list[Equation]:
    wanted = {one for one in outputs if isinstance(one, int)}
    kept = []
    for equation in reversed(equations):
        if wanted.intersection(equation.results):
            wanted.update(equation.numbers)
            kept.append(equation)
    return kept[::-1]


def dependencies(program: Program, inputs: Sequence[frozenset[int]]) -> dict[int, frozenset[int]]:
    """The axes that each value depends on, given those of the inputs."""
    found = dict(enumerate(inputs))
    for equation in program.equations:
        axes = frozenset().union(*(found[number] for number in equation.numbers))
        found.update(dict.fromkeys(equation.results, axes))
    return found
