"""Rows of collectives as points of the law: nodes, runners, formats, and what makes a row unusable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hwspecs
from calibration.collectives.laws import ADDING_SHARE, CALL, KINDS, OPS, ROUND, RUNNERS
from calibration.collectives.points import PROBLEMS, Network, Points, points_of
from calibration.collectives.rows import FAMILY, read_collectives
from calibration.collectives.versions import model_versions
from jaxperf.network.nccl_constants import NEW, OLD, VERSIONS

HEADER = "gpu,framework,version,kernel,op,topology,dtype,num_gpus,gpus_per_node,bytes,tokens,hidden,topk,sms,experts"


@pytest.fixture
def points(tmp_path: Path):
    """Points of rows written as CSV."""

    def read(*rows: str) -> Points:
        path = tmp_path / "rows.csv"
        filled = [row + "," * (HEADER.count(",") - row.count(",")) for row in rows]
        path.write_text("\n".join((HEADER, *filled)) + "\n")
        table = read_collectives(path).table(FAMILY)
        assert table is not None
        return points_of(table)

    return read


def test_nodes_follow_from_ranks_a_node_or_from_the_device(points) -> None:
    found = points(
        "h100,nccl,2.27,nccl,all_reduce,,half,8,8,1024,0,0,0,0",
        "h100,nccl,2.27,nccl,all_reduce,,half,16,,1024,0,0,0,0",
        "h100,nccl,2.27,nccl,all_reduce,,half,4,2,1024,0,0,0,0",
        "h100,nccl,2.27,nccl,all_reduce,,half,2,8,1024,0,0,0,0",
    )
    assert found.numbers["nodes"].tolist() == [1.0, 2.0, 2.0, 1.0]
    assert (found.problem == 0).all()


def test_pairs_of_nvlink_meet_over_pcie(points) -> None:
    found = points(
        "a100,vidur,1,nccl,all_reduce,pairwise_nvlink,half,2,2,1024,0,0,0,0",
        "a100,vidur,1,nccl,all_reduce,pairwise_nvlink,half,4,4,1024,0,0,0,0",
        "h100,vidur,1,nccl,all_reduce,Pairwise_NVLink,half,4,4,1024,0,0,0,0",
        "l40s,nccl,1,nccl,all_reduce,,half,4,4,1024,0,0,0,0",
    )
    assert found.numbers["pcie"].tolist() == [0.0, 1.0, 1.0, 1.0]
    assert found.numbers["link"].tolist() == [300e9, 31.5e9, 63e9, 31.5e9]


@pytest.mark.parametrize(
    ("op", "kernel", "runner"),
    [
        ("all_reduce", "nccl", "library"),
        ("all_reduce", "", "library"),
        ("all_reduce", "NCCL_ring", "library"),
        ("all_reduce", "vLLM_custom_graph", "engine"),
        ("all-gather", "vLLM_custom_graph", "library"),
        ("moe_a2a_dispatch", "deepep_normal", "normal"),
        ("moe_a2a_combine", "trtllm_deepep_LL", "low-latency"),
        ("moe_a2a_combine", "deepep_v2_generation", "low-latency"),
    ],
)
def test_kernels_tell_who_runs_the_collective(points, op: str, kernel: str, runner: str) -> None:
    found = points(f"h100,x,1,{kernel},{op},,half,8,8,4096,2,2048,8,20")
    assert RUNNERS[int(found.numbers["runner"][0])] == runner


def test_only_formats_that_the_switch_adds_use_it(points) -> None:
    row = "h100,nccl,1,nccl,all_reduce,,{},{},8,536870912,0,0,0,0"
    found = points(*(row.format(*each) for each in (("half", 8), ("int8", 8), ("half", 4))))
    chosen = [KINDS[int(kind)] for kind in found.law.kind]
    assert chosen == ["nvls", "ring-simple", "ring-simple"]


def test_only_all_reduces_are_told_apart_by_the_way_they_are_run(points) -> None:
    row = "a100,nccl,1,nccl,{},,half,16,8,{},0,0,0,0"
    sizes = [2**power for power in range(10, 31)]
    found = points(*(row.format(op, size) for op in ("all_reduce", "all_gather") for size in sizes))
    ways = found.named("kind way")
    assert {name.rpartition("/")[2] for name in ways[: len(sizes)]} == {"ring", "tree"}
    assert set(ways[len(sizes) :]) == {""}
    assert len(np.unique(found.group)) == 3 == len(found.names["cell"])
    again = found.joined(Network(dict.fromkeys(found.named("system"), 1.0))).joined(Network())
    assert all((again.named(level) == found.named(level)).all() for level in found.names)


def test_dispatch_in_fp8_and_combine_in_sixteen_bits(points) -> None:
    row = "h100,{},1,{},{},,{},8,8,14336,2,7168,8,20"
    found = points(
        row.format("sglang", "deepep_normal", "moe_a2a_dispatch", "default"),
        row.format("sglang", "deepep_normal", "moe_a2a_combine", "default"),
        row.format("trtllm", "trtllm_deepep_ht", "moe_a2a_dispatch", "bfloat16"),
        row.format("trtllm", "trtllm_deepep_ht", "moe_a2a_dispatch", "nvfp4"),
        *(row.format("sglang", "deepep_normal", "moe_a2a_dispatch", each) for each in ("", "fp8", "bf16", "fp32")),
    )
    assert (found.numbers["token_bytes"] / 7168).tolist() == [1.03125, 2.0, 2.0, 0.5625, 1.03125, 1.03125, 2.0, 4.0]


def test_normal_exchanges_wait_a_round_for_each_doubling_of_the_nodes(points) -> None:
    row = "h100,sglang,1,{},moe_a2a_combine,,,{},8,7168,1,7168,8,20"
    times = {
        kernel: points(*(row.format(kernel, ranks) for ranks in (8, 16, 32, 64))).law.empty
        for kernel in ("deepep_normal", "deepep_ll")
    }
    assert np.diff(times["deepep_normal"]) == pytest.approx(np.full(3, ROUND), rel=1e-5)
    assert np.ptp(times["deepep_ll"]) == pytest.approx(0.0, abs=1e-12)


def test_a_token_goes_to_no_more_experts_than_there_are_where_that_is_known(points) -> None:
    row = "h100,sglang,1,deepep_ll,{},,half,8,8,1024,1,7168,{},0,{}"
    found = points(*(row.format("moe_a2a_combine", *each) for each in ((8, 8), (9, 8), (9, ""))))
    assert [PROBLEMS[place] for place in found.problem] == ["", "topk is above experts", ""]


def test_combining_takes_longer_in_one_node_and_adds_between_them(points) -> None:
    row = "h100,sglang,1,deepep_normal,moe_a2a_{},,default,{},8,7168,{},7168,8,4"
    ops = ("dispatch", "combine")
    first = points(*(row.format(op, 8, 1) for op in ops)).law.empty
    assert np.diff(first) == pytest.approx([CALL["combine"] - CALL["dispatch"]], rel=1e-6)
    # Four cores, not the network, bound two nodes: a combine moves 2 bytes an element, a dispatch 1 + 4/128.
    law = points(*(row.format(op, 16, 2**17) for op in ops)).law
    dispatch, combine = law.time - law.empty
    assert combine / dispatch == pytest.approx(2.0 / 1.03125 / ADDING_SHARE, rel=1e-6)


def test_an_all_gather_of_oneccl_counts_what_one_rank_gives(points) -> None:
    row = "b60,oneccl,1,{},{},,half,{},8,1024,0,0,0,0"
    cases = [("oneccl", "all_gather", 4), ("oneCCL", "all_gather", 8), ("oneccl", "all_reduce", 4)]
    found = points(*(row.format(*each) for each in [*cases, ("nccl", "all_gather", 4)]))
    assert found.numbers["size"].tolist() == [4096.0, 8192.0, 1024.0, 1024.0]


@pytest.mark.parametrize(
    ("framework", "version", "old"),
    [
        ("nccl", "2.20.5", True),
        ("nccl", "2.9.9+cuda11", True),
        ("nccl", "2.21.5", False),
        ("nccl", "", False),
        ("", "2.18", True),
        ("vidur", "7d47513", True),
        ("sglang", "0.5.12", False),
    ],
)
def test_trees_of_older_versions_of_nccl_take_longer_for_a_step(
    points, framework: str, version: str, old: bool
) -> None:
    assert model_versions(np.array([framework]), np.array([version])).tolist() == [VERSIONS.index(OLD if old else NEW)]
    found = points(f"a100,{framework},{version},nccl,all_reduce,,half,16,8,4194304,0,0,0,0")
    assert found.tier.tree_simple[0, 1] == pytest.approx(28e-6 if old else 4e-6)


def test_each_unusable_row_says_why(points) -> None:
    found = points(
        "h100,nccl,1,nccl,all_reduce,,half,8,8,1024,0,0,0,0",
        "h1000,nccl,1,nccl,all_reduce,,half,8,8,1024,0,0,0,0",
        "h100,nccl,1,nccl,all_to_some,,half,8,8,1024,0,0,0,0",
        "h100,nccl,1,nccl,all_reduce,,half,1,1,1024,0,0,0,0",
        "h100,sglang,1,deepep_ll,moe_a2a_combine,,half,8,8,1024,0,7168,8,0",
        "h100,sglang,1,deepep_ll,moe_a2a_combine,,half,8,8,1024,1,7168,9,0,8",
    )
    assert [PROBLEMS[place] for place in found.problem] == list(PROBLEMS)


def test_an_unknown_vendor_is_told_to_use_stand_in_constants(points) -> None:
    found = points(
        "b60,oneccl,1,oneccl,all_reduce,,half,4,4,1024,0,0,0,0", "h100,nccl,1,nccl,all_reduce,,half,4,4,1024,0,0,0,0"
    )
    assert found.stand_in[found.group].tolist() == [True, False]


def test_the_law_is_finite_for_every_operation_and_runner(points) -> None:
    rows = [
        f"{gpu},x,1,{kernel},{op},,half,{ranks},8,8192,4,2048,8,0"
        for gpu in ("h100", "l40s", "mi300x")
        for kernel in ("nccl", "custom", "deepep_ll")
        for op in OPS
        for ranks in (2, 8, 64)
    ]
    law = points(*rows).law
    for times in (law.time, law.alpha_beta, law.empty):
        assert np.isfinite(times).all()
        assert (times > 0.0).all()
    assert (law.empty <= law.time).all()


def test_the_closed_form_of_a_ring_counts_all_ports_of_a_node(points) -> None:
    """Two nodes of eight H100: a ring goes at 8 x 50 GB/s, a send at the 50 GB/s of its own port."""
    size = 10**10  # beside which latencies are nothing
    row = "h100,nccl,2.27,nccl,{},,half,{},8,{},0,0,0,0"
    cases = (("all_reduce", 16), ("all_gather", 16), ("all_reduce", 2 * 16), ("send_recv", 16), ("all_reduce", 8))
    times = points(*(row.format(op, ranks, size) for op, ranks in cases)).law.alpha_beta
    rates = [2 * 15 / 16 / 400e9, 15 / 16 / 400e9, 2 * 31 / 32 / 400e9, 1 / 50e9, 2 * 7 / 8 / 450e9]
    assert times == pytest.approx(size * np.asarray(rates), rel=0.01)


def test_the_closed_form_of_a_broadcast_is_a_chain_where_bytes_are_many(points) -> None:
    """(sqrt((n-2) alpha) + sqrt(S / B))^2, through all ports of two nodes of eight H100; two ranks: S / B."""
    size = 10**10
    row = "h100,nccl,2.27,nccl,{},,half,{},8,{},0,0,0,0"
    law = points(*(row.format(op, ranks, size) for op, ranks in (("broadcast", 16), ("reduce", 16), ("reduce", 2)))).law
    node = hwspecs.load("h100-sxm").node
    chain = (np.sqrt(14 * node.network_latency.si) + np.sqrt(size / 400e9)) ** 2
    assert law.alpha_beta == pytest.approx([chain, chain, size / 450e9], rel=1e-4)
