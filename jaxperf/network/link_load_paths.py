"""Which links of an oversubscribed fat tree a collective loads: the matrix that `link_load` shares out.

Host code: the way of every message is structure. Links are the ports of the nodes, up and down, and the uplinks of
each leaf, up and down; a leaf's uplinks are pooled, or one by one where ECMP has hashed every flow to one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hwspecs.errors import InputError

Flow = tuple[int, int]  # (node that sends, node that receives)


@dataclass(frozen=True)
class FatTree:
    """`nodes` in leaves of `leaf_nodes`, ports of `port` [byte/s], uplinks together `leaf_nodes` / `oversubscription`
    ports wide, divided over `uplinks` links a leaf (1 where they are pooled)."""

    nodes: int
    leaf_nodes: int
    port: float
    oversubscription: float = 1.0
    uplinks: int = 1

    def __post_init__(self) -> None:
        if min(self.nodes, self.leaf_nodes, self.uplinks) < 1 or min(self.port, self.oversubscription) <= 0:
            raise InputError("A fat tree needs at least one node, leaf and uplink, and positive rates.")

    @property
    def leaves(self) -> int:
        """Leaf switches [1]."""
        return -(-self.nodes // self.leaf_nodes)

    def capacities(self) -> np.ndarray:
        """Capacity of every link: ports up, ports down, uplinks up, uplinks down [byte/s]."""
        uplink = self.leaf_nodes * self.port / self.oversubscription / self.uplinks
        return np.r_[np.full(2 * self.nodes, self.port), np.full(2 * self.leaves * self.uplinks, uplink)]

    def way(self, flow: Flow, uplink: int = 0) -> list[int]:
        """Indices of the links a flow passes; `uplink` is the one it is hashed to, the same on both leaves.

        **Raises:** `InputError` for a node or an uplink that there is not.
        """
        source, target = flow
        for node in flow:
            if not 0 <= node < self.nodes:
                raise InputError(f"Node {node} is not one of the {self.nodes} nodes, 0 to {self.nodes - 1}.")
        if not 0 <= uplink < self.uplinks:
            raise InputError(f"Uplink {uplink} is not one of the {self.uplinks} of a leaf.")
        links = [source, self.nodes + target]
        first, last = source // self.leaf_nodes, target // self.leaf_nodes
        if first != last:
            base = 2 * self.nodes
            links += [base + first * self.uplinks + uplink, base + (self.leaves + last) * self.uplinks + uplink]
        return links


def ring_flows(nodes: Sequence[int]) -> dict[Flow, float]:
    """A ring in the order of `nodes`: at rate 1 every node sends 1 byte/s to the next."""
    if len(nodes) < 2:
        return {}
    return dict.fromkeys(zip(nodes, [*nodes[1:], nodes[0]], strict=True), 1.0)


def all_to_all_flows(nodes: Sequence[int]) -> dict[Flow, float]:
    """An all-to-all: at rate 1 every node sends 1 byte/s, evenly to the others."""
    return {(a, b): 1.0 / (len(nodes) - 1) for a in nodes for b in nodes if a != b}


def incast_flows(sources: Sequence[int], target: int) -> dict[Flow, float]:
    """All `sources` send to one node at once, each 1 byte/s at rate 1."""
    return {(source, target): 1.0 for source in sources if source != target}


def load_matrix(
    tree: FatTree, sessions: Sequence[Mapping[Flow, float]], uplinks: Sequence[Mapping[Flow, int]] | None = None
) -> np.ndarray:
    """`load[l, c]`: bytes on link l per byte of session c.

    **Arguments:** `uplinks`: for each session, the uplink every flow is hashed to; the first where none is given.
    """
    load = np.zeros((tree.capacities().size, len(sessions)))
    for column, flows in enumerate(sessions):
        hashed = uplinks[column] if uplinks is not None else {}
        for flow, share in flows.items():
            load[tree.way(flow, hashed.get(flow, 0)), column] += share
    return load
