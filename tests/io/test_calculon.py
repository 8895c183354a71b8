"""Calculon's three files: its own published examples in SI units, rows of measured steps, and contradictions."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.cli.described_run import as_table
from jaxperf.io.calculon.files import read_calculon
from jaxperf.io.training_configuration import COLUMNS
from jaxperf.io.training_rows import read_configuration, rows_from

# calculon-ai/calculon: models/megatron-22B, validation/22B_full, systems/h100_80g_nvl8 (shortened tables).
APPLICATION = {
    **{"hidden": 6144, "feedforward": 24576, "seq_size": 2048, "attn_heads": 64},
    **{"attn_size": 96, "num_blocks": 48},
}
EXECUTION = {
    **{"num_procs": 8, "tensor_par": 8, "pipeline_par": 1, "data_par": 1, "tensor_par_net": 0},
    **{"pipeline_par_net": 1, "data_par_net": 1, "batch_size": 4, "microbatch_size": 4, "datatype": "float16"},
    **{"activation_recompute": "full", "pipeline_interleaving": 1, "optimizer_sharding": False},
    **{"tensor_par_comm_type": "ar", "seq_par_ag_redo": False, "data_par_overlap": False},
    **{"weight_offload": False, "activations_offload": False, "optimizer_offload": False, "training": True},
}
NETWORK = {"bandwidth": 450, "efficiency": 0.6, "size": 8, "latency": 1e-6, "must_be_filled": True}
SYSTEM = {
    "matrix": {"tflops": 1000, "gflops_efficiency": {"float16": [[128, 0.95], [0, 0.1]]}},
    "vector": {"float16": {"tflops": 120, "gflops_efficiency": [[16, 0.95], [0, 0.1]]}},
    "mem1": {"GiB": 80, "GBps": 3072, "MB_efficiency": [[100, 0.9], [0, 0.3]]},
    "mem2": {"GiB": 512, "GBps": 450},
    "processing_mode": "no_overlap",
    "networks": [NETWORK, {"bw": 50, "eff": 0.9, "size": 65536}],
}
Files = Callable[..., list[Path]]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """The three files, changed as told; `None` drops a key."""

    def write(part: str = "", **changes: Any) -> list[Path]:
        found = []
        parts = {"megatron-22B": APPLICATION, "run": EXECUTION, "h100_80g_nvl8": SYSTEM}
        for name, data in parts.items():
            own = {**data, **changes} if name == part else data
            path = tmp_path / f"{name}.json"
            path.write_text(json.dumps({key: value for key, value in own.items() if value is not None}))
            found.append(path)
        return found

    return write


def test_the_units_in_the_keys_become_si(files: Files) -> None:
    found = read_calculon(files()).system
    assert found is not None
    assert (found.matrix_flops, found.vector_flops) == (1e15, 120e12)
    assert (found.memory_capacity, found.memory_bandwidth) == (80 * 2**30, 3072e9)
    assert (found.offload_capacity, found.offload_bandwidth) == (512 * 2**30, 450e9)
    assert found.matrix_efficiency == ((128e9, 0.95), (0.0, 0.1))
    assert found.vector_efficiency == ((16e9, 0.95), (0.0, 0.1))
    assert found.memory_efficiency == ((100e6, 0.9), (0.0, 0.3))
    inner, outer = found.networks
    assert (inner.bandwidth, inner.latency, inner.size, inner.efficiency) == (450e9, 1e-6, 8, 0.6)
    assert (outer.bandwidth, outer.latency, outer.size) == (50e9, 0.0, 65536)


def test_the_order_of_the_files_and_a_folder_of_them_do_not_matter(files: Files) -> None:
    paths = files()
    assert read_calculon(paths) == read_calculon(paths[::-1]) == read_configuration(paths[0].parent)
    assert read_calculon(paths[:2]).system is None
    shouted = paths[0].rename(paths[0].with_suffix(".JSON"))
    assert (
        read_configuration(shouted.parent)
        == read_configuration(shouted, *paths[1:])
        == read_calculon([shouted, *paths[1:]])
    )


def test_a_row_is_the_measured_one_of_the_same_run(files: Files, data_directory: Path) -> None:
    path = data_directory / "training" / "train_e2e.csv"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == "megatron-22B" and row["recompute"] == "full"]
    assert rows and [*rows[0]] == COLUMNS[: len(rows[0])]
    (own,) = rows_from(*files(), device="A100-SXM-80GB")
    given = (
        "model family layers hidden heads kv_heads head_dim ffn gated vocab seq gpu n_gpus tp pp cp dp vp micro_batch"
    )
    for name in f"{given} global_batch zero recompute seq_par dtype task model_key".split():
        text = rows[0][name]
        assert own[name] == (float(text) if isinstance(own[name], int | float) else text), name
    assert list(own) == COLUMNS


def test_the_numbers_of_a_system_are_not_used_and_that_is_said(files: Files) -> None:
    paths = files()
    said = "System file {}: not used, the device {} is taken."
    assert said.format(paths[2].name, "l4") in read_calculon(paths, "l4").notes
    assert said.format(paths[2].name, paths[2].stem) in read_calculon(paths).notes
    assert not any("System file" in note for note in read_calculon(paths[:2], "l4").notes)


def test_a_system_that_is_no_device_asks_for_one(files: Files) -> None:
    folder = files()[2].parent
    said = r"its system file 'h100_80g_nvl8' has not the name of a known device, .* give --device NAME\."
    with pytest.raises(InputError, match=said), as_table(folder, None, None, (), True):
        pass
    with (
        pytest.raises(InputError, match="'h100-sxn' is not a known device"),
        as_table(folder, "h100-sxn", None, (), True),
    ):
        pass


def test_what_calculon_calls_its_options_is_translated(files: Files) -> None:
    changes: dict[str, Any] = {"num_procs": 64, "pipeline_par": 2, "data_par": 4, "batch_size": 32}
    changes |= {"activation_recompute": "attn_only", "tensor_par_comm_type": "rs_ag", "optimizer_sharding": True}
    changes |= {"pipeline_interleaving": 3, "attention_type": "multiquery", "datatype": "bfloat16"}
    found = read_calculon(files("run", **changes, optimizer_offload=True, in_network_reduction=True, my_option=1))
    assert (found.recompute, found.sequence_parallel, found.zero, found.interleave) == ("selective", True, 1, 3)
    assert (found.kv_heads, found.dtype, found.data_parallel) == (1, "bf16", 4)
    assert found.unknown == ("run.json: my_option",)
    assert found.notes[1] == "Without effect here: optimizer_offload, in_network_reduction."
    assert found.notes[2] == "Not understood and left out: run.json: my_option."


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fused_activation": True}, ""),
        ({"fused_activation": False}, "fused_activation = false"),
        ({"tensor_par_overlap": "ring"}, 'tensor_par_overlap = "ring"'),
        ({"tensor_par_comm_type": "p2p_rs_ag"}, 'tensor_par_comm_type = "p2p_rs_ag"'),
    ],
)
def test_what_differs_from_what_is_taken_is_named(files: Files, changes: dict[str, Any], said: str) -> None:
    notes = [note for note in read_calculon(files("run", **changes)).notes if note.startswith("Without effect")]
    assert notes == ([f"Without effect here: {said}."] if said else [])


def test_another_number_of_devices_is_refused(files: Files) -> None:
    assert read_configuration(*files(), devices=8).devices == 8
    with pytest.raises(InputError, match="num_procs is 8, but 16 devices are asked for"):
        read_configuration(*files(), devices=16)


def test_whether_compute_hides_what_data_parallel_ranks_exchange(files: Files) -> None:
    two = {"num_procs": 16, "data_par": 2, "batch_size": 8}
    runs = [read_calculon(files("run", **changes)) for changes in ({}, two, {**two, "data_par_overlap": True})]
    assert [run.row()["overlap_data"] for run in runs] == [None, 0.0, 1.0]


@pytest.mark.parametrize(
    ("part", "changes", "says"),
    [
        ("run", {"num_procs": 16}, "16 devices, but tensor 8 x pipeline 1 x context 1 x data 1 make 8"),
        ("run", {"batch_size": 6}, "a global batch of 6 is no multiple"),
        ("run", {"pipeline_interleaving": 2}, "interleaved chunks need a pipeline"),
        ("run", {"tensor_par": 0}, "tensor_par is 0"),
        ("run", {"data_par": None}, "the key data_par is missing"),
        ("run", {"datatype": "int3"}, 'datatype is "int3"'),
        ("run", {"activation_recompute": None}, "activation_recompute is null"),
        ("run", {"seq_par_ag_redo": True}, 'seq_par_ag_redo = true contradicts tensor_par_comm_type = "ar"'),
        ("run", {"data_par_overlap": True}, "data_par_overlap = true contradicts data_par = 1"),
        ("run", {"optimizer_sharding": True}, "optimizer_sharding = true contradicts data_par = 1"),
        ("run", {"optimizer_sharding": "yes"}, "must be true or false"),
        ("run", {"training": False}, "training is false"),
        ("run", {"num_procs": None}, "none of Calculon's files"),
        ("megatron-22B", {"hidden": "6144"}, 'hidden is "6144"'),
        ("megatron-22B", {"seq_size": None}, "the key seq_size is missing"),
        ("h100_80g_nvl8", {"networks": []}, "networks is a list of 0"),
        ("h100_80g_nvl8", {"networks": [{**NETWORK, "efficiency": 2}]}, "network 0: efficiency is 2"),
        ("h100_80g_nvl8", {"networks": [{**NETWORK, "latency": -1}]}, "network 0: latency is -1"),
        ("h100_80g_nvl8", {"mem1": {"GiB": 80}}, "mem1: GBps is null"),
        ("h100_80g_nvl8", {"mem2": {"GiB": 8, "GBps": 4, "MB_efficiency": [[1, 0]]}}, "MB_efficiency must be a list"),
        ("h100_80g_nvl8", {"matrix": 3}, "matrix is 3"),
    ],
)
def test_contradictions_and_bad_values_are_refused_by_name(
    files: Files, part: str, changes: dict[str, Any], says: str
) -> None:
    paths = files(part, **changes)
    with pytest.raises(InputError) as error:
        read_calculon(paths)
    assert says in str(error.value)
    assert any(path.name in str(error.value) for path in paths)


def test_files_that_are_not_there_or_twice_are_named(files: Files, tmp_path: Path) -> None:
    application, execution, system = files()
    with pytest.raises(InputError, match="execution file is missing"):
        read_calculon([application, system])
    with pytest.raises(InputError, match="both an execution"):
        read_calculon([application, execution, execution])
    (tmp_path / "bad.json").write_text("{,")
    with pytest.raises(InputError, match=r"bad\.json is not valid JSON: .* line 1 "):
        read_calculon([tmp_path / "bad.json"])
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(InputError, match=r"files are objects"):
        read_calculon([tmp_path / "list.json"])
    with pytest.raises(InputError, match="No such file"):
        read_calculon([tmp_path / "absent.json"])
