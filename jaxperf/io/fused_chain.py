"""Chains of nests as people write them: `attention:heads=8,queries=1024,dim=64`, or a YAML file of Einsums."""

from __future__ import annotations

import re
from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.timeloop.fields import check_known, count, list_of, object_of, text_of
from jaxperf.io.timeloop.yaml_case import load_yaml
from jaxperf.loopnest.fused.chain import STEPS, Einsum, build_chain
from jaxperf.loopnest.fused.shapes import SOFTMAX, Built, attention, mlp
from jaxperf.models.checks import show

ATTENTION = ("heads", "kv_heads", "queries", "keys", "dim", "batch", "softmax")
MLP = ("tokens", "hidden", "inner")
KINDS = {"attention": ATTENTION, "mlp": MLP}
_ARRAY = re.compile(r"([A-Za-z_]\w*)\[([\w\s,]*)\]")


def read_chain(given: str) -> Built:
    """A chain by its kind and sizes, or from a YAML file.

    **Raises:** `InputError` naming the option or the file for an unknown kind or size, one that is missing, or what is
    no Einsum.
    """
    kind, colon, text = given.partition(":")
    if kind in KINDS and colon:
        sizes = _sizes(text, KINDS[kind], f"--chain: {kind}")
        return _attention(sizes) if kind == "attention" else mlp(*(_size(sizes, name, kind) for name in MLP))
    if not given.lower().endswith((".yaml", ".yml")):
        known = ", ".join(f"{name}:{each[0]}=..." for name, each in KINDS.items())
        hint = "" if kind in KINDS else did_you_mean(kind, KINDS)
        raise InputError(f"--chain: '{given}' is neither {known} nor a .yaml file.{hint}")
    return read_einsums(load_yaml(Path(given), "a chain has bounds and chain"), given)


def _sizes(text: str, allowed: Sequence[str], where: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if name not in allowed:
            raise InputError(f"{where} has no '{name}'; there are {', '.join(allowed)}.{did_you_mean(name, allowed)}")
        if not sign or name in found:
            raise InputError(f"{where}: {name} must be given once, as {name}=64.")
        found[name] = count(value, f"{where}: {name}")
    return found


def _size(sizes: Dictionary[str, float], name: str, kind: str) -> float:
    if name not in sizes:
        raise InputError(f"--chain: {kind}: {name} is missing; write {name}=64.")
    return sizes[name]


def _attention(sizes: Dictionary[str, float]) -> Built:
    heads, queries, dim = (_size(sizes, name, "attention") for name in ("heads", "queries", "dim"))
    kv_heads = sizes.get("kv_heads", heads)
    if heads % kv_heads:
        raise InputError(f"--chain: attention: kv_heads is {kv_heads:g}; it must divide the {heads:g} heads.")
    keys = sizes.get("keys", queries)
    return attention(queries, keys, dim, heads, kv_heads, sizes.get("batch", 1.0), sizes.get("softmax", SOFTMAX))


def read_einsums(data: Dictionary[str, Any], source: str) -> Built:
    """A chain from `bounds` by rank and `chain`, a list of `Z[M,N] = A[M,K] * B[K,N]`, each alone or as the `einsum`
    of an object with `operations` of a point. Raises `InputError` naming file and stage."""
    check_known(data, ("bounds", "chain"), source)
    given = object_of(data, "bounds", source)
    bounds = {str(rank): count(value, f"{source}: bounds: {rank}") for rank, value in given.items()}
    stages = enumerate(list_of(data, "chain", source), 1)
    einsums = [_einsum(each, f"{source}: chain, stage {number}") for number, each in stages]
    try:
        built = build_chain(einsums, bounds)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    used = [rank for einsum in einsums for ranks in einsum.ranks.values() for rank in ranks]
    for rank in bounds:
        if rank not in used:
            raise InputError(f"{source}: bounds: '{rank}' is no rank of the chain.{did_you_mean(rank, used)}")
    return built


def _einsum(stage: Any, where: str) -> Einsum:
    operations = 1.0
    if isinstance(stage, Dictionary):
        check_known(stage, ("einsum", "operations"), where)
        operations = count(stage.get("operations", 1), f"{where}: operations")
        stage = text_of(stage, "einsum", where)
    sides = stage.split("=") if isinstance(stage, str) else ()
    if len(sides) != 2:
        raise InputError(f"{where} is {show(stage)}; it must read like Z[M,N] = A[M,K] * B[K,N].")
    (output, ranks), *inputs = (_array(text, where) for text in (sides[0], *sides[1].split("*")))
    arrays = {output: ranks, **dict(inputs)}
    if len(arrays) <= len(inputs):
        raise InputError(f"{where}: an array stands there twice; every array of a stage has a name of its own.")
    return Einsum(output, tuple(name for name, _ in inputs), arrays, operations)


def _array(text: str, where: str) -> tuple[str, tuple[str, ...]]:
    match = _ARRAY.fullmatch(text.strip())
    ranks = tuple(rank.strip() for rank in match[2].split(",")) if match else ()
    if match is None or not all(ranks) or len(set(ranks)) < len(ranks) or STEPS in ranks:
        raise InputError(f"{where}: '{text.strip()}' must read like A[M,K], each rank once and none called {STEPS}.")
    return match[1], ranks
