"""What a machine does about zeros, as version 0.4 of Timeloop's YAML states it: `sparse_optimizations`.

A list of `targets`, each the name of a level with a `representation_format` (ranks of each data space, outermost
first), an `action_optimization` (gating or skipping of one data space on the zeros of others) or, for the units, a
`compute_optimization`. Nodes of an architecture may hold their own; hyphens are read as underscores.
"""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from typing import Any, NamedTuple

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.timeloop.fields import (
    amount,
    check_known,
    flag,
    list_of,
    object_if_any,
    object_of,
    text_of,
    words_if_any,
)
from jaxperf.loopnest.problem import Names
from jaxperf.loopnest.sparse.formats import KINDS, Format, Rank
from jaxperf.loopnest.sparse.optimization import GATING, SKIPPING, Directive, Option, keeping_level
from jaxperf.models.checks import show

KEY = "sparse_optimizations"
ORDER = "outer_to_inner"
SPELLED = {"BITMASK": "B", "CSR": "CSR", **{kind: kind for kind in KINDS}}
FIELDS = ("name", "representation_format", "action_optimization", "compute_optimization")  # of a target
SPACE = ("name", "ranks", "rank_application_order")
RANK = ("format", "flattened_rankIDs", "metadata_word_bits", "payload_word_bits")
ACTION = ("type", "options")
OPTION = ("target", "condition_on")
COMPUTE = {"gate_on_zero_operand": "gates_zeros", "skip_on_not_aligned_operands": "skips_unaligned"}


class Optimizations(NamedTuple):
    """The structure of `Sparsity`: `formats` by level and operand, `directives`, and what the units do."""

    formats: tuple[tuple[Format | None, ...], ...]
    directives: tuple[Directive, ...]
    units: dict[str, bool]


class Parts(NamedTuple):
    """What the names in a file can mean. `kept`: by level and operand, of the mapping."""

    names: Names
    levels: tuple[str, ...]
    unit: str
    kept: tuple[tuple[bool, ...], ...]


def read_optimizations(data: Dictionary[str, Any], parts: Parts, where: str) -> Optimizations:
    """The optimizations of all targets. Raises `InputError` naming target and field."""
    formats: list[list[Format | None]] = [[None] * len(parts.names.operands) for _ in parts.levels]
    directives: list[Directive] = []
    units: dict[str, bool] = {}
    for target in list_of(data, "targets", where):
        name = text_of(target, "name", f"{where}: targets")
        at = f"{where}: {name}"
        check_known(target, FIELDS, at)
        if name == parts.unit:
            units |= _units(target, at)
            continue
        level = _position(name, parts.levels, "storage level", f"{where}: targets")
        for operand, layout in _formats(target, parts, at).items():
            formats[level][operand] = layout
        directives += _directives(target, level, parts, at)
    return Optimizations(tuple(map(tuple, formats)), tuple(directives), units)


def _position(name: str, known: Sequence[str], what: str, where: str) -> int:
    if name not in known:
        raise InputError(f"{where}: {name} is no {what}; there are {', '.join(known)}.{did_you_mean(name, known)}")
    return known.index(name)


def _formats(target: Dictionary[str, Any], parts: Parts, where: str) -> dict[int, Format]:
    found = {}
    representation = object_if_any(target, "representation_format", where)
    check_known(representation, ("data_spaces",), f"{where}: representation_format")
    for space in list_of({"data_spaces": [], **representation}, "data_spaces", f"{where}: representation_format"):
        name = text_of(space, "name", f"{where}: data_spaces")
        operand = _position(name, parts.names.operands, "data space", f"{where}: data_spaces")
        at = f"{where}: {name}"
        check_known(space, SPACE, at)
        order = space.get("rank_application_order", ORDER)
        if order != ORDER:
            raise InputError(f"{at}: rank_application_order is {show(order)}; only {ORDER} is supported.")
        ranks = [rank for each in list_of(space, "ranks", at) for rank in _ranks(each, parts.names, f"{at}: ranks")]
        if not ranks:
            raise InputError(f"{at}: ranks is empty; name a format, one of {', '.join(KINDS)}.")
        layout = Format(tuple(reversed(ranks)))
        if layout.locates:  # else words are stored as they are
            found[operand] = layout
    return found


def _ranks(data: Any, names: Names, where: str) -> list[Rank]:
    """The rank of one entry, outermost first; CSR is short for two."""
    given = text_of(data, "format", where).upper()
    if given not in SPELLED:
        known = ", ".join(SPELLED)
        raise InputError(f"{where}: format {given} is not one of {known}.{did_you_mean(given, SPELLED)}")
    check_known(data, RANK, where)
    lists = list_of({"flattened_rankIDs": [], **data}, "flattened_rankIDs", where)
    if len(lists) > 1:
        raise InputError(f"{where}: flattened_rankIDs has {len(lists)} lists; one is supported.")
    flattened = frozenset(
        _position(dimension, names.dimensions, "dimension", f"{where}: flattened_rankIDs")
        for dimension in (words_if_any({"flattened_rankIDs": lists[0]}, "flattened_rankIDs", where) if lists else ())
    )
    bits = [
        amount(data[key], f"{where}: {key}") if key in data else None
        for key in ("metadata_word_bits", "payload_word_bits")
    ]
    kinds = ("UOP", "CP") if given == "CSR" else (SPELLED[given],)
    return [Rank(kind, flattened if lists else None, *bits) for kind in kinds]


def _directives(target: Dictionary[str, Any], level: int, parts: Parts, where: str) -> list[Directive]:
    found = []
    for entry in list_of({"action_optimization": [], **target}, "action_optimization", where):
        at = f"{where}: action_optimization"
        kind = text_of(entry, "type", at)
        check_known(entry, ACTION, at)
        if kind not in (GATING, SKIPPING):
            hint = did_you_mean(kind, (GATING, SKIPPING))
            raise InputError(f"{at}: type {kind} is not supported; it must be {GATING} or {SKIPPING}.{hint}")
        options = tuple(_option(option, level, parts, at) for option in list_of(entry, "options", at))
        if not options:
            raise InputError(f"{at}: options is empty; name a target and what it is conditioned on.")
        found.append(Directive(kind, level, options))
    return found


def _option(data: Any, level: int, parts: Parts, where: str) -> Option:
    operands = parts.names.operands
    target = _position(text_of(data, "target", where), operands, "data space", f"{where}: target")
    check_known(data, OPTION, where)
    named = words_if_any(data, "condition_on", where)
    leaders = tuple(_position(name, operands, "data space", f"{where}: condition_on") for name in named)
    if not leaders:
        raise InputError(f"{where}: target {operands[target]} has no condition_on; name the data spaces it follows.")
    if target in leaders:
        raise InputError(f"{where}: {operands[target]} cannot be conditioned on itself.")
    if keeping_level(level, target, parts.kept) is None:
        raise InputError(f"{where}: no level from there outwards keeps {operands[target]}.")
    return Option(target, leaders)


def _units(target: Dictionary[str, Any], where: str) -> dict[str, bool]:
    """The options of the units, as an object or as a list of objects."""
    given = target.get("compute_optimization", {})
    entries = given if isinstance(given, list) else [given]
    found = {}
    for entry in entries:
        holder = object_of({"compute_optimization": entry}, "compute_optimization", where)
        check_known(holder, COMPUTE, f"{where}: compute_optimization")
        for key, value in holder.items():
            found[COMPUTE[key]] = flag(value, f"{where}: {key}")
    return found
