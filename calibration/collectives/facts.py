"""What the law needs to know of devices, one row of arrays a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

import hwspecs
from jaxperf.network.nccl_constants import VERSIONS, NcclTier, nccl_tier, tier_of

STAND_IN_TIER = "ampere"  # constants of NCCL's model for devices that it does not run on
HOST_LINKS = {"volta": "pcie3-x16", "ampere": "pcie4-x16", "hopper": "pcie5-x16", "blackwell": "pcie5-x16"}


@dataclass(frozen=True)
class Facts:
    """Rates of a device, one direction [byte/s], latencies of a step [s], ranks of a full node [1]; `host_link`: over
    which NVLink pairs meet; `pcie`: 1 where a node is joined by PCIe; `generation`: architecture without its variant;
    `stand_in`: the tier is another generation's. Each [D], `tier` [D, versions of NCCL's model]."""

    link: np.ndarray
    host_link: np.ndarray
    link_latency: np.ndarray
    network: np.ndarray
    network_latency: np.ndarray
    node_size: np.ndarray
    pcie: np.ndarray
    generation: np.ndarray
    stand_in: np.ndarray
    tier: NcclTier


def load_facts(names: Sequence[str], directories: Sequence[str | Path] = ()) -> Facts:
    """The facts of named devices in the order given; "" stands for a device that is not known and has rates of 1."""
    each = [_facts(name, directories) for name in names]
    columns = {name: np.array([one[name] for one in each]) for name in each[0] if name != "tier"}
    tiers = [[nccl_tier(one["tier"], version) for version in VERSIONS] for one in each]
    stacked = [jax.tree.map(lambda *leaves: np.stack(leaves), *of_device) for of_device in tiers]
    tier = jax.tree.map(lambda *leaves: np.stack(leaves), *stacked)
    return Facts(**columns, tier=tier)


def _facts(name: str, directories: Sequence[str | Path]) -> dict:
    if not name:
        rates = dict.fromkeys(("link", "host_link", "network", "node_size"), 1.0)
        rest = {"link_latency": 0.0, "network_latency": 0.0, "pcie": 0.0, "generation": "", "stand_in": False}
        return {**rates, **rest, "tier": STAND_IN_TIER}
    spec = hwspecs.load(name, directories)
    node, known = spec.node, tier_of(spec.architecture)
    tier = known or STAND_IN_TIER
    return {
        "link": node.link_bandwidth.si,
        "host_link": hwspecs.load_link(HOST_LINKS[tier]).bandwidth.si,
        "link_latency": node.link_latency.si,
        "network": node.network_bandwidth.si,
        "network_latency": node.network_latency.si,
        "node_size": node.size.si,
        "pcie": 1.0 if node.topology == "pcie" else 0.0,
        "generation": spec.architecture.partition("-")[0],
        "stand_in": known is None,
        "tier": tier,
    }
