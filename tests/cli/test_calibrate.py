"""`jaxperf calibrate`: a tiny fit end to end, adapting, folders of tables, and every mistake one sentence."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

import calibration.kernels.adapt
import calibration.kernels.calibrate
import hwspecs
import jaxperf.cli.calibrate
import jaxperf.cli.processes
from calibration.datasets import data_hash
from calibration.kernels import gaussian_process
from calibration.kernels.fit import Settings
from calibration.kernels.parameters import Parameters, load_parameters, save_parameters
from jaxperf.cli.main import app
from jaxperf.core.sustained_file import calibration_of, load_sustained_table

HEADER = "device,framework,version,kernel,dtype,m,n,k,latency_us"
PEAKS = {
    "a100-sxm-80gb": (312e12, 2.04e12),
    "a40": (150e12, 0.696e12),
    "h100-sxm": (989e12, 3.35e12),
    "epyc-9654": (4e12, 0.4e12),
}
TINY = Settings(steps=50, law_steps=50, batch=32, widths=(4,))
NCCL = """# nThread 1 nGpus 8 minBytes 8 maxBytes 8
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
        1024           256     float     sum      -1    20.00    0.05    0.09      0    20.00    0.05    0.09      0
"""
FILES = ("p.json", "p.safetensors", "p.sustained.json")


def gemms(device: str, reached: float = 0.7, tokens: tuple[int, ...] = (1, 64, 512, 4096)) -> list[str]:
    """Rows of a device that reaches a share of its peaks after 4 us, with 3 % scatter."""
    flops, bandwidth = PEAKS[device]
    scatter = np.random.default_rng(0)
    rows = []
    for m in tokens:
        for n, k in ((1024, 1024), (4096, 1024), (4096, 4096), (8192, 2048), (2048, 8192)):
            bound = max(2 * m * n * k / flops, 2 * (m * k + n * k + m * n) / bandwidth)
            time = (bound / reached + 4e-6) * np.exp(scatter.normal(0.0, 0.03))
            rows.append(f"{device},vllm,0.24.0,cublas,bf16,{m},{n},{k},{time * 1e6:.3f}")
    return rows


def write(path: Path, *devices: str, reached: float = 0.7) -> Path:
    path.write_text("\n".join([HEADER, *(row for device in devices for row in gemms(device, reached))]) + "\n")
    return path


pytestmark = pytest.mark.usefixtures("plain_jax")


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits and adaptations of a moment, in this process."""
    monkeypatch.setattr(jaxperf.cli.calibrate, "settings", lambda seed: dataclasses.replace(TINY, seed=seed or 0))
    monkeypatch.setattr(jaxperf.cli.processes, "own_cores", lambda families, cores: [0])
    monkeypatch.setattr(gaussian_process, "STEPS", 20)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parameters of two Ampere devices, fitted once; what the command printed lies beside them."""
    folder = tmp_path_factory.mktemp("fitted")
    data = write(folder / "gemm.csv", "a100-sxm-80gb", "a40", "h100-sxm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxperf.cli.calibrate, "settings", lambda seed: TINY)
        arguments = ["calibrate", str(data), "-o", str(folder / "p"), "--exclude-device", "H100", "--json"]
        result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    (folder / "said.json").write_text(result.stdout)
    return folder / "p"


def test_a_fit_ends_in_two_files_and_a_card(fitted: Path) -> None:
    card = json.loads(fitted.with_name("said.json").read_text())["card"]
    assert card["data"] == [{"file": "gemm.csv", "sha256": data_hash(fitted.with_name("gemm.csv")), "rows": 60}]
    assert card["devices"] == ["a100-sxm-80gb", "a40"] and card["excluded"] == ["h100-sxm"]
    assert card["command"] == "jaxperf calibrate gemm.csv --exclude-device H100"
    assert str(fitted.parent) not in json.dumps(card)
    assert {row["device"] for row in card["errors"]} == {"a100-sxm-80gb", "a40"}
    assert sorted(path.name for path in fitted.parent.iterdir()) == ["gemm.csv", *FILES, "said.json"]
    assert sorted(load_parameters(fitted).families) == ["gemm"]


def test_other_kinds_than_gpus_are_left_out_beside_them(cli, own_folder: Path) -> None:
    write(own_folder / "both.csv", "a40", "epyc-9654")
    result = cli("calibrate", "both.csv", "-o", "p")
    assert result.exit_code == 0, result.output
    assert "left out: epyc-9654: no GPU, and the law is that of GPUs; its rows only adapt it" in result.stderr
    card = json.loads(Path("p.json").read_text())
    assert card["devices"] == ["a40"] and card["excluded"] == ["epyc-9654"]
    write(own_folder / "alone.csv", "epyc-9654")
    result = cli("calibrate", "alone.csv", "-o", "alone")
    assert result.exit_code == 0 and json.loads(Path("alone.json").read_text())["devices"] == ["epyc-9654"]


def test_a_fit_beats_the_roofline_where_it_was_made(cli, fitted: Path, parse_json) -> None:
    said = cli("kernels", fitted.with_name("gemm.csv"), "-o", "out.csv", "--params", fitted, "--json")
    groups = {group["tier"]: group for group in parse_json(said.stdout)["groups"]}
    assert groups["measured"]["rows"] == 40 and groups["transfer"]["rows"] == 20
    assert groups["measured"]["error"] < 0.5 * groups["measured"]["roofline_error"]


def test_a_few_rows_adapt_to_another_device(cli, fitted: Path, own_folder: Path) -> None:
    """A device that reaches half of what the fitted ones reach."""
    write(own_folder / "few.csv", "h100-sxm", reached=0.35)
    result = cli("calibrate", "-o", "p", "--params", fitted, "--adapt", "few.csv")
    assert result.exit_code == 0, result.output
    assert "unseen shapes" not in result.stdout  # the errors of the fit that was adapted
    assert "written: p.safetensors, p.json and p.sustained.json" in result.stdout
    (said,) = [line.split() for line in result.stdout.splitlines() if " h100-sxm " in line]
    assert said[:6] == ["gemm", "h100-sxm", "vllm", "0.24.0", "cublas", "20"]
    before, after, left_out = map(float, said[6:])
    assert after < before / 2 and after < left_out
    assert "where the rows of their shape are left out" in " ".join(result.stdout.split())
    errors = []
    for params in (fitted, "p"):
        predicted = cli("kernels", "few.csv", "-o", "out.parquet", "--params", params)
        assert predicted.exit_code == 0
        assert ("adapted to: few.csv;" in " ".join(predicted.stdout.split())) == (params == "p")
        rows = pq.read_table("out.parquet").to_pylist()
        errors.append(np.median([abs(row["predicted_us"] / row["latency_us"] - 1.0) for row in rows]))
    assert errors[1] < errors[0]
    how = "jaxperf calibrate gemm.csv --exclude-device H100 && jaxperf calibrate --adapt few.csv"
    assert json.loads(Path("p.json").read_text())["command"] == how


def test_only_some_devices_of_a_table_adapt(cli, fitted: Path, own_folder: Path, parse_json) -> None:
    """As if the other device's rows were not there."""
    write(own_folder / "both.csv", "a40", "h100-sxm", reached=0.35)
    write(own_folder / "one.csv", "h100-sxm", reached=0.35)
    question = ("calibrate", "--params", fitted, "--adapt")
    result = cli(*question, "both.csv", "--adapt-device", "H100", "-o", "p")
    assert result.exit_code == 0 and "note: both.csv: 20 of 40 rows were not learned from" in result.stdout
    told = parse_json(cli(*question, "one.csv", "-o", "q", "--json").stdout)["adapted"]
    assert told["files"] == [{"path": "one.csv", "rows": 20, "used": 20}]
    (device,) = told["devices"]
    assert (device["family"], device["device"], device["rows"]) == ("gemm", "h100-sxm", 20)
    assert device["software"] == ["vllm 0.24.0 cublas"] and 0.0 < device["after"] < device["before"]
    assert device["after"] < device["left_out"]
    some, alone = (load_parameters(own_folder / name) for name in "pq")
    assert sorted(some.families["gemm"].local) == ["h100-sxm"]
    arrays, others = (load_file(own_folder / f"{name}.safetensors") for name in "pq")
    assert arrays.keys() == others.keys()
    for name, each in arrays.items():
        np.testing.assert_array_equal(each, others[name], err_msg=name)
    assert some.card["adapted"] == alone.card["adapted"]
    assert some.card["command"].endswith("jaxperf calibrate --adapt both.csv --adapt-device H100")


@pytest.mark.long
def test_rates_of_composed_steps_go_with_the_parameters(cli, fitted: Path, own_folder: Path, parse_json) -> None:
    """A device that reaches half of what it ships with takes longer; what was not measured stays as shipped."""
    rows = gemms("h100-sxm", 0.35, tokens=(1, 16, 64, 256, 1024, 4096))
    (own_folder / "own.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    said = parse_json(cli("calibrate", "-o", "p", "--params", fitted, "--adapt", "own.csv", "--json").stdout)
    assert said["sustained"] == {"covered": {"gemm": {"16-bit": ["h100-sxm"]}}, "left": []}
    question = ("estimate", "llama-3.1-8b", "--prompt", "64", "--output", "8", "--json", "--device")
    found, ratios = {}, {}
    for name in ("h100-sxm", "h200-sxm"):
        shipped, own = (parse_json(cli(*question, name, *more).stdout) for more in ((), ("--params", "p")))
        found[name] = own["provenance"]
        ratios[name] = own["metrics"]["tpot"] / shipped["metrics"]["tpot"]
    assert 1.3 < ratios["h100-sxm"] < 2.5 and ratios["h200-sxm"] == 1.0
    assert found["h100-sxm"]["tiers"]["h100-sxm"]["gemm"] == "adapted"
    assert found["h100-sxm"]["as_shipped"]["h100-sxm"] == ["attention_prefill", "attention_decode", "elementwise"]
    assert "(shipped rates where p.sustained.json has none: all of them)" in found["h200-sxm"]["efficiencies"]
    rows_of_its_own = json.loads(Path("p.sustained.json").read_text())["families"]["gemm"]["classes"]["16-bit"]
    assert "origin" not in rows_of_its_own["devices"]["h100-sxm"] and rows_of_its_own["origin"] == "shipped"


def test_intervals_of_few_rows_are_told(fitted: Path) -> None:
    (note,) = json.loads(fitted.with_name("said.json").read_text())["notes"]
    assert note.startswith("gemm: ") and "a 90 % quantile needs 9" in note and "Student" in note


def test_a_family_whose_only_shape_would_be_held_out_is_fitted_whole(cli, own_folder: Path, parse_json) -> None:
    (own_folder / "one.csv").write_text("device,dtype,op,rows,columns,latency_us\nh100-sxm,bf16,rmsnorm,100,4096,10\n")
    result = cli("calibrate", "one.csv", "-o", "p", "--json")
    assert result.exit_code == 0, result.output
    (note,) = parse_json(result.stdout)["notes"]
    assert note.startswith("norm: 0 rows were held out") and "a factor 5 either way" in note
    assert list(load_parameters("p").families) == ["norm"]


def test_an_excluded_device_has_no_shipped_rates_either(fitted: Path) -> None:
    """The fixture has learned nothing from an H100; of the others' 20 rows half are held out."""
    table = load_sustained_table(fitted)
    entries = [entry for each in table.families.values() for entry in each["classes"].values()]
    assert entries and not any("h100-sxm" in entry["devices"] for entry in entries)
    assert table.card["excluded"] == ["H100"]
    note = json.loads(fitted.with_name("said.json").read_text())["sustained"]
    assert note == {"covered": {"gemm": {"16-bit": ["a100-sxm-80gb", "a40"]}}, "left": []}
    own = table.families["gemm"]["classes"]["16-bit"]["devices"]
    assert own["a40"]["half_width"][1] > 0.02 and own["a40"]["rows"] == 20


def test_rates_of_a_processor_are_its_own_alone(cli, fitted: Path, own_folder: Path) -> None:
    """A kind of device that is not shipped: measured software of any name counts, and GPUs keep what they had."""
    rows = gemms("epyc-9654", tokens=(1, 16, 64, 256, 1024))
    (own_folder / "cpu.csv").write_text("\n".join([HEADER, *(row.replace("vllm", "jax") for row in rows)]) + "\n")
    assert cli("calibrate", "-o", "p", "--params", fitted, "--adapt", "cpu.csv").exit_code == 0
    shipped, own = load_sustained_table(), load_sustained_table("p")
    processor, gpu = hwspecs.load("epyc-9654"), hwspecs.load("h200-sxm")
    assert calibration_of(processor, own).tiers["gemm"]["16-bit"] == "adapted"
    before, after = (calibration_of(gpu, table) for table in (shipped, own))
    assert before.tiers == after.tiers
    same = jax.tree.map(lambda a, b: bool((a == b).all()), before.calibrated, after.calibrated)
    assert all(jax.tree.leaves(same))


def test_one_family_is_fitted_anew_and_the_others_carried_over(cli, fitted: Path, own_folder: Path) -> None:
    """The fitted GEMMs stand for what is carried under the name of a family whose law has the same version; the same
    devices half as fast."""
    old = load_parameters(fitted)
    save_parameters(Parameters({"bmm_matrix": old.families["gemm"], **old.families}, old.card), "old")
    write(own_folder / "slow.csv", "a100-sxm-80gb", "a40", reached=0.35)
    result = cli("calibrate", "slow.csv", "-o", "p", "--params", "old", "--family", "gemm")
    assert result.exit_code == 0, result.output
    found = load_parameters("p")
    assert sorted(found.families) == ["bmm_matrix", "gemm"]
    families = (old.families["gemm"], found.families["bmm_matrix"], found.families["gemm"])
    before, kept, anew = (float(each.model.law.compute) for each in families)
    assert kept == before != anew
    command = "jaxperf calibrate slow.csv --family gemm"
    assert found.card["fits"]["gemm"]["command"] == command and found.card["command"].endswith(f" && {command}")
    assert found.card["fits"]["bmm_matrix"]["command"] == old.card["command"]


def test_a_folder_is_read_file_by_file(cli, fitted: Path, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each table once, also where it is named beside its folder; what is no table of kernels is named."""
    asked: dict[str, Any] = {}

    def fit(reads: Any, exclude: Any, settings: Settings, *rest: Any, **named: Any) -> Parameters:
        asked.update(files=[Path(read.path).name for read in reads], exclude=list(exclude), seed=settings.seed)
        return load_parameters(fitted)

    monkeypatch.setattr(calibration.kernels.calibrate, "calibrate", fit)
    folder = own_folder / "data"
    folder.mkdir()
    write(folder / "b.csv", "a40")
    write(folder / "a.tsv", "h100-sxm").write_text((folder / "b.csv").read_text().replace(",", "\t"))
    (folder / "trace.csv").write_text("time,tokens\n1,2\n")
    (folder / "wanted.csv").write_text("device,m,n,k\na40,1,1,1\n")
    (folder / "notes.md").write_text("no table")
    result = cli("calibrate", folder / "b.csv", folder, "-o", "p", "--seed", "7", "--exclude-device", "a40")
    assert result.exit_code == 0, result.output
    assert asked == {"files": ["b.csv", "a.tsv"], "exclude": ["a40"], "seed": 7}
    left_out = [line for line in result.stderr.splitlines() if line.startswith("left out: ")]
    assert len(left_out) == 2 and "trace.csv" in left_out[0] and "wanted.csv has no measured times" in left_out[1]
    assert json.loads(Path("p.json").read_text())["command"].endswith("--seed 7")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Nothing to learn from"),
        (("gemm.csv", "--params", "p"), "give one of them"),
        (("gemm.csv", "--params", "odd", "--family", "gemm"), "'errors' that are no table"),
        (("--adapt", "gemm.csv", "--seed", "1"), "belong to a fit"),
        (("gemm.csv", "--adapt-device", "a40"), "give one with --adapt TABLE"),
        (("--adapt", "gemm.csv", "--adapt-device", "a4"), "--adapt-device: 'a4' is not a known device"),
        (("--adapt", "gemm.csv", "--adapt-device", "l40s"), "--adapt-device: the data has no row of 'l40s'"),
        (("--adapt", "gemm.csv", "--params", "none"), "none.safetensors"),
        (("--adapt", "norm.csv", "--params", "FITTED"), "Nothing to adapt with in norm.csv (norm)"),
        (("--adapt", "nobody.csv", "--params", "FITTED"), "A device of your own needs a TOML file"),
        (("gemm.csv", "--seed", "-1"), "--seed is -1"),
        (("gemm.csv", "--devices-dir", "empty"), "give the table of your own device to --adapt"),
        (("--adapt", "gemm.csv", "--devices-dir", "none"), "none is not a directory"),
        (("gemm.csv", "--family", "gem"), "'gem' is not a family. Did you mean gemm"),
        (("gemm.csv", "--family", "collective"), "collective has no model to fit"),
        (("gemm.csv", "--family", "moe"), "the data has no row of moe; it has gemm"),
        (("gemm.csv", "--exclude-device", "h100-sxn"), "Did you mean h100-sxm"),
        (("gemm.csv", "--exclude-device", "l40s"), "the data has no row of 'l40s'"),
        (("gemm.csv", "--exclude-device", "a40"), "No usable row"),
        (("nobody.csv",), "No usable row"),
        (("none.csv",), "No such file"),
        (("wanted.csv",), "wanted.csv has no measured times"),
        (("lacks.csv",), "'k' is missing"),
        (("shapeless.json",), "names kernels but not their shapes"),
        (("nccl.log",), "holds collectives"),
        (("empty",), "empty holds no table"),
        (("useless",), "No table of measured kernels in useless"),
    ],
)
def test_refused(refuse, fitted: Path, own_folder: Path, arguments: tuple[str, ...], said: str) -> None:
    write(own_folder / "gemm.csv", "a40")
    (own_folder / "norm.csv").write_text("device,op,rows,columns,latency_us\na40,norm,16,16,3\n")
    (own_folder / "nobody.csv").write_text("m,n,k,latency_us\n16,16,16,3\n")
    (own_folder / "wanted.csv").write_text("device,m,n,k\na40,1,1,1\n")
    (own_folder / "lacks.csv").write_text("device,m,n,latency_us\na40,1,1,1\n")
    trace = {"traceEvents": [{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 2, "dur": 40.0}]}
    (own_folder / "shapeless.json").write_text(json.dumps(trace))
    (own_folder / "nccl.log").write_text(NCCL)
    save_parameters(Parameters({}, {"errors": [{"family": 3}]}), own_folder / "odd")
    (own_folder / "empty").mkdir()
    (own_folder / "useless").mkdir()
    (own_folder / "useless" / "trace.csv").write_text("time,tokens\n1,2\n")
    given = [str(fitted) if each == "FITTED" else each for each in arguments]
    assert said in refuse("calibrate", *given, "-o", "p")
    assert not any((own_folder / name).exists() for name in FILES)


def test_a_profile_with_shapes_adapts(cli, fitted: Path, own_folder: Path) -> None:
    product = {"External id": 1, "Input Dims": [[512, 4096], [4096, 4096]], "Input type": ["c10::BFloat16"] * 2}
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 9, "args": product},
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 2, "dur": 40.0, "args": {"External id": 1}},
    ]
    trace = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], "traceEvents": events}
    (own_folder / "trace.json").write_text(json.dumps(trace))
    assert cli("calibrate", "-o", "p", "--params", fitted, "--adapt", "trace.json").exit_code == 0
    (cell,) = load_parameters("p").families["gemm"].local["h100-sxm"].names.known["cell"]
    assert cell.startswith("h100-sxm/torch_profiler/")


@pytest.mark.parametrize("out", ["nowhere/p", "folder", ".", ".."])
def test_an_output_that_cannot_be_written_is_refused_first(refuse, own_folder: Path, out: str) -> None:
    (own_folder / "folder.json").mkdir()
    assert "Cannot write" in refuse("calibrate", "not-even-read.csv", "-o", out)


def test_a_loop_of_links_is_no_table(refuse, own_folder: Path) -> None:
    (own_folder / "loop.csv").symlink_to("loop.csv")
    said = refuse("calibrate", "--adapt", "loop.csv", "-o", "p")
    assert said == "jaxperf: Cannot read 'loop.csv': Too many levels of symbolic links.\n"


def test_a_card_of_a_table_is_not_written_over(refuse, own_folder: Path) -> None:
    (own_folder / "mine.json").write_text('{"schema": 1, "table": "mine.parquet"}')
    assert "'mine.json' is the card of a measured table" in refuse("calibrate", "not-even-read.csv", "-o", "mine")


def test_ctrl_c_leaves_what_was_there(cli, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(calibration.kernels.calibrate, "fit", interrupted)
    write(own_folder / "gemm.csv", "a40")
    for name in FILES:
        (own_folder / name).write_text("older")
    assert cli("calibrate", "gemm.csv", "-o", "p").exit_code == 130
    assert [(own_folder / name).read_text() for name in FILES] == ["older"] * 3
    assert sorted(path.name for path in own_folder.iterdir()) == ["gemm.csv", *FILES]


def test_ctrl_c_keeps_the_families_that_were_fitted(cli, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = calibration.kernels.calibrate.calibrate_family, []

    def second_is_interrupted(*arguments: Any) -> Any:
        asked.append(arguments)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(calibration.kernels.calibrate, "calibrate_family", second_is_interrupted)
    write(own_folder / "gemm.csv", "a40", "h100-sxm")
    norms = [f"a40,torch,2.4,norm,norm,fp16,{1 << n},4096,{n + 3}" for n in range(12)]
    (own_folder / "norm.csv").write_text(
        "\n".join(["device,framework,version,kernel,op,dtype,rows,columns,latency_us", *norms])
    )
    (own_folder / "p.json").write_text("older")
    stopped = cli("calibrate", "gemm.csv", "norm.csv", "-o", "p")
    assert stopped.exit_code == 130 and (own_folder / "p.json").read_text() == "older"
    assert "What was fitted (gemm) is in p.unfinished" in stopped.stderr
    assert "--params p.unfinished --family norm in the place" in stopped.stderr
    part = load_parameters("p.unfinished")
    went_on = cli("calibrate", "gemm.csv", "norm.csv", "-o", "p", "--params", "p.unfinished", "--family", "norm")
    assert went_on.exit_code == 0, went_on.output
    whole = load_parameters("p")
    assert not list(own_folder.glob("*unfinished*"))  # nothing is in it that p lacks
    assert set(whole.families) == {"gemm", "norm"} and set(part.families) == {"gemm"}
    assert whole.card["fits"]["gemm"]["command"] == part.card["command"] == "jaxperf calibrate gemm.csv norm.csv"
    asked.clear()  # interrupted in a refit, what was not fitted yet is that of --params
    again = cli("calibrate", "gemm.csv", "norm.csv", "-o", "q", "--params", "p", "--family", "gemm", "--family", "norm")
    assert again.exit_code == 130
    assert set(load_parameters("q.unfinished").families) == {"gemm", "norm"}


def test_a_full_disk_is_one_sentence(refuse, own_folder: Path, fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, body: bytes) -> None:
        raise OSError(28, "No space left on device")

    write(own_folder / "few.csv", "h100-sxm")
    monkeypatch.setattr(calibration.kernels.adapt, "adapt", lambda parameters, reads, directories: _touched(parameters))
    monkeypatch.setattr("calibration.stored.write_whole", full)
    said = refuse("calibrate", "-o", "p", "--params", fitted, "--adapt", "few.csv")
    assert said == "jaxperf: Cannot write 'p': No space left on device.\n"


def _touched(parameters: Parameters) -> Parameters:
    """As if every family had been adapted."""
    families = {name: dataclasses.replace(each) for name, each in parameters.families.items()}
    return dataclasses.replace(parameters, families=families)


def test_parameters_round_trip(fitted: Path, own_folder: Path) -> None:
    """What one command writes another reads back to the same bytes."""
    save_parameters(load_parameters(fitted), own_folder / "again")
    for ending in (".safetensors", ".json"):
        assert (own_folder / f"again{ending}").read_bytes() == Path(f"{fitted}{ending}").read_bytes()
