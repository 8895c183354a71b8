"""What rows of collectives leave open: kernel, number format and topology, as what was measured tells them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from calibration.collectives import predict
from calibration.collectives.adapt import adapt
from calibration.collectives.as_known import as_known
from calibration.collectives.facts import load_facts
from calibration.collectives.names import cell_of
from calibration.collectives.parameters import ABOVE, BELOW, LAW, CollectiveParameters
from calibration.collectives.points import points_of
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import repeated

HEADER = "gpu,framework,version,kernel,dtype,op,num_gpus,bytes,topology"
ENGINE = "all_reduce/engine/direct//h100-sxm/intra/{}/bf16/vllm/{}/8/1/20"
NCCL = "{}/library/direct//h100-sxm/{}/nccl/fp16/{}/2.27/{}/1/20"

OPERATIONS = ("all_reduce", "all_gather")
FORMATS = ("half", "", "bf16", "int8")
ASKED = (("nccl", "all_reduce"), ("nccl", "all_gather"), ("vidur", "all_reduce"))


class Answer(NamedTuple):
    time: float
    tier: str
    reason: str
    lower: float
    upper: float


@pytest.fixture
def answers(table: Callable[..., KernelTable], shipped: CollectiveParameters) -> Callable[..., list[Answer]]:
    def answer(*rows: str) -> list[Answer]:
        columns = predict.predict_collectives(table(*rows), len(rows), shipped)
        parts = (
            np.asarray(columns[name]).tolist() for name in ("predicted_us", "tier", "reason", "lower_us", "upper_us")
        )
        return [Answer(*each) for each in zip(*parts, strict=True)]

    return answer


@pytest.fixture
def filled(table: Callable[..., KernelTable]) -> Callable[..., list[tuple[str, str, str, str]]]:
    """Kernel, format, topology and what is said, of rows where some cells were measured."""

    def fill(cells: list[str], *rows: str) -> list[tuple[str, str, str, str]]:
        given = table(*rows)
        found, said = as_known(given, points_of(given), cells)
        columns = (found.kernel, found.dtype, found.text.get("topology", repeated("", len(found))), said)
        return list(zip(*(np.asarray(column).tolist() for column in columns), strict=True))

    return fill


@pytest.mark.parametrize("spelled", ["0.12", "v0.12.0", "0.12.0.0"])
def test_a_release_is_the_same_without_its_last_zero(answers, spelled: str) -> None:
    rows = [f"h100_sxm,vllm,{each},{{}},bf16,all_reduce,8,131072,intra_node" for each in ("0.12.0", spelled)]
    for kernel in ("", "custom_all_reduce"):
        own, other = answers(*(row.format(kernel) for row in rows))
        assert other == own


def test_a_release_without_a_kernel_has_the_only_one_measured_of_it(answers) -> None:
    named, silent, other, unknown = answers(
        "h100_sxm,nccl,2.27.3,NCCL,half,all_gather,8,1048576,intra_node",
        "h100_sxm,nccl,2.27.3,,half,all_gather,8,1048576,intra_node",
        "h100_sxm,nccl,2.27.3,,bfloat16,all_gather,8,1048576,intra_node",
        "h100_sxm,nccl,9.9,,half,all_gather,8,1048576,intra_node",
    )
    assert silent.time == named.time and named.reason == ""
    assert all("nccl, the only one measured of this release" in each.reason for each in (silent, other))
    assert "bf16 was not measured of this kernel: taken for fp16" in other.reason and other.time == named.time
    assert unknown.time != named.time and "nccl, the only one measured of nccl" in unknown.reason


@pytest.mark.parametrize(
    ("framework", "kernel", "said"),
    [
        ("trtllm", "TRTLLM", "trtllm, the only one measured of trtllm"),
        ("vllm", "vLLM_custom_graph", "vllm_custom_graph, not vllm_custom_eager of vllm"),
        ("sglang", "SGLang_CustomAllReduce_graph", "not sglang_customallreduce_eager of sglang"),
        ("nccl", "NCCL", "nccl, the only one measured of nccl"),
    ],
)
def test_a_framework_without_a_release_runs_its_own_kernel(answers, framework: str, kernel: str, said: str) -> None:
    row = f"h100_sxm,{framework},,{{}},bf16,all_reduce,8,65536,"
    silent, named, nothing = answers(row.format(""), row.format(kernel), "h100_sxm,,,,bf16,all_reduce,8,65536,")
    assert said in silent.reason and "kernel not stated" not in named.reason + nothing.reason
    assert silent.time == named.time != nothing.time


def test_of_several_kernels_that_run_by_default_none_is_chosen(filled) -> None:
    cells = [ENGINE.format(kernel, "0.1") for kernel in ("a", "b", "c_eager")] + [ENGINE.format("d_eager", "0.2")]
    first, second = filled(
        cells, "h100_sxm,vllm,0.1,,bf16,all_reduce,8,1024,", "h100_sxm,vllm,0.2,,bf16,all_reduce,8,1024,"
    )
    assert first[0] == "" and "a, b were measured of this release, none of them taken" in first[3]
    assert second[0] == "d_eager" and "d_eager, the only one measured of this release" in second[3]


def test_where_an_engine_has_no_kernel_the_library_is_said(filled) -> None:
    """Its all-reduce works in the memory of the peers of one node, and for other operations it has none."""
    cells = [ENGINE.format("custom_graph", "0.1"), *(NCCL.format(op, "intra", "nccl", 8) for op in OPERATIONS)]
    rows = ("all_reduce,8", "all_reduce,16", "all_gather,8", "broadcastt,8")
    inside, between, gather, unknown = filled(cells, *(f"h100_sxm,vllm,,,bf16,{row},1024," for row in rows))
    assert [row[0] for row in (inside, between, gather, unknown)] == ["custom_graph", "nccl", "nccl", ""]
    assert "none of vllm was measured for this operation between nodes, taken for nccl" in between[3]
    assert "none of vllm was measured for this operation, taken for nccl" in gather[3]
    assert unknown[3] == ""


def test_formats_that_take_the_same_path_stand_in_for_each_other_only(filled) -> None:
    cells = [NCCL.format("all_reduce", "intra", "nccl", 8)]
    found = filled(cells, *(f"h100_sxm,nccl,2.27,nccl,{name},all_reduce,8,1024,intra" for name in FORMATS))
    assert [row[1] for row in found] == ["fp16", "fp16", "fp16", "int8"]
    assert [row[3] for row in found] == ["", "", "bf16 was not measured of this kernel: taken for fp16", ""]


def test_a_topology_is_one_for_all_operations_and_of_the_same_software(filled) -> None:
    """Of a framework that was not measured on the device it is that of most of all software."""
    own = [NCCL.format(op, "a", "nccl", ranks) for op, ranks in (("all_gather", 8), ("all_gather", 4))]
    others = [NCCL.format("all_reduce", "b", "vidur", ranks) for ranks in (2, 4, 8)]
    row = "h100_sxm,{},2.27,nccl,fp16,{},16,1024,"
    asked = [(name, op) for name in ("nccl", "vidur", "mpi") for op in OPERATIONS]
    found = filled([*own, *others, NCCL.format("all_reduce", "a", "nccl", 8)], *(row.format(*each) for each in asked))
    assert [row[2] for row in found] == ["a", "a", "b", "b", "a", "a"]
    assert "a, of which most of nccl was measured on the device" in found[0][3]
    assert "a, of which most was measured on the device" in found[-1][3]


def test_an_all_reduce_between_nodes_is_no_other_system_than_its_gather(answers) -> None:
    """The nodes of another software share a port; by them an all-reduce took 22 times as long."""
    row = "a100-sxm-80gb,{},,,,{},32,1073741824,"
    reduce, gather, vidur = answers(*(row.format(*each) for each in ASKED))
    assert reduce.time < 4.0 * gather.time < vidur.time
    assert "topology not stated: intra_node, of which most of nccl was measured on the device, in one" in reduce.reason
    assert "topology not stated: dgx, of which most of vidur was measured on the device" in vidur.reason
    assert "in one node only" not in vidur.reason


def test_broadcasts_and_sends_are_collectives(answers, shipped: CollectiveParameters) -> None:
    """Nobody measured a broadcast, so that the law stands alone with its own interval; a send is a send_recv."""
    words = ("broadcast", "bcast", "reduce", "all_reduce", "send", "recv", "send_recv")
    told, short, back, both, *sends = answers(*(f"h100-sxm,nccl,2.27.3,,half,{word},8,16777216," for word in words))
    assert told.time == short.time == back.time < both.time and len({each.time for each in sends}) == 1
    assert {each.tier for each in (told, short, back)} == {LAW} and all(each.tier != LAW for each in sends)
    below, above = (shipped.widths[LAW][end] for end in (BELOW, ABOVE))
    assert shipped.ends(LAW, "broadcast/library/direct/") == (below, above)
    assert [told.lower, told.upper] == pytest.approx([told.time * np.exp(-below), told.time * np.exp(above)])
    half = shipped.half_width("transfer", "send_recv/library/network/")
    assert shipped.ends("transfer", "send_recv/library/network/") == (half, half)


def test_a_slash_in_a_stated_name_begins_no_part_of_it(table, shipped: CollectiveParameters) -> None:
    """Names of what was measured are split at slashes."""
    row = "h100-sxm,own/fork,1/2,,half,all_gather,8,{},a/b"
    few = dataclasses.replace(table(row.format(4096)), latency=np.array([3e-5]))
    adapted = adapt(shipped, few)
    (cell,) = set(adapted.adapted)
    assert cell_of(f"{cell}/8/1/20")[5:] == ("a-b", "", "fp16", "own-fork", "1-2")
    columns = predict.predict_collectives(table(row.format(8192)), 1, adapted)
    assert np.asarray(columns["reason"]).tolist() == ["adapted to a few rows"]


def test_many_remarks_do_not_multiply_what_is_kept() -> None:
    text = repeated("first", 40)
    for place in range(40):
        text = predict._with_remark(text, np.arange(40) == place, f"remark {place}")
    assert text.tolist() == [f"first; remark {place}" for place in range(40)]
    assert len(text.values) == 41


def test_many_groups_of_rows_look_each_device_and_remark_up_once(
    table, shipped: CollectiveParameters, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[list[str]] = []
    monkeypatch.setattr(predict, "load_facts", lambda names, *_: looked.append(names) or load_facts(names))
    given = table(*(f"h100-sxm,nccl,,,half,all_gather,{ranks},4096," for ranks in range(2, 40)))
    predict.predict_collectives(given, len(given), shipped)
    assert looked == [["h100-sxm"]]
    points = points_of(given)
    assert len(points.names["cell"]) == 38
    _, said = as_known(given, points, shipped.learned.curves.known["cell setting by size"])
    assert len(said.values) == 2  # in one node, and between nodes
