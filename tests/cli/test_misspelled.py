"""Tables: no column that nobody reads, spelled nearly as one that would change the answer, is passed over unsaid."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibration.composition.batches_rows import read_batches
from calibration.composition.rows import read_rows

pytestmark = pytest.mark.usefixtures("plain_jax")

# Rows that have no prediction, so that nothing is computed.
TABLES = {
    "train": "model,gpu,n_gpus,seq,global_batch,recomp\nllama-3-8b,h1000,8,4096,16,full\n",
    "serve": "model,gpu,input_len,concurency\ngpt2,h1000,8,4\n",
    "batches": "model,gpu,tp,output_len,prompt_lengths,d_type\ngpt2,h1000,1,8,[8],bf16\n",
    "graphs": "model,device,mode,seq,batch,varient\ngpt2-large,h1000,inf,8,1,fusion\n",
    "edge": "arch,device,latency_msec\nskip,pixel3,8\n",
}
MEANT = {"train": "recompute", "serve": "concurrency", "batches": "dtype", "graphs": "variant", "edge": "latency_ms"}


@pytest.mark.parametrize("command", TABLES)
def test_it_is_a_note_on_all_rows(answered, own_folder: Path, command: str) -> None:
    (own_folder / "in.csv").write_text(TABLES[command])
    written = TABLES[command].splitlines()[0].rpartition(",")[2]
    (note,) = answered(command, "in.csv", "-o", "out.csv", code=3)["notes"]
    assert note == {"reason": f"the column '{written}' is not read. Did you mean {MEANT[command]}?", "rows": 1}


@pytest.mark.parametrize(
    ("command", "text", "meant"),
    [
        ("kernels", "device,d_types,m,n,k\nh1000,fp8,8,8,8\n", {"d_types": "dtype"}),
        ("kernels", "device,kv_len,heads,kv_heads,head_dim,windows\nh1000,8,8,8,64,4\n", {"windows": "window_size"}),
        (
            "collectives",
            "gpu,op,num_gpus,bytes,gpu_per_node,latency_usec\nh1000,all_reduce,8,64,4,1\n",
            {"gpu_per_node": "gpus_per_node", "latency_usec": "latency_us"},
        ),
    ],
)
def test_it_is_a_problem_of_the_table(
    answered, own_folder: Path, command: str, text: str, meant: dict[str, str]
) -> None:
    (own_folder / "in.csv").write_text(text)
    said = answered(command, "in.csv", "-o", "out.csv", code=3)["problems"]["first"]
    for column, name in meant.items():
        assert f"in.csv, line 2, column '{column}': is not read. Did you mean {name}?" in said


@pytest.mark.parametrize(("column", "others"), [("gpu", "devcie,op"), ("op", "gpu,ops")])
def test_a_table_of_collectives_names_devices_and_operations(
    refuse, own_folder: Path, column: str, others: str
) -> None:
    (own_folder / "in.csv").write_text(f"{others},num_gpus,bytes\nh100,all_reduce,8,64\n")
    name, nearest = ("device", "devcie") if column == "gpu" else ("op", "ops")
    said = refuse("collectives", "in.csv", "-o", "out.csv")
    assert f"in.csv: the column '{name}' is missing" in said and f"Did you mean {nearest}?" in said


def test_case_does_not_matter(own_folder: Path) -> None:
    (own_folder / "b.csv").write_text(
        "GPU,TP,Model,Precision,output_len,Prompt_Lengths,Prefill_s\nH100,1,m,fp8,8,[8],2\n"
    )
    (batch,) = read_batches("b.csv").batches
    assert batch.dtype == "fp8" and batch.measured[0] == 2.0
    (own_folder / "g.csv").write_text("Device,Model,Mode,Seq,Batch,DType,Label_ms\nh100,gpt2-large,inf,8,1,fp16,3\n")
    (row,) = read_rows("g.csv")
    assert (row.reason, row.dtype, row.label) == ("", "fp16", 3e-3)


def test_other_backends_of_collectives_read_columns_alike(answered, refuse, own_folder: Path) -> None:
    (own_folder / "t.csv").write_text("OP,Bytes,network,togther\nall_reduce,1e6,nowhere,a\n")
    said = answered("collectives", "t.csv", "-o", "out.csv", "--backend", "topology", code=3)
    assert said["notes"] == [{"reason": "the column 'togther' is not read. Did you mean together?", "rows": 1}]
    assert "network" in said["without_prediction"][0]["reason"]
    (own_folder / "a.csv").write_text("backend,collective,topology\nAware,all_reduce,Switch\n")
    assert "a.csv: The table has no column npus_per_dim" in refuse(
        "collectives", "a.csv", "-o", "out.csv", "--backend", "astra"
    )
