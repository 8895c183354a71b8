"""A table of collectives on networks given as axes or links in, closed forms out: nothing is fitted to a measurement.

On axes the faster of one after the other and all at once; on a fat tree rows that run `together` share its links.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.network.link_load import shared_time
from jaxperf.network.link_load_paths import Flow, all_to_all_flows, incast_flows, load_matrix, ring_flows
from jaxperf.network.topology import Topology
from jaxperf.network.topology_collectives import (
    bisection_all_to_all,
    bucket_all_gather,
    bucket_all_reduce,
    bucket_reduce_scatter,
    rotated_all_reduce,
    rotated_reduce_scatter,
)
from jaxperf.network.topology_words import Network, Tree, Twisted, parse_network
from jaxperf.network.twisted_torus import twisted_all_to_all

REQUIRED = ("op", "bytes", "network")
OPTIONAL = ("nodes", "together")
NUMBERS = ("predicted_us", "alone_us", "slowdown", "ranks")
ADDED = (*NUMBERS, "algorithm", "reason")  # columns, in their order
MICRO = 1e6
LARGEST = 1e18  # bytes
ON_AXES: Mapping[str, Mapping[str, Callable[[Topology, Scalar], Scalar]]] = {
    "all_reduce": {"axis after axis": bucket_all_reduce, "all axes at once": rotated_all_reduce},
    "reduce_scatter": {"axis after axis": bucket_reduce_scatter, "all axes at once": rotated_reduce_scatter},
    "all_gather": {"axis after axis": bucket_all_gather, "all axes at once": rotated_reduce_scatter},
    "all_to_all": {"direct": bisection_all_to_all},
}
PASSES = {"all_reduce": 2.0, "reduce_scatter": 1.0, "all_gather": 1.0}  # of a ring over the nodes of a tree
OPERATIONS = (*ON_AXES, "incast")


@dataclass(frozen=True)
class Asked:
    """A row: what is done with `size` bytes on a network of which `told` had to be assumed; `nodes` as stated."""

    op: str
    size: float
    network: Network
    told: str
    nodes: str


def predict_topology(columns: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Predict every row of a table with the columns `REQUIRED`, `nodes` of a fat tree and `together`.

    **Returns:** `NUMBERS` (`predicted_us` beside the rows of the same `together`, `alone_us` by itself), `algorithm`
    and `reason`, of rows without a prediction why, else what was assumed.
    **Raises:** `InputError` if a required column is missing.
    """
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        hint = did_you_mean(missing[0], columns)
        raise InputError(f"The table has no column {', '.join(missing)}; needed: {', '.join(REQUIRED)}.{hint}")
    rows = len(columns["op"])
    found: dict[str, list[Any]] = {name: [math.nan] * rows for name in NUMBERS}
    found |= {name: [""] * rows for name in ("algorithm", "reason")}
    groups: dict[str, list[tuple[int, Asked]]] = {}
    for row in range(rows):
        try:
            asked = _asked({name: cells[row] for name, cells in columns.items()})
            label = _together(columns, row) or f"row {row}"
            if isinstance(asked.network, Tree):
                groups.setdefault(label, []).append((row, asked))
            elif _together(columns, row):
                raise InputError("together: only rows on a fat-tree share links; leave it empty on axes.")
            else:
                _put(found, row, _on_axes(asked), asked.told)
        except InputError as error:
            found["reason"][row] = str(error)
    for label, group in groups.items():
        _share(found, label, group)
    return found


def _put(found: dict[str, list[Any]], row: int, answer: tuple[float, float, int, str], told: str) -> None:
    time, alone, ranks, algorithm = answer
    numbers = (MICRO * time, MICRO * alone, time / alone if alone > 0.0 else 1.0, ranks)
    for name, value in zip((*NUMBERS, "algorithm"), (*numbers, algorithm), strict=True):
        found[name][row] = value
    found["reason"][row] = "; ".join(filter(None, ("closed form, fitted to nothing", told)))


def _asked(row: Mapping[str, Any]) -> Asked:
    op = str(row["op"] or "").strip().lower().replace("-", "_")
    if op not in OPERATIONS:
        raise InputError(f"op: {op!r} is not one of {', '.join(OPERATIONS)}.{did_you_mean(op, OPERATIONS)}")
    try:
        size = float(row["bytes"])
    except (TypeError, ValueError):
        size = math.nan
    if not 0.0 <= size <= LARGEST:
        raise InputError(f"bytes: {row['bytes']!r} must be a number from 0 to {LARGEST:g}.")
    network, told = parse_network(str(row["network"] or ""))
    return Asked(op, size, network, told, "" if row.get("nodes") is None else str(row["nodes"]).strip())


def _together(columns: Mapping[str, Sequence[Any]], row: int) -> str:
    cell = columns["together"][row] if "together" in columns else None
    return "" if cell is None or cell != cell else str(cell).strip()


def _on_axes(asked: Asked) -> tuple[float, float, int, str]:
    """(time, the same alone [s], ranks, algorithm) on axes or a twisted torus."""
    size = as_float(asked.size)
    if isinstance(asked.network, Twisted):
        if asked.op != "all_to_all":
            raise InputError(f"op: {asked.op} of a twisted torus is not modelled; its all_to_all is.")
        twisted = asked.network
        time = float(twisted_all_to_all(twisted.sizes, as_float(twisted.bandwidth), as_float(twisted.latency), size))
        return time, time, math.prod(twisted.sizes), "shortest ways"
    if asked.op not in ON_AXES or isinstance(asked.network, Tree):
        raise InputError(f"op: {asked.op} is modelled on a fat-tree only.")
    times = {name: float(run(asked.network, size)) for name, run in ON_AXES[asked.op].items()}
    best = min(times, key=times.__getitem__)
    return times[best], times[best], math.prod(int(axis.size) for axis in asked.network), best


def _share(found: dict[str, list[Any]], label: str, group: Sequence[tuple[int, Asked]]) -> None:
    """The rows that run together on one tree."""
    trees = {asked.network for _, asked in group}
    sessions, failed = [], False
    for row, asked in group:
        try:
            if len(trees) > 1:
                raise InputError(f"together: the rows of '{label}' are on different networks.")
            sessions.append((row, asked, *_session(asked)))
        except InputError as error:
            found["reason"][row], failed = str(error), True
    if failed or not sessions:
        for row, *_ in sessions:
            found["reason"][row] = f"together: another row of '{label}' has no prediction."
        return
    network = sessions[0][1].network
    assert isinstance(network, Tree)
    load = load_matrix(network.tree, [flows for _, _, flows, *_ in sessions])
    sizes, latencies = (jnp.asarray(np.array(each, float)) for each in zip(*(s[3:5] for s in sessions), strict=True))
    shared = shared_time(jnp.asarray(load), jnp.asarray(network.tree.capacities()), sizes, latencies)
    for place, (row, asked, flows, *_, name) in enumerate(sessions):
        ranks = len({node for flow in flows for node in flow})
        _put(found, row, (float(shared.time[place]), float(shared.alone[place]), ranks, name), asked.told)


def _session(asked: Asked) -> tuple[Mapping[Flow, float], float, float, str]:
    """(flows at rate 1, bytes that a node sends, latency of its steps [s], algorithm) of a row on a tree."""
    assert isinstance(asked.network, Tree)
    alpha, every = asked.network.latency, range(asked.network.tree.nodes)
    sources, arrow, target = asked.nodes.partition(">")
    nodes = _nodes(sources, len(every)) if sources.strip() else list(every)
    if asked.op == "incast":
        if not arrow or len(to := _nodes(target, len(every))) != 1:
            raise InputError("nodes: an incast says who sends to whom, such as 1-3 > 0.")
        return incast_flows(nodes, to[0]), asked.size, alpha, "direct"
    if arrow:
        raise InputError(f"nodes: {asked.nodes!r} has a target, which only an incast has.")
    if len(nodes) < 2:
        raise InputError("nodes: a collective needs two nodes at least.")
    share = (len(nodes) - 1) / len(nodes) * asked.size
    if asked.op == "all_to_all":
        return all_to_all_flows(nodes), share, alpha, "direct"
    passes = PASSES[asked.op]
    return ring_flows(nodes), passes * share, passes * (len(nodes) - 1) * alpha, "ring"


def _nodes(text: str, count: int) -> list[int]:
    """`0-3,6` as nodes. Raises `InputError` for a word that is none of the `count` there are, or one given twice."""
    found: list[int] = []
    for piece in text.replace(" ", "").split(","):
        first, _, last = piece.partition("-")
        if not (first.isascii() and first.isdigit() and (last or first).isascii() and (last or first).isdigit()):
            raise InputError(f"nodes: {text.strip()!r} is not of the form 0-3,6.")
        if max(int(first), int(last or first)) >= count:
            raise InputError(f"nodes: {piece} is none of the nodes 0 to {count - 1}.")
        found += range(int(first), int(last or first) + 1)
    if len(set(found)) != len(found) or not found:
        raise InputError(f"nodes: {text.strip()!r} names a node twice, or none.")
    return found
