"""`jaxperf trace` and `jaxperf estimate --onnx`: breakdowns on screen and in files, and what is refused."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibration.composition.graph_parameters import load_compositions
from jaxperf.cli.composed import compose
from jaxperf.models.graph import Graph, Node, Op
from jaxperf.report.operations import Price

MODULE = """
import jax
import jax.numpy as jnp

def mlp(x, up, down):
    return jax.nn.gelu(x @ up) @ down

def loss(p, x):
    return mlp(x, p["up"], p["down"]).astype(jnp.float32).sum()

gradient = jax.grad(loss)
number = 3

def arguments():
    S, b16 = jax.ShapeDtypeStruct, jnp.bfloat16
    return {"up": S((256, 1024), b16), "down": S((1024, 256), b16)}, S((512, 256), b16)

def spectrum(x):
    return jnp.fft.fft(x)

def branching(x):
    return x if x.sum() > 0 else -x
"""
SHAPES = "f32[512,256],f32[256,1024],f32[1024,256]"


@pytest.fixture
def module(own_folder: Path) -> Path:
    path = own_folder / "users_model.py"
    path.write_text(MODULE)
    return path


@pytest.fixture
def onnx_file(own_folder: Path) -> Path:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weight = onnx.TensorProto(name="w", dims=[256, 1024], data_type=kind, raw_data=bytes(4 * 256 * 1024))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="up"), helper.make_node("Relu", ["h"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", kind, ["batch", "tokens", 256])]
    outputs = [helper.make_tensor_value_info("y", kind, None)]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, [weight]))
    path = own_folder / "mlp.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def trace(*arguments: Any) -> tuple[Any, ...]:
    return ("trace", *arguments, "--device", "h100-sxm")


def test_a_function_by_file_as_json(cli, parse_json, module: Path) -> None:
    result = cli(*trace(f"{module}:mlp", "--shapes", SHAPES, "--json"))
    assert result.exit_code == 0, result.output
    answer = parse_json(result.stdout)
    rows, totals = answer["rows"], answer["totals"]
    assert [row["family"] for row in rows] == ["gemm", "elementwise", "gemm"]
    assert totals["product_flops"] == 2 * 2 * 512 * 256 * 1024
    assert totals["time"] == pytest.approx(sum(row["time"] for row in rows))
    assert sum(row["share"] for row in rows) == pytest.approx(1.0)
    for row in rows:
        assert row["lower"] <= row["time"] <= row["upper"]
        assert row["limiter"] in ("compute", "memory", "latency")
        assert row["tier"] in ("measured", "adapted", "transfer", "roofline")
    assert totals["operations"] == totals["launches"] == 3
    assert totals["inputs_bytes"] == 4 * (512 * 256 + 2 * 256 * 1024)
    assert totals["peak_activation_bytes"] == 2 * 4 * 512 * 1024  # both sides of the GELU


def test_a_gradient_by_module_with_shapes_of_a_pytree(cli, module: Path) -> None:
    result = cli(*trace("users_model:gradient", "--shapes", "users_model:arguments"))
    assert result.exit_code == 0, result.output
    assert "users_model:gradient on h100-sxm" in result.stdout
    assert result.stdout.count("dot_general") >= 2
    assert "bf16" in result.stdout and "share" in result.stdout and "limited by" in result.stdout
    assert "kernels back to back" in result.stdout


def test_files_hold_every_operation_and_the_picture_is_drawn(cli, own_folder: Path, module: Path) -> None:
    out, picture = own_folder / "rows.csv", own_folder / "rows.png"
    result = cli(*trace(f"{module}:mlp", "--shapes", SHAPES, "-o", out, "--plot", picture, "--quiet"))
    assert result.exit_code == 0, result.output
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["operation"] for row in rows] == ["dot_general", "fused", "dot_general"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "note" not in result.stdout


def test_without_fusion_every_step_is_a_kernel(cli, parse_json, module: Path) -> None:
    command = trace(f"{module}:mlp", "--shapes", SHAPES, "--json")
    fused, apart = (parse_json(cli(*command, *more).stdout) for more in ((), ("--no-fusion",)))
    assert len(apart["rows"]) > len(fused["rows"]) == 3
    assert apart["totals"]["bytes_moved"] > fused["totals"]["bytes_moved"]
    assert apart["totals"]["flops"] == fused["totals"]["flops"]
    assert apart["totals"]["time"] > fused["totals"]["time"]


@pytest.mark.parametrize(("device", "dtype"), [("h100-sxm", "tf32"), ("v100-sxm-32gb", "fp32"), ("tpu-v5p", "bf16")])
def test_fp32_is_multiplied_as_the_device_does(cli, parse_json, module: Path, device: str, dtype: str) -> None:
    command = ("trace", f"{module}:mlp", "--shapes", SHAPES, "--json", "--device", device)
    rows = parse_json(cli(*command).stdout)["rows"]
    assert [row["dtype"] for row in rows] == [dtype, "fp32", dtype]
    assert all(row["time"] >= row["roofline"] * 0.99 for row in rows)


def test_an_eager_host_is_what_many_short_kernels_wait_for(cli, parse_json, module: Path) -> None:
    """Three launches of 7 us (assumed) for kernels of a few: the last kernel ends after the last launch."""
    command = trace(f"{module}:mlp", "--shapes", "f32[8,8],f32[8,8],f32[8,8]", "--json")
    graph, eager = (parse_json(cli(*command, "--launch", mode).stdout) for mode in ("graph", "eager"))
    assert graph["whole"]["time"] == pytest.approx(graph["totals"]["time"], rel=1e-5)
    assert graph["whole"]["host"] == 0.0
    assert eager["whole"]["host"] == pytest.approx(3 * 7e-6, rel=1e-5)
    assert eager["whole"]["time"] >= max(3 * 7e-6, graph["whole"]["time"])
    fitted = parse_json(cli(*command, "--launch", "eager", "--framework", "PyTorch").stdout)
    assert fitted["framework"] == "torch"
    assert "fitted on measured iterations of PyTorch" in fitted["whole"]["source"]
    assert fitted["whole"]["time"] > graph["whole"]["time"]
    for answer in (graph, eager, fitted):
        assert answer["whole"]["lower"] <= answer["whole"]["time"] <= answer["whole"]["upper"]


def test_a_program_keeps_the_limit_of_power_as_a_whole() -> None:
    """A product of 2 s at full clock takes 4 s alone, c = 2 and p = (4^4 - 2^4)^(1/4); the stream of 1 s beside it
    draws u of the limit: |(c + (1 - u^4)^(1/4), p + u)|. Without a limit the times add up."""
    product = Op("gemm", {"batch": 1.0, "m": 1.0, "n": 1.0, "k": 1.0})
    stream = Op("elementwise", {"elements_in": 1.0, "elements_out": 1.0, "rows": 1.0})
    draw = float(load_compositions()["fusion"].draw)
    graph = Graph("two", (Node("a", "a", forward=(product,)), Node("b", "b", forward=(stream,), before=("a",))))

    def whole(unlimited: float) -> dict[str, Any]:
        times = ((product, 4.0, unlimited), (stream, 1.0, 1.0))
        prices = {op.key: Price(t, t, 2.0 * t, t, free, "fp32", "", "measured", "") for op, t, free in times}
        return compose(graph, prices, "graph", "")

    power = (4.0**4 - 2.0**4) ** 0.25
    expected = ((2.0 + (1.0 - draw**4) ** 0.25) ** 4 + (power + draw) ** 4) ** 0.25
    assert 4.0 < expected < 5.0
    limited, free = whole(2.0), whole(4.0)
    assert limited["time"] == pytest.approx(expected, rel=1e-5)
    assert limited["upper"] == pytest.approx(2.0 * expected, rel=1e-5)
    assert free["time"] == pytest.approx(5.0, rel=1e-6)


def test_a_product_alone_has_its_own_limit_of_power(cli, parse_json) -> None:
    command = ("trace", "jax.numpy:matmul", "--shapes", "f32[8192,4096],f32[4096,8192]", "--device", "l4", "--json")
    alone = parse_json(cli(*command).stdout)
    assert alone["whole"]["time"] == pytest.approx(alone["totals"]["time"], rel=1e-5)


def test_what_has_no_time_is_said_first(cli, parse_json, module: Path) -> None:
    """A TPU multiplies no fp64: both products are left out of the sum, and the first line says so."""
    command = ("trace", f"{module}:mlp", "--shapes", SHAPES.replace("f32", "f64"), "--device", "tpu-v5p")
    first = cli(*command).stdout.splitlines()[0]
    assert "without 2 of 3 operations, which have no time there" in first
    answer = parse_json(cli(*command, "--json").stdout)
    assert answer["totals"]["without_time"] == 2 and answer["rows"][0]["time"] is None
    only = cli("trace", "jax.numpy:matmul", "--shapes", "f64[8,8],f64[8,8]", "--device", "tpu-v5p", "-o", "a.csv")
    assert only.exit_code == 3
    assert "'a.csv' is not written: no operation has a time on the device." in only.stderr


def test_unknown_operations_are_counted_and_named(cli, parse_json, module: Path) -> None:
    result = cli(*trace(f"{module}:spectrum", "--shapes", "c64[64,1024]", "--json"))
    answer = parse_json(result.stdout)
    assert answer["totals"]["unknown"] == {"fft": 1}
    assert answer["rows"][0]["time"] > 2 * 64 * 1024 * 8 / 3.35e12  # not faster than its bytes
    text = cli(*trace(f"{module}:spectrum", "--shapes", "c64[64,1024]")).stdout
    assert "unknown operations, taken for the movement of their bytes: fft (1)" in text


@pytest.mark.parametrize(
    ("function", "shapes", "said"),
    [
        ("{}:nothing", SHAPES, "has no 'nothing'"),
        ("{}:gradiant", SHAPES, "Did you mean gradient?"),
        ("{}:number", SHAPES, "is int, not a function"),
        ("{}", SHAPES, "does not name a function; write MODULE:FUNCTION or FILE.py:FUNCTION"),
        ("absent.py:mlp", SHAPES, "'absent.py' does not exist"),
        ("no_such_module:mlp", SHAPES, "no module named 'no_such_module'"),
        ("{}:mlp", "f32[512,256]", "mlp cannot be traced: TypeError: mlp() missing 2 required"),
        ("{}:mlp", "f32[512,256],f32[255,1024],f32[1024,256]", "users_model.py, line 6"),
        ("{}:branching", "f32[4]", "branching cannot be traced: TracerBoolConversionError"),
        ("{}:mlp", "f32[512,256],float[3]", "'float' is not a number format"),
        ("{}:mlp", "f32[512,256", "is not an array; write f32[8,1024],i32[8]"),
        ("{}:mlp", "f32[512,-1]", "'-1' in 'f32[512,-1]' is not a whole number"),
        ("{}:mlp", "", "--shapes is empty"),
        ("{}:mlp", "{}:number", "is int; give a tuple with one entry an argument"),
    ],
)
def test_what_cannot_be_traced_is_said_in_a_sentence(
    refuse: Callable[..., str], module: Path, function: str, shapes: str, said: str
) -> None:
    found = refuse(*trace(function.format(module), "--shapes", shapes.format(module)))
    assert said in found and found.count("\n") == 1


def test_a_module_that_fails_to_import_is_named(refuse, own_folder: Path) -> None:
    (own_folder / "broken_model.py").write_text("import sys\nsys.exit(4)\n")
    assert "'broken_model' cannot be imported: SystemExit: 4" in refuse(*trace("broken_model:f", "--shapes", "f32[1]"))


def test_a_framework_that_nothing_was_measured_of_is_refused(refuse, module: Path) -> None:
    said = refuse(*trace(f"{module}:mlp", "--shapes", SHAPES, "--framework", "SGLangg"))
    assert "'sglangg' is no framework that kernels were measured of. Did you mean sglang?" in said
    assert "trtllm, v" in said and "leave it out for what they have in common" in said


def test_devices_and_outputs_are_checked_first(refuse, own_folder: Path, module: Path) -> None:
    wrong = refuse("trace", f"{module}:mlp", "--shapes", SHAPES, "--device", "h1000")
    assert "'h1000' is not a known device" in wrong
    assert "the ending must be one of" in refuse(*trace(f"{module}:mlp", "--shapes", SHAPES, "-o", "rows.txt"))
    assert sorted(path.name for path in own_folder.iterdir() if path.suffix) == ["users_model.py"]


def test_help_loads_no_jax_and_names_its_options(cli) -> None:
    result = cli("trace", "--help")
    assert result.exit_code == 0
    for option in ("--shapes", "--device", "--no-fusion", "--params", "--plot", "--json"):
        assert option in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


# --- estimate --onnx --------------------------------------------------------------------------------------------------


def test_an_onnx_file_with_its_dimensions_bound(cli, parse_json, onnx_file: Path) -> None:
    command = ("estimate", "--onnx", onnx_file, "--device", "a100", "--shapes", "tokens=128", "--batch", "4", "--json")
    answer = parse_json(cli(*command).stdout)
    assert answer["totals"]["product_flops"] == 2 * 4 * 128 * 256 * 1024
    assert [row["operation"] for row in answer["rows"]] == ["MatMul", "Relu"]
    assert answer["totals"]["parameters_bytes"] == 4 * 256 * 1024
    assert 0 < answer["totals"]["roofline"] < answer["totals"]["time"]


def test_an_onnx_breakdown_as_text_picture_and_file(cli, onnx_file: Path, own_folder: Path) -> None:
    places = ("-o", own_folder / "rows.parquet", "--plot", own_folder / "rows.svg")
    result = cli("estimate", "--onnx", onnx_file, "--device", "a100", "--shapes", "x=1,64,256", *places)
    assert result.exit_code == 0, result.output
    assert "mlp.onnx on a100" in result.stdout and "MatMul" in result.stdout
    assert (own_folder / "rows.parquet").stat().st_size > 0 and (own_folder / "rows.svg").stat().st_size > 0


def test_what_estimate_refuses_of_onnx(refuse, onnx_file: Path) -> None:
    on = ("--device", "a100")
    unbound = refuse("estimate", "--onnx", onnx_file, *on)
    assert "mlp.onnx: input 'x' has the symbolic dimension 'tokens' (axis 1)" in unbound
    assert "Give either MODEL or --onnx FILE." in refuse("estimate", *on)
    assert "not both" in refuse("estimate", "gpt2", "--onnx", onnx_file, *on)
    assert "names no input; write input=1,3,224,224" in refuse("estimate", "--onnx", onnx_file, *on, "--shapes", "7")
    several = refuse("estimate", "--onnx", onnx_file, *on, "--shapes", "x=1,64,256,batch=8")
    assert "repeat --shapes for each: --shapes x=1,64,256 --shapes batch=8." in several
    assert "--tensor-parallel means nothing for an ONNX file" in refuse(
        "estimate", "--onnx", onnx_file, *on, "--tp", "2"
    )
    assert "--shapes goes with --onnx" in refuse("estimate", "gpt2", *on, "--shapes", "x=1")
    for batch in ("0", "-2", str(2**64)):
        said = refuse("estimate", "--onnx", onnx_file, *on, "--batch", batch)
        assert said == f"jaxperf: --batch is {batch}; it must be a whole number from 1 to 2^53.\n"
    said = refuse("estimate", "--onnx", onnx_file, *on, "--shapes", "x=8,64,256", "--batch", "4")
    assert "mlp.onnx: --batch 4: the first dimension of input 'x' is 8 in the file or by --shapes." in said
    onnx_file.write_bytes(onnx_file.read_bytes()[:1000])
    assert "is not an ONNX model, or it is truncated (1000 bytes)" in refuse("estimate", "--onnx", onnx_file, *on)
