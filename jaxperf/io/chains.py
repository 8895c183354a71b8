"""The kernels of a program: its chains, and where each of them reads its values from.

Views (transposes, slices, broadcasts) are read by the kernel that wants them; `jaxperf.io.fusion_levels` decides which
steps are one kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jaxperf.io.fusion_levels import Root, joined
from jaxperf.io.program import Kind, Program, Step

VIEWS = (Kind.VIEW, Kind.ALIAS)


@dataclass(frozen=True)
class Chains:
    """`roots`: where each value is read from; `groups`: the steps of each kernel, in the order of their data."""

    roots: Mapping[str, Root]
    groups: tuple[tuple[Step, ...], ...]


def find_chains(program: Program, fuse: bool = True) -> Chains:
    """The kernels of a program; without `fuse` each step and each view that moves data is a kernel of its own."""
    written = _written_views(program, fuse)
    roots = _roots(program, written)
    streams = {step.name for step in program.steps if step.kind is Kind.STREAM} | written
    small = _scalars(program, roots) if fuse else set()
    free = {name for step in program.steps if step.name in small for name in step.outputs}
    roots = {name: Root(None, 0.0) if root.name in free else root for name, root in roots.items()}
    kernels = [
        step for step in program.steps if step.name not in small and (step.kind not in VIEWS or step.name in written)
    ]
    if not fuse:
        return Chains(roots, tuple((step,) for step in kernels))
    return Chains(roots, joined(program, kernels, roots, streams))


def _written_views(program: Program, fuse: bool) -> set[str]:
    """Views that a kernel has to write: without fusion all; else repetitions that a kernel reads which cannot repeat
    them itself, and repetitions and views of inputs that leave the program."""
    views = {step.name: step for step in program.steps if step.kind is Kind.VIEW}
    if not fuse:
        return set(views)
    given = _views_of_inputs(program)
    leaving = set(program.outputs)
    wanted = set(program.outputs)  # values that must lie in memory in full
    found = set()
    for step in reversed(program.steps):
        if step.kind in VIEWS:
            grows = program.bytes_of(step.outputs) > program.bytes_of(step.inputs[:1])
            copies = not leaving.isdisjoint(step.outputs) and not given.isdisjoint(step.outputs)
            if step.kind is Kind.VIEW and not wanted.isdisjoint(step.outputs) and (grows or copies):
                found.add(step.name)
                continue
            wanted.update(step.inputs[:1] if not wanted.isdisjoint(step.outputs) else ())
            leaving.update(step.inputs[:1] if not leaving.isdisjoint(step.outputs) else ())
        elif step.kind is not Kind.STREAM:
            wanted.update(step.inputs)
    return found


def _views_of_inputs(program: Program) -> set[str]:
    """Values that are an input or a parameter seen otherwise: nothing else can write them in their new order."""
    found = {*program.inputs, *program.parameters}
    for step in program.steps:
        if step.kind in VIEWS and not found.isdisjoint(step.inputs[:1]):
            found.update(step.outputs)
    return found


def _roots(program: Program, written: set[str]) -> dict[str, Root]:
    roots = {name: Root(name, program.values[name].nbytes) for name in (*program.inputs, *program.parameters)}
    for step in program.steps:
        through = step.kind in VIEWS and step.name not in written
        for name in step.outputs:
            own = program.values[name].nbytes
            if not through:
                roots[name] = Root(name, own)
            elif not step.inputs:
                roots[name] = Root(None, 0.0)  # iota and the like
            else:
                source = roots.get(step.inputs[0]) or Root(step.inputs[0], program.values[step.inputs[0]].nbytes)
                roots[name] = Root(source.name, min(source.nbytes, own))
    constants = {name for step in program.steps for name in step.inputs if name not in roots}
    return roots | {name: Root(name, program.values[name].nbytes) for name in constants}


def _scalars(program: Program, roots: Mapping[str, Root]) -> set[str]:
    """Steps on single numbers that depend on nothing larger, such as a loop's counter: part of whoever reads them."""
    small = {name for name in (*program.inputs, *program.parameters) if program.values[name].size <= 1}
    found = set()
    for step in program.steps:
        single = all(program.values[name].size <= 1 for name in step.outputs)
        if single and step.kind in (Kind.FREE, Kind.STREAM, *VIEWS):
            sources = [roots[name].name for name in step.inputs]
            if all(name is None or name in small for name in sources):
                small.update(step.outputs)
                found.add(step.name)
    return found
