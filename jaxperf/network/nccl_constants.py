"""The published constants of NCCL's own cost model (NVIDIA/nccl, src/graph/tuning.cc at 5067397, and topo.h).

Latencies are in microseconds and rates in GB/s where they are copied, and in SI units everywhere else.
"""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.numerics import as_float

MICRO = 1e-6
GIGA = 1e9
PROTOCOLS = ("ll", "ll128", "simple")

# Per protocol [us]: what every call pays, then each step over NVLink, over PCIe and between nodes. Those of trees with
# the Simple protocol are in the tier, for they are of a version.
BASE_LATENCY = {"tree": (6.8, 14.0), "ring": (6.6, 14.0, 8.4)}
NVLINK_LATENCY = {"tree": (0.6, 1.25), "ring": (0.6, 1.9, 3.4)}
PCIE_LATENCY = {"tree": (1.0, 1.9), "ring": (1.0, 2.5, 5.7)}
NETWORK_LATENCY = {"tree": (5.0, 8.5), "ring": (2.7, 4.0, 14.0)}
LONE_LATENCY = (5.0, 8.5, 14.0)  # of a ring's step between nodes of one rank, which nothing hides [us]
# Least time of a step inside a node while the ring also crosses nodes, over that of posting a message.
NETWORK_OVERHEAD = (1.0, 1.0, 3.0)
NVLS_LATENCY = 25.0

# Share of its rate that a tree all-reduce reaches at 64 B, 128 B, ... 512 MB, per protocol; 1 above.
TREE_SHARE = (
    (1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5)
    + (0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0),
    (1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6)
    + (0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0, 1.0),
    (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5)
    + (0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
)


class NcclTier(eqx.Module):
    """What NCCL assumes of one generation of GPUs; the last axis is one node, two nodes, more.

    `ll`: most of the LL protocol [byte/s]; `ring_ll128`, `tree_ll128`, `tree`: most of a channel [byte/s];
    `nvls_efficiency`: share of its channels that in-switch reduction reaches, 0 where the switch cannot; `plateau`:
    factor on the latency of a ring with large chunks between nodes; `link_share`, `nvls_share`: what the channels of
    rings and of in-switch reduction carry over the datasheet's rate of the links; `channels` of rings in a full node;
    `post`: what its hosts need to post a message to the network [s]. In one of `VERSIONS`, `tree_simple`: what a tree
    with the Simple protocol pays for the call, for a step inside a node and between nodes [s]; `ll_between`: share of
    the bus that a ring with LL has between nodes [1]; `more_crossings`: its steps between nodes beyond 2 (N - 1) [1].
    """

    ll: Float[Array, "*batch scales"] = eqx.field(converter=as_float)
    ring_ll128: Float[Array, "*batch scales"] = eqx.field(converter=as_float)
    tree_ll128: Float[Array, "*batch scales"] = eqx.field(converter=as_float)
    tree: Float[Array, "*batch scales"] = eqx.field(converter=as_float)
    nvls_efficiency: Float[Array, "*batch"] = eqx.field(converter=as_float)
    plateau: Float[Array, "*batch"] = eqx.field(converter=as_float)
    link_share: Float[Array, "*batch"] = eqx.field(converter=as_float)
    nvls_share: Float[Array, "*batch"] = eqx.field(converter=as_float)
    channels: Float[Array, "*batch"] = eqx.field(converter=as_float)
    post: Float[Array, "*batch"] = eqx.field(converter=as_float)
    tree_simple: Float[Array, "*batch latencies"] = eqx.field(converter=as_float)
    ll_between: Float[Array, "*batch"] = eqx.field(converter=as_float)
    more_crossings: Float[Array, "*batch"] = eqx.field(converter=as_float)


# Rates in GB/s. Between nodes the LL rate depends on the host's processor: AMD's from Ampere on, Intel's before.
# Channels: NCCL counts a link as 20 GB/s of NVLink's 25 (40.1 of 50 on Blackwell) and fills them with channels of whole
# rates; on eight H100 twelve rings of 30 GB/s, and in-switch channels of 320 GB/s together, of 450 (the graph dump of
# NVIDIA/nccl issue 1197). Blackwell's shares are taken as Hopper's. Its channels are those of NCCL's search: 18 links
# hold eight of 90 GB/s, where Hopper's hold six of 60, and each is divided in two (`sm100SpeedArrayIntra` and
# `ncclTopoDupChannels`, search.cc). So its trees over many nodes, of 24 GB/s a channel, fill eight ports of 48.
_TIERS = {
    "volta": ((39.0, 39.0, 20.4), (20.0,) * 3, (20.0,) * 3, (26.5, 18.5, 10.0), 0.0, 1.9, 0.8, 0.0, 12.0),
    "ampere": ((87.7, 22.5, 19.0), (20.0,) * 3, (20.0,) * 3, (24.0, 23.6, 17.8), 0.0, 1.4, 0.8, 0.0, 12.0),
    "hopper": ((141.0, 45.0, 35.0), (36.7,) * 3, (36.7, 36.7, 29.0), (38.7, 41.4, 36.0), 0.85, 1.4, 0.8, 0.711, 12.0),
    "blackwell": (
        *((282.0, 90.0, 70.0), (40.0,) * 3, (55.6, 31.67, 20.0), (70.0, 42.8, 24.0)),
        *(0.74, 1.4, 0.8, 0.711, 16.0),
    ),
}
NVLS_CHANNELS = 16.0
# What posting a message takes (`getNetOverhead`): 1 us with Intel's hosts, 2 us with AMD's, those of DGX A100.
_POST = dict.fromkeys(_TIERS, 1.0) | {"ampere": 2.0}
# The model of today, at 5067397, and that of until 2.20, at b647562 (2.20.3): latencies of trees with Simple [us],
# share of rings with LL between nodes, further crossings. In one node that share was less too, which is left out.
NEW, OLD = VERSIONS = ("new", "until 2.20")
_OF_VERSION = {NEW: ((8.4, 4.0, 14.0), 0.5, 0.0), OLD: ((0.0, 28.0, 28.0), 0.25, 2.0)}
TIERS = tuple(_TIERS)
# An architecture of hwspecs, without its variant -> the tier whose constants NCCL uses for its compute capability.
_TIER_OF = {"pascal": "volta", "turing": "volta", "ada": "ampere"} | {name: name for name in TIERS}


def nccl_tier(name: str, version: str = NEW) -> NcclTier:
    """The constants of a generation, one of `TIERS`, in one of `VERSIONS`.

    **Raises:** `InputError` for another generation.
    """
    if name not in _TIERS:
        raise InputError(f"'{name}' is no generation of NCCL's cost model.{did_you_mean(name, TIERS)}")
    rates, shares = _TIERS[name][:4], _TIERS[name][4:]
    trees, ll_between, more_crossings = _OF_VERSION[version]
    return NcclTier(
        *([GIGA * value for value in rate] for rate in rates),
        *shares,
        post=MICRO * _POST[name],
        tree_simple=[MICRO * value for value in trees],
        ll_between=ll_between,
        more_crossings=more_crossings,
    )


def tier_of(architecture: str) -> str | None:
    """The tier of an architecture of hwspecs such as "ampere-ga100"; None where NCCL does not run on it."""
    return _TIER_OF.get(architecture.partition("-")[0])
