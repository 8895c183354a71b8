"""Rows of measured or wanted collectives as points of the law, and as names and coordinates of the correction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import jax
import numpy as np

import hwspecs
from calibration.collectives.facts import Facts, load_facts
from calibration.collectives.laws import OPS, RUNNERS, WAYS, CollectivePoint, LawTime, laws
from calibration.collectives.names import NO_NAME, in_pairs, is_exchange, level_names, way_names
from calibration.collectives.versions import model_versions
from calibration.datasets.groups import grouped
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text, as_text, repeated
from hwspecs.changed import COLLECTIVES_WITH, changed_facts
from jaxperf.core.numerics import as_float, ceil_div
from jaxperf.network.expert_exchange import FP8_BYTES, expected_hits
from jaxperf.network.nccl import ANY_WAY
from jaxperf.network.nccl_constants import NcclTier

Tree = TypeVar("Tree")
LIBRARIES = ("nccl", "oneccl", "rccl", "hccl", "xccl", "mpi", "")  # kernels that are a collective library's
BYTES_OF_A_RANK = ("oneccl",)  # libraries whose benchmark counts of an all-gather what one rank gives
REDUCED_IN_SWITCH = ("bf16", "fp16", "fp32", "")  # formats that NVLS adds; one that is not stated counts as such
LEAST_NVLS_RANKS = 5.0  # of a node: groups of four run at the rate of rings, also in formats that NVLS adds
DEFAULT_SMS = 20.0  # of DeepEP's normal kernels
# An element with its share of the scales; 2 in other formats.
TOKEN_BYTES = {"nvfp4": 0.5 + 1.0 / 16.0, "fp8": FP8_BYTES, "fp8_block": FP8_BYTES, "fp32": 4.0}
DISPATCH = "moe_a2a_dispatch"
NO_OP = -1.0
CHANGED = " (changed)"  # behind the name of a shipped device that a user gave other links: nothing was measured on it
IDENTITY = ("device", "framework", "version", "kernel", "dtype")
OF_GROUP = ("num_gpus", "gpus_per_node", "sms", "hidden", "topk")
NO_OPERATION = f"the operation is none of {', '.join(OPS)}"
# Why a row has no prediction; the first that holds.
PROBLEMS = (
    "",
    "the device is unknown or has no specification",
    NO_OPERATION,
    "num_gpus is not a whole number of at least 2",
    "nothing is sent: bytes, and of an exchange of tokens also tokens, hidden and topk, must be above zero",
    "topk is above experts",
)


@dataclass(frozen=True)
class Network:
    """How nodes reach their network, by system: `port_pairs` of those with one port a node, and those with
    `static_routes`, as `CollectivePoint` says; each rank of others has a port beside it and no route conflicts."""

    port_pairs: Mapping[str, float] = field(default_factory=dict)
    static_routes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Points:
    """`numbers` of the law by field of `CollectivePoint` [R] and `tier`, leaves [R]; `coordinates` by name [R]: binary
    logarithms; `group` [R]: each row's group of rows that are alike but for size and tokens, and that the law runs in
    the same way; `names` of the groups by level [G]; `device` of the groups [G]; `stand_in` [G]: NCCL's constants are
    those of another generation; `problem` [R]: place in `PROBLEMS`, 0 for none; `law`: at every row, on the host."""

    numbers: Mapping[str, np.ndarray]
    tier: NcclTier
    coordinates: Mapping[str, np.ndarray]
    group: np.ndarray
    names: Mapping[str, np.ndarray]
    device: np.ndarray
    stand_in: np.ndarray
    problem: np.ndarray
    law: LawTime

    def __len__(self) -> int:
        return len(self.group)

    @property
    def is_exchange(self) -> np.ndarray:
        """Whether tokens are exchanged with experts [R]."""
        return is_exchange(self.numbers["runner"])

    @property
    def time(self) -> np.ndarray:
        """By the law [R] [s]."""
        return np.asarray(self.law.time)

    def take(self, rows: np.ndarray) -> Points:
        """Some of the rows."""
        numbers = {name: values[rows] for name, values in self.numbers.items()}
        coordinates = {name: values[rows] for name, values in self.coordinates.items()}
        return replace(
            self,
            numbers=numbers,
            tier=_rows(self.tier, rows),
            coordinates=coordinates,
            group=self.group[rows],
            problem=self.problem[rows],
            law=_rows(self.law, rows),
        )

    def joined(self, network: Network) -> Points:
        """The same rows as the nodes of their systems reach the network, the groups split by the law's way."""
        names, which = np.unique(self.named("system"), return_inverse=True)
        told = {
            "port_pairs": np.array([network.port_pairs.get(name, 0.0) for name in names.tolist()])[which],
            "static_routes": np.isin(names, network.static_routes).astype(float)[which],
        }
        if all((told[name] == self.numbers[name]).all() for name in told):
            return self
        numbers = {**self.numbers, **told}
        return replace(self, numbers=numbers, law=_law(numbers, self.tier))._split_by_way()

    def times(self, factor: np.ndarray) -> Points:
        """The same rows with so many times the bytes and tokens [R], the groups split by the law's way."""
        numbers = {**self.numbers, **{name: factor * self.numbers[name] for name in ("size", "tokens")}}
        law = _law(numbers, self.tier)
        return replace(self, numbers=numbers, coordinates=_coordinates(numbers), law=law)._split_by_way()

    def run_by(self, way: np.ndarray) -> Points:
        """The same rows with a library's all-reduces by one way [R], a place in `nccl.WAYS` or `nccl.ANY_WAY`, the
        groups split by it; the time is infinite where it cannot be taken."""
        numbers = {**self.numbers, "way": way}
        return replace(self, numbers=numbers, law=_law(numbers, self.tier))._split_by_way()

    def _split_by_way(self) -> Points:
        """The groups split by the way that the law runs an all-reduce."""
        way = np.where(self.numbers["op"] == OPS.index("all_reduce"), np.array(WAYS)[self.law.kind], NO_NAME)
        ways, code = np.unique(way, return_inverse=True)
        (old, of), group = np.unique(np.stack([self.group, code]), axis=1, return_inverse=True)
        names = {level: values[old] for level, values in self.names.items()}
        return replace(
            self,
            group=group.ravel(),
            names={**names, **way_names(names, ways[of])},
            device=self.device[old],
            stand_in=self.stand_in[old],
        )

    def named(self, level: str) -> np.ndarray:
        """The name of every row at a level [R]."""
        return self.names[level].astype(str)[self.group]


def points_of(table: KernelTable, directories: Sequence[str | Path] = ()) -> Points:
    """The points of a table of collectives."""
    columns = {name: as_text(getattr(table, name)) for name in IDENTITY}
    columns |= {name: as_text(table.text.get(name, repeated("", len(table)))) for name in ("op", "topology", "wire")}
    groups = grouped([*columns.values(), *(_as_text(table.shape[name]) for name in OF_GROUP)])
    first, which = groups.first, groups.which
    text = {name: np.asarray(column[first]).astype(str) for name, column in columns.items()}
    text["op"] = np.char.replace(np.char.lower(text["op"]), "-", "_")
    devices, at = np.unique(text["device"], return_inverse=True)
    facts = load_facts(devices.tolist(), directories)
    shared = _of_groups(text, {name: table.shape[name][first] for name in OF_GROUP}, facts, at)
    numbers = {name: values[which] for name, values in shared.items()}
    parts = _parts(shared, text["kernel"])[which]
    numbers |= {"size": parts * table.shape["bytes"], "tokens": table.shape["tokens"]}
    numbers |= {name: np.zeros(len(table)) for name in ("port_pairs", "static_routes")}
    numbers["way"] = np.full(len(table), ANY_WAY)
    version = model_versions(text["framework"], text["version"])
    tier = jax.tree.map(lambda leaf: leaf[at[which], version[which]], facts.tier)
    points = Points(
        numbers,
        tier,
        _coordinates(numbers),
        which,
        level_names({**text, "device": _named(devices, directories)[at]}, shared, facts.generation[at]),
        text["device"],
        facts.stand_in[at],
        _problems(numbers, table.shape["experts"], (text["device"] == "")[which]),
        _law(numbers, tier),
    )
    return points._split_by_way()


def _named(devices: np.ndarray, directories: Sequence[str | Path]) -> np.ndarray:
    """Names of devices [D], another where a user's device has other links than the shipped one of its name."""
    if not directories:
        return devices
    own = [bool(name) and bool(changed_facts(hwspecs.load(name, directories), COLLECTIVES_WITH)) for name in devices]
    return np.where(own, np.char.add(devices, CHANGED), devices)


def _law(numbers: Mapping[str, np.ndarray], tier: NcclTier) -> LawTime:
    """The law at every row, on the host."""
    return laws(CollectivePoint(**jax.tree.map(as_float, dict(numbers)), tier=tier))


def _rows(tree: Tree, rows: np.ndarray) -> Tree:
    """Some of the rows of every leaf."""
    return jax.tree.map(lambda leaf: leaf[rows], tree)


def _of_groups(
    text: Mapping[str, np.ndarray], shape: Mapping[str, np.ndarray], facts: Facts, at: np.ndarray
) -> dict[str, np.ndarray]:
    """The law's numbers that the rows of a group share [G]. `at`: each group's device among the facts."""
    ranks, stated = shape["num_gpus"], shape["gpus_per_node"]
    per_node = np.clip(np.where(stated > 0.0, stated, facts.node_size[at]), 1.0, np.maximum(ranks, 1.0))
    nodes = np.asarray(ceil_div(as_float(ranks), as_float(per_node)))
    across_pairs = in_pairs(text["topology"]) & (per_node > 2.0)
    pcie = np.where(across_pairs, 1.0, facts.pcie[at])
    in_switch = np.isin(text["dtype"], REDUCED_IN_SWITCH) & (pcie == 0.0) & (ranks / nodes >= LEAST_NVLS_RANKS)
    each = list(zip(text["op"], text["kernel"], text["wire"], strict=True))
    return {
        "op": np.array([float(OPS.index(op)) if op in OPS else NO_OP for op, _, _ in each]),
        "runner": np.array([float(RUNNERS.index(_runner(op, kernel))) for op, kernel, _ in each]),
        "sms": np.where(shape["sms"] > 0.0, shape["sms"], DEFAULT_SMS),
        "ranks": ranks,
        "nodes": nodes,
        "pcie": pcie,
        "nvls": in_switch.astype(float),
        "token_bytes": np.array([_element(*one) for one in each]) * shape["hidden"],
        "topk": shape["topk"],
        "link": np.where(across_pairs, facts.host_link[at], facts.link[at]),
        **{name: getattr(facts, name)[at] for name in ("link_latency", "network", "network_latency")},
    }


def _parts(shared: Mapping[str, np.ndarray], kernel: np.ndarray) -> np.ndarray:
    """How many times the stated bytes the whole buffer is [G]: what each rank gives to an all-gather is a part of it,
    and is what the benchmark of oneCCL counts."""
    of_a_rank = np.isin(np.char.lower(kernel), BYTES_OF_A_RANK) & (shared["op"] == OPS.index("all_gather"))
    return np.where(of_a_rank, shared["ranks"], 1.0)


def _runner(op: str, kernel: str) -> str:
    """One of `RUNNERS`: by what the kernels of DeepEP and the serving engines are called."""
    word = kernel.lower()
    if op.startswith("moe_"):
        quick = word.endswith("_ll") or "low_latency" in word or "generation" in word
        return "low-latency" if quick else "normal"
    return "library" if op != "all_reduce" or word.split("_")[0] in LIBRARIES else "engine"


def _element(op: str, kernel: str, wire: str) -> float:
    """Bytes of one element on the wire: DeepEP dispatches in fp8 unless told otherwise, and combines in 16 bits."""
    if op == "moe_a2a_combine":
        return 2.0
    return TOKEN_BYTES.get(wire, 2.0) if wire or not in_fp8(op, kernel) else FP8_BYTES


def in_fp8(op: str, kernel: str) -> bool:
    """Whether a kernel dispatches in fp8 where no format is stated; those of TensorRT-LLM in 16 bits."""
    return op == DISPATCH and not kernel.lower().startswith("trtllm")


def _as_text(values: np.ndarray) -> Text:
    distinct, codes = np.unique(values, return_inverse=True)
    return Text(distinct.astype(str).astype(object), codes)


def _problems(numbers: Mapping[str, np.ndarray], experts: np.ndarray, unknown_device: np.ndarray) -> np.ndarray:
    """Place in `PROBLEMS` of each row [R]. `experts`: 0 where not stated."""
    tokens = numbers["tokens"] * numbers["token_bytes"] * numbers["topk"]
    sent = np.where(is_exchange(numbers["runner"]), tokens, numbers["size"])
    whole = (numbers["ranks"] >= 2.0) & (numbers["ranks"] % 1.0 == 0.0)
    many = is_exchange(numbers["runner"]) & (experts > 0.0) & (numbers["topk"] > experts)
    return np.select([unknown_device, numbers["op"] == NO_OP, ~whole, ~(sent > 0.0), many], [1, 2, 3, 4, 5], 0)


def _coordinates(numbers: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Binary logarithms of what a correction is smooth in; of an exchange, size is what a rank sends."""
    copies = np.asarray(expected_hits(as_float(numbers["ranks"]), as_float(numbers["topk"])))
    sent = numbers["tokens"] * numbers["token_bytes"] * copies
    values = {
        "size": np.where(is_exchange(numbers["runner"]), sent, numbers["size"]),
        "tokens": numbers["tokens"],
        "token bytes": numbers["token_bytes"],
        "topk": numbers["topk"],
    }
    return {name: np.log2(np.maximum(each, 1.0)) for name, each in values.items()}
