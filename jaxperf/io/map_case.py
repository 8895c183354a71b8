"""What a search for mappings takes from a case, and what it says, as plain data."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.map_constraints import machine_constraints, with_meshes
from jaxperf.io.timeloop.case import Case, evaluate
from jaxperf.io.timeloop.fields import count
from jaxperf.io.timeloop.nest import KINDS
from jaxperf.loopnest.constraints import Constraints, check_constraints, check_factors, check_kept
from jaxperf.loopnest.feasible import SENTENCES
from jaxperf.loopnest.lower_bound_branch import Proof, prove
from jaxperf.loopnest.mapper import METHODS, Effort, Found, Report, find_mapping
from jaxperf.loopnest.mapspace import build_space


def other_bounds(case: Case, text: str) -> Case:
    """The case with other bounds of some loops, written `M=64,R=7`.

    **Raises:** `InputError` for an unknown loop, one given twice, none, or a bound that is no integer from 1.
    """
    names = case.names.dimensions
    bounds = case.problem.bounds
    given: set[str] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if not sign:
            raise InputError(f"--bounds: '{part}' has no value; write M=64.")
        if name not in names:
            raise InputError(f"--bounds: '{name}' is no loop; there are {', '.join(names)}.{did_you_mean(name, names)}")
        if name in given:
            raise InputError(f"--bounds: {name} is given twice; give it once.")
        given.add(name)
        bounds = bounds.at[names.index(name)].set(jnp.asarray(count(value, f"--bounds: {name}"), bounds.dtype))
    if not given:
        raise InputError(f"--bounds: '{text}' names no loop; write {names[0]}=64, or leave --bounds away.")
    return dataclasses.replace(case, problem=dataclasses.replace(case.problem, bounds=bounds))


def constrained(case: Case, given: str | None) -> tuple[Case, Constraints]:
    """The case with the meshes of its constraints, and these: of a name, of a file, or what its instances allow.

    **Raises:** `InputError` for constraints of other levels, loops or operands, meshes that do not fit the machine,
    factors that do not fit the bounds, or an operand that no level keeps.
    """
    limits = machine_constraints(given, case.architecture, case.levels)
    source = given or "case"
    check_constraints(limits, case.levels, case.names, source)
    check_kept(limits, case.levels, case.names, case.mapping.kept, source)
    check_factors(limits, case.levels, case.names, [float(bound) for bound in case.problem.bounds], source)
    return dataclasses.replace(case, architecture=with_meshes(case.architecture, case.levels, limits)), limits


class Asked(NamedTuple):
    """`objective`: of `OBJECTIVES`; `seed`; `generations` of the search and `nodes` of the proof at most; `method`: of
    `METHODS`; `bypass`: whether what levels keep is searched, for which there is no proof."""

    objective: str
    seed: int
    generations: int
    nodes: int
    method: str = "evolution"
    bypass: bool = False


def best_mapping(
    case: Case, limits: Constraints, asked: Asked, width: int = 1, report: Report | None = None
) -> tuple[dict[str, Any], Case | None]:
    """The answer of a search and its proof as plain data, and the case with the mapping found, `None` where none is.

    **Arguments:** `case`, `limits`: of `constrained`; `width`: as of `build_space`; `report`: called with how much is
    done and is to do, of the search and then of the proof. Interrupted, the answer is the best until then.
    """
    space = build_space(case.problem, case.names, case.levels, case.mapping.kept, limits, width, asked.bypass)
    at = (case.problem, case.architecture, space)
    found = find_mapping(*at, asked.objective, asked.seed, Effort(asked.generations), report, asked.method)
    proof = None
    if not found.interrupted and not asked.bypass:
        try:
            proof = prove(*at, asked.objective, found.score, asked.nodes, report)
        except KeyboardInterrupt:
            found = found._replace(interrupted=True)
    mapping = found.mapping if proof is None or proof.mapping is None else proof.mapping
    mapped = None if mapping is None else dataclasses.replace(case, mapping=mapping)
    return _record(mapped, found, proof), mapped


def compared_methods(case: Case, limits: Constraints, asked: Asked, width: int = 1) -> dict[str, Any] | None:
    """The best score of each method after as many evaluations, the bound of all; `None` where the user interrupted it.

    **Arguments:** as of `best_mapping`; `generations` are rounded down to whole steps of every method.
    """
    space = build_space(case.problem, case.names, case.levels, case.mapping.kept, limits, width)
    at = (case.problem, case.architecture, space)
    longest = max(method.generations for method in METHODS.values())
    generations = max(asked.generations // longest, 1) * longest
    effort = Effort(generations, patience=generations)
    found = {name: find_mapping(*at, asked.objective, asked.seed, effort, method=name) for name in METHODS}
    if any(each.interrupted for each in found.values()):
        return None
    scores = {name: each.score for name, each in found.items()}
    proof = prove(*at, asked.objective, min(scores.values()), asked.nodes)
    evaluations = {name: each.evaluations for name, each in found.items()}
    return {**scores, "bound": proof.bound, "evaluations": min(evaluations.values())}


def _record(case: Case | None, found: Found, proof: Proof | None) -> dict[str, Any]:
    """The mapping and its cost, the bound, and why mappings were refused."""
    cost = {} if case is None else evaluate(case, "head")
    score = found.score if proof is None else proof.score
    bound = None if proof is None else proof.bound
    return {
        "mapping": [] if case is None else mapping_blocks(case),
        **cost,
        "score": score,
        "bound": bound,
        "gap": score / bound - 1.0 if bound and case is not None else None,
        "factorings_bounded": proof is not None and proof.exhaustive,
        "factorings": 0 if proof is None else proof.factorings,
        "nodes": 0 if proof is None else proof.nodes,
        "evaluations": found.evaluations,
        "rejected": [{"reason": SENTENCES[why], "mappings": number} for why, number in found.rejected.items()],
        "interrupted": found.interrupted,
    }


def mapping_blocks(case: Case) -> list[dict[str, Any]]:
    """The mapping as a case states it, outermost level first; loops that run once are left out."""
    return [
        {
            "level": case.levels[level],
            "keep": [name for name, kept in zip(case.names.operands, case.mapping.kept[level], strict=True) if kept],
            "loops": _loops(case, level),
        }
        for level in reversed(range(len(case.levels)))
    ]


def _loops(case: Case, level: int) -> list[list[Any]]:
    mapping = case.mapping
    names = case.names.dimensions
    outwards = sorted(range(len(names)), key=lambda d: -float(mapping.rank[level, d]))
    factors = zip(KINDS, (mapping.temporal, mapping.spatial_x, mapping.spatial_y), strict=True)
    loops = [(names[d], int(of[level, d]), kind) for kind, of in factors for d in outwards]
    return [[*loop] for loop in loops if loop[1] > 1]
