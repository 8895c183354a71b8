"""Iterations from kernels: the composition recovered from synthetic times, the interval, the ten operations, rows."""

from __future__ import annotations

import dataclasses
import functools
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import hwspecs
from calibration.composition import graph_kernels, node_times
from calibration.composition.evaluate_graphs import LEFT_OUT, SPLITS, Result, cells, width_of
from calibration.composition.graph_parameters import load_graphs, save_graphs
from calibration.composition.graphs import PRIORS, Batch, Sample, fit_composition, iterations
from calibration.composition.kernel_times import ROCM, framework_on, kernel_times, nameless
from calibration.composition.node_times import check_nodes, read_node_times, shared_part, table_times
from calibration.composition.predict_graphs import GraphParameters, Prediction, Width
from calibration.composition.row_graphs import Graphs, number_of_layers, vocabulary, with_loss
from calibration.composition.rows import Row, read_rows
from calibration.composition.ten_operations import ten_operations
from calibration.kernels.levels import Names
from calibration.kernels.parameters import Parameters, load_parameters
from hwspecs.errors import InputError
from jaxperf.models.composition import Composition
from jaxperf.models.graph import Graph, Node, Op
from jaxperf.models.graph_steps import Laid, lay_out
from tests.calibration.tables import as_read, blank_table, gemm_table, with_latency

TRUE = {"dense": 0.95, "stream": 0.9, "backward_dense": 1.03, "backward_stream": 0.9, "accumulate": 1.0}


pytestmark = pytest.mark.usefixtures("plain_jax")


def layered(layers: float, width: float) -> Laid:
    """A stack of products and sums, trained."""
    gemm = Op("gemm", {"m": 512.0, "n": width, "k": width}, note="linear")
    add = Op("elementwise", {"elements_in": 1024 * width, "elements_out": 512 * width, "rows": 512.0}, note="add")
    update = Op("elementwise", {"elements_in": 2 * width**2, "elements_out": width**2, "rows": 1.0}, note="add")
    nodes = (
        Node("a", forward=(gemm,), backward=(gemm, gemm), accumulate=(update,), repeats=layers),
        Node("b", forward=(add,), backward=(add,), before=("a",), repeats=layers),
    )
    return lay_out(Graph(f"{layers}", nodes), multiple=16)


def row(place: int = 0, **fields: object) -> Row:
    given = {"device": "t4", "model": "m", "mode": "train", "seq": 512, "batch": 1, "variant": "plain", "reason": ""}
    return Row(**{"place": place, **given, **fields})


def synthetic(seed: int) -> list[Sample]:
    """Iterations of a known composition, on four devices of different speed of products and of memory."""
    generator = np.random.default_rng(seed)
    found = []
    for device in ("t4", "l4", "p100-pcie-16gb", "v100-pcie-32gb"):
        for layers, width in ((12.0, 256.0), (24.0, 512.0), (48.0, 1024.0)):
            laid = layered(layers, width)
            times = 1e-3 * generator.uniform(0.2, 3.0, len(laid.ops))
            found.append(Sample(row(len(found), device=device), laid, times, 0.7 * times, 5e-5))
    truth = {name: math.exp(mean) for name, (mean, _) in PRIORS["plain"].items()} | TRUE
    answers = iterations(Batch(found), Composition(**truth))
    return [
        dataclasses.replace(
            sample,
            row=dataclasses.replace(
                sample.row, label=float(answers.time[at]), label_forward=float(answers.time[at] - answers.backward[at])
            ),
        )
        for at, sample in enumerate(found)
    ]


def test_the_fit_recovers_a_known_composition():
    fitted = fit_composition(Batch(synthetic(0)), "plain")
    for name, value in TRUE.items():
        if name != "accumulate":  # a small part of these iterations
            assert float(getattr(fitted, name)) == pytest.approx(value, rel=0.04), name
    unseen = synthetic(1)
    found = np.asarray(iterations(Batch(unseen), fitted).time)
    assert np.abs(found / [sample.row.label for sample in unseen] - 1.0).max() < 0.03


def test_without_rows_the_composition_is_its_prior():
    for variant, priors in PRIORS.items():
        fitted = fit_composition(None, variant)
        assert all(float(getattr(fitted, name)) == pytest.approx(math.exp(mean)) for name, (mean, _) in priors.items())
    alone = Batch([sample for sample in synthetic(0) if sample.row.device == "t4"])
    assert float(fit_composition(alone, "plain", without="t4").dense) == pytest.approx(1.0)


# --- intervals --------------------------------------------------------------------------------------------------------


def result(device: str, residual: float, split: str = LEFT_OUT, common: float = 0.04, separate: float = 0.01) -> Result:
    prediction = Prediction(math.exp(residual), 1.0, 1.0, 0.0, 0.5, common, separate, "transfer")
    return Result(split, row(device=device, label=1.0, peers=(1.1, math.nan, 2.0, 0.5)), prediction)


def test_sigma_adds_the_common_error_linearly_and_the_separate_ones_in_square():
    prediction = result("t4", 0.0).prediction
    assert prediction.sigma(Width(1.0, 0.0, {})) == pytest.approx(0.2)
    assert prediction.sigma(Width(0.0, 0.0, {})) == pytest.approx(0.1)
    assert prediction.sigma(Width(0.5, 0.3, {})) == pytest.approx(math.sqrt(0.5 * 0.04 + 0.5 * 0.01 + 0.09))


def test_kappa_covers_nine_of_ten_devices():
    generator = np.random.default_rng(0)
    made = [
        result(f"device-{device}", float(error), split)
        for split in SPLITS
        for device in range(20)
        for error in 0.2 * generator.standard_normal() + 0.02 * generator.standard_normal(6)
    ]
    width = width_of(made, rho=1.0)
    assert set(width.kappa) == {"transfer", "adapted", "measured"}
    inside = [abs(each.residual) <= width.half(each.prediction) for each in made if each.split == LEFT_OUT]
    assert 0.88 <= np.mean(inside) <= 1.0
    assert width.composition == pytest.approx(0.02, rel=0.4)


def test_cells_state_every_tool_and_the_coverage():
    made = [result(name, residual) for name in ("t4", "l4", "p4") for residual in (-0.1, 0.1)]
    table = {(cell["split"], cell["device"]): cell for cell in cells(made, rho=1.0)}
    assert set(table) == {(LEFT_OUT, name) for name in ("t4", "l4", "p4", "pooled")}
    whole = table[LEFT_OUT, "pooled"]
    assert whole["rows"] == 4  # the labels of the P4 are not believed
    assert whole["error"] == pytest.approx(50 * (math.exp(0.1) - math.exp(-0.1)))
    assert whole["neusight"] == pytest.approx(10.0) and math.isnan(float(str(whole["habitat"])))
    assert whole["micro"] == pytest.approx(100.0) and whole["roofline"] == pytest.approx(50.0)
    assert whole["coverage90"] == 100.0


def test_shared_part_is_a_share_of_variance():
    generator = np.random.default_rng(0)
    same = {str(device): list(np.full(5, value)) for device, value in enumerate(generator.standard_normal(8))}
    assert shared_part(same) == pytest.approx(1.0)
    own = {str(device): list(generator.standard_normal(400)) for device in range(8)}
    assert shared_part(own) < 0.03
    assert shared_part({"one": [0.1, 0.2]}) == 1.0


# --- kernels ----------------------------------------------------------------------------------------------------------


def test_every_operation_has_its_time_on_every_device():
    ops = [
        Op("gemm", {"m": 4096, "n": 4096, "k": 4096}, note="linear"),
        Op("memory", {"bytes_in": 1e9, "bytes_out": 1e9}, note="sort"),
        Op("elementwise", {"elements_in": 5e8, "elements_out": 2.5e8, "rows": 1000}, note="add"),
    ]
    found = kernel_times(ops, ["v100-pcie-32gb", "t4"], load_parameters())
    assert found.predicted.shape == (2, 3) and np.isfinite(found.predicted).all()
    assert (found.lower <= found.predicted).all() and (found.predicted <= found.upper).all()
    # 2 x 4096^3 FLOP at 14 TFLOP/s (V100 PCIe datasheet); 2 GB at 900 GB/s
    assert found.roofline[0, 0] == pytest.approx(2 * 4096**3 / 14e12, rel=0.03)
    assert found.roofline[0, 1] == pytest.approx(2e9 / 900e9, rel=0.01)
    assert (found.predicted[1] > found.predicted[0]).all()
    assert found.unlimited[1, 0] < 0.9 * found.predicted[1, 0]  # of the 70 W that the T4 may draw
    assert (found.unlimited[:, 1:] == found.predicted[:, 1:]).all()


def test_names_of_kernels_are_left_out():
    table = blank_table("gemm", {name: np.ones(2) for name in ("batch", "m", "n", "k")}, np.full(2, "t4", object))
    (bare,) = nameless(as_read(with_latency(table, np.ones(2)))).tables
    assert set(bare.kernel) == set(bare.version) == {""}
    assert set(table.kernel) == {"linear"} and set(bare.framework) == {"vllm"}


def test_kernels_that_stream_belong_to_their_build():
    devices = np.array(["t4", "mi100"], object)
    shape = {name: np.ones(2) for name in ("elements_in", "elements_out", "rows")}
    read = as_read(with_latency(blank_table("elementwise", shape, devices), np.ones(2)))
    assert nameless(read).tables[0].framework.tolist() == ["vllm", "vllm" + ROCM]
    assert set(nameless(read, parameters=load_parameters()).tables[0].framework) == {"vllm"}
    fitted = load_parameters().families["elementwise"]
    mi100 = hwspecs.load("mi100")
    for known, expected in ((("torch",), "torch"), (("torch", "torch" + ROCM), "torch" + ROCM)):
        names = Names({**fitted.names.known, "framework": known})
        told = Parameters({"elementwise": dataclasses.replace(fitted, names=names)}, {})
        asked = functools.partial(framework_on, framework="torch", parameters=told)
        assert asked(mi100, "elementwise") == expected
        assert asked(mi100, "gemm") == asked(hwspecs.load("t4"), "elementwise") == "torch"


def test_the_ten_operations_are_those_nearest_to_the_heaviest():
    laid = layered(2.0, 512.0)
    sizes = np.array([16.0, 500.0, 512.0, 8192.0])
    shape = {"batch": np.ones(4), "m": np.full(4, 512.0), "n": sizes, "k": sizes}
    table = with_latency(blank_table("gemm", shape, np.full(4, "t4", object), "fp32"), np.ones(4))
    one = row(device="t4")
    found = ten_operations([as_read(table)], "t4", [one], {one.configuration: laid}, load_parameters())
    assert found is not None
    assert list(found.tables[0].shape["n"]) == [512.0]
    assert ten_operations([as_read(table)], "l4", [one], {one.configuration: laid}, load_parameters()) is None


# --- files ------------------------------------------------------------------------------------------------------------


def test_rows_say_why_they_cannot_be_predicted(tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_text(
        "device,model,mode,seq,batch,variant,label_ms\n"
        "Tesla T4,bert_large,inf,512,8,plain,700\n"
        "NVIDIA_H100_PCIe,gpt2_large,train,1024,2,,\n"
        "Tesla T5,bert_large,inf,512,8,plain,700\n"
        "Tesla T4,bert_large,predict,512,8,plain,700\n"
        "Tesla T4,bert_large,inf,512,0.5,plain,700\n"
        "Tesla T4,gpt2_large,train,1024,4,ep4,700\n"
        "Tesla T4,gpt2_large,train,1e200,4,,700\n"
    )
    rows = read_rows(path)
    assert [each.place for each in rows] == list(range(7))
    assert rows[0].device == "t4" and rows[0].label == pytest.approx(0.7) and rows[0].reason == ""
    assert rows[0].file == "bert_large-inf-512-8.csv"
    assert rows[1].variant == "plain" and math.isnan(rows[1].label) and rows[1].reason == ""
    reasons = (
        "'Tesla T5' is not a known device",
        "mode 'predict'",
        "batch is not a whole number",
        "'ep4' is neither",
        "seq is not a whole number",
    )
    for each, reason in zip(rows[2:], reasons, strict=True):
        assert reason in each.reason


def test_the_device_may_be_called_gpu(tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_text("gpu,model,mode,seq,batch\nTesla T4,gpt2_large,inf,512,8\n,gpt2_large,inf,512,8\n")
    known, none = read_rows(path)
    assert (known.device, known.reason, none.reason) == ("t4", "", "the device is not given")
    path.write_text("device,gpu,model,mode,seq,batch\nt4,Tesla T4,m,inf,1,1\n,t4,m,inf,1,1\na40,t4,m,inf,1,1\n")
    same, other, both = read_rows(path)
    assert same.device == other.device == "t4" and "'device' says a40 and 'gpu' t4" in both.reason


def test_bad_tables_of_rows_are_refused(tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_text("devices,model,mode,seq,batch\nt4,m,inf,1,1\n")
    with pytest.raises(InputError, match="no column 'device'.*Did you mean devices"):
        read_rows(path)
    path.write_text("device,model,mode,sequence,batch\nt4,m,inf,1,1\n")
    with pytest.raises(InputError, match="no column 'seq'.*Did you mean sequence"):
        read_rows(path)
    path.write_text("device,model,mode,seq,batch\n")
    with pytest.raises(InputError, match="has no rows"):
        read_rows(path)
    with pytest.raises(InputError, match="is not a folder of graphs"):
        Graphs(tmp_path / "absent")


def test_a_model_without_a_graph_says_so():
    graph, reason = Graphs().of(row(model="no-such-model"))
    assert graph is None and reason.startswith("no graph: ")
    assert number_of_layers("gpt2_large") == 36 and number_of_layers("no-such-model") is None


def test_a_measured_backward_pass_begins_with_that_of_a_loss():
    """Of log-softmax over the token table's rows: zeros, one entry a row, and dY with the output (4 tensors moved)."""
    trained, _ = Graphs().of(row(model="gpt2_large", seq=64, batch=2))
    asked, _ = Graphs().of(row(model="gpt2_large", mode="inf", seq=64, batch=2))
    assert trained is not None and asked is not None
    loss, scores = trained.nodes[-1], 2 * 64 * 50257
    assert (loss.name, loss.forward, loss.accumulate) == ("loss", (), ())
    moved = sum(op.shape["elements_in"] + op.shape["elements_out"] for op in loss.backward)
    assert moved == pytest.approx(4 * scores, rel=1e-3)
    assert loss.before == (trained.nodes[-2].name,) and loss.parameter_bytes == 0
    assert all(node.name != "loss" for node in asked.nodes)
    assert with_loss(trained, row(model="gpt2_large")) is trained
    assert [vocabulary(name) for name in ("gpt2_large", "bert_large", "no-such-model")] == [50257, 30522, 0]


def test_a_compiled_graph_is_built_where_the_model_is_known(tmp_path: Path):
    """A file's fused graph joins only operations with one reader; that of an unknown model is all there is."""
    header = "Name,OpName,FwOps,BwOps,AccOps,Prev,Next,InputShapes,OutputShape\n"
    for model in ("gpt2_large", "tiny"):
        (tmp_path / f"{model}-inf-64-1-fusion.csv").write_text(
            header + 'add~ln,fused,"[[\'VECadd\', (16, 8)]]",[],[],set(),set(),"[(2, 8, 8)]","(2, 8, 8)"\n'
        )
    graphs = Graphs(tmp_path)
    asked = {"mode": "inf", "seq": 64, "variant": "fusion"}
    known, note = graphs.of(row(model="gpt2_large", **asked))
    unknown, silent = graphs.of(row(model="tiny", **asked))
    assert (note, silent) == ("the graph is built; gpt2_large-inf-64-1-fusion.csv is not used", "")
    assert known is not None and unknown is not None
    assert len(unknown.nodes) == 1
    for spelled in ("gpt2-large", "GPT2_Large"):
        assert graphs.of(row(model=spelled, **asked))[1] == note
    assert graphs.of(row(model="gpt2", **asked))[1] == ""
    inside = [node for node in known.nodes if "gelu" in node.name]
    assert [len(node.forward) for node in inside] == [1] and inside[0].kind == "fused"


def test_node_times_by_device_and_configuration(tmp_path: Path):
    path = tmp_path / "nodes.csv"
    path.write_text("Name,fw_ms,bw_ms,acc_ms,device,cfg\na,1.5,2,0,Tesla_T4,bert_large-inf-512-8\n")
    nodes = read_node_times(path)
    assert nodes["t4", "bert_large-inf-512-8"]["a"] == {"forward": 1.5e-3, "backward": 2e-3, "accumulate": 0.0}
    path.write_text("Name,fw_ms\na,1\n")
    with pytest.raises(InputError, match="no column 'device'"):
        read_node_times(path)


def test_nodes_are_put_beside_predictions_and_the_table(monkeypatch: pytest.MonkeyPatch):
    predicted = SimpleNamespace(predicted=np.array([[3e-4]]))
    monkeypatch.setattr(node_times, "kernel_times", lambda *_: predicted)
    shape = {name: np.array([512.0]) for name in ("m", "n", "k")} | {"batch": np.ones(1)}
    table = with_latency(blank_table("gemm", shape, np.full(1, "t4", object), "fp32"), np.array([4e-4]))
    product = Op("gemm", {"m": 512.0, "n": 512.0, "k": 512.0}, note="linear")
    asked, graph = row(model="m", mode="inf"), Graph("g", (Node("a", forward=(product,), repeats=3.0),))
    measured = {"a": {"forward": 2e-4, "backward": 0.0, "accumulate": 0.0}}
    nodes, unused = {("t4", "m-inf-512-1"): measured}, Parameters({}, {})
    found = check_nodes(asked, graph, nodes, unused, table_times([as_read(table)]))
    assert found is not None
    assert (found.predicted, found.measured) == pytest.approx((9e-4, 6e-4))
    assert found.residuals == pytest.approx([math.log(1.5)])
    assert found.again == pytest.approx([math.log(0.5)])
    assert check_nodes(asked, graph, {}, unused) is None


def test_parameters_come_back_as_they_were_stored(tmp_path: Path):
    kernels = load_parameters()
    compositions = {variant: fit_composition(None, variant) for variant in PRIORS}
    width = Width(0.4, 0.05, {"transfer": 2.0, "measured": 1.5})
    save_graphs(GraphParameters(compositions, kernels, width, {"created": "2026-11-21"}), tmp_path / "own")
    found = load_graphs(tmp_path / "own")
    assert found.width == width and found.card["created"] == "2026-11-21"
    assert float(found.compositions["fusion"].node) == pytest.approx(float(compositions["fusion"].node))
    body = bytearray((tmp_path / "own.safetensors").read_bytes())
    body[-1] ^= 1
    (tmp_path / "own.safetensors").write_bytes(bytes(body))
    with pytest.raises(InputError, match="checksum"):
        load_graphs(tmp_path / "own")
    with pytest.raises(InputError, match="Cannot read.*refit_graphs"):
        load_graphs(tmp_path / "absent")


@pytest.mark.long
def test_kernels_without_a_device_do_not_know_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tiny = dataclasses.replace(graph_kernels.SETTINGS, steps=5, law_steps=5, widths=(4,))
    monkeypatch.setattr(graph_kernels, "SETTINGS", tiny)
    reads = [nameless(as_read(gemm_table(90)))]
    every = load_parameters()
    found = graph_kernels.kernels_without(reads, ["l40s"], every, tmp_path, lambda _: None)["l40s"]
    assert set(found.families) == {"gemm"}
    assert found.families["gemm"].names.known["device"] == ("a100-sxm-80gb", "h100-sxm")
    assert float(found.families["gemm"].model.correction.share) == graph_kernels.SHARE
    kept = graph_kernels.kernels_without(reads, ["l40s"], every, tmp_path, pytest.fail)["l40s"]
    assert kept.families["gemm"].names == found.families["gemm"].names
