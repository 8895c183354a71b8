"""`jaxperf estimate MODEL --device NAME`: one configuration, in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxperf.cli.onnx import ModelOrOnnx, OnnxFile, OnnxShapes, batch_of, estimate_onnx, one_of
from jaxperf.cli.options import (
    EXIT_INFEASIBLE,
    AsJson,
    Batch,
    DataParallel,
    DevicesDirectory,
    ExpertParallel,
    KvCache,
    Launch,
    Output,
    OutputFile,
    PipelineParallel,
    Plot,
    Prompt,
    Quiet,
    SustainedRates,
    TensorParallel,
    Weights,
    say_not_written,
)
from jaxperf.cli.technique_lines import technique_lines, technique_record
from jaxperf.cli.technique_options import (
    KvOffload,
    Lora,
    PowerLimit,
    Speculate,
    TechniqueOptions,
    WideExperts,
    techniques_of,
)

if TYPE_CHECKING:
    from jaxperf.serving.estimate import Estimate


def estimate(
    context: typer.Context,
    device: Annotated[str, typer.Option("--device", metavar="NAME", help="A device name, alias or TOML file.")],
    model: ModelOrOnnx = None,
    onnx: OnnxFile = None,
    shapes: OnnxShapes = None,
    tensor_parallel: TensorParallel = 1,
    pipeline_parallel: PipelineParallel = 1,
    expert_parallel: ExpertParallel = 1,
    data_parallel: DataParallel = 1,
    batch: Batch = 1,
    prompt: Prompt = 2048,
    output: Output = 256,
    media_tokens: Annotated[
        int | None,
        typer.Option("--media-tokens", metavar="N", help="Prompt tokens that an encoder makes of images or sound."),
    ] = None,
    weights: Weights = None,
    kv_cache: KvCache = "bf16",
    launch: Launch = "graph",
    devices_dir: DevicesDirectory = None,
    params: SustainedRates = None,
    out: OutputFile = None,
    plot: Plot = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    speculate: Speculate = None,
    lora: Lora = None,
    kv_offload: KvOffload = None,
    power_cap: PowerLimit = None,
    wide_experts: WideExperts = None,
) -> None:
    """TTFT, TPOT, tokens/s and memory of one configuration. With the time and the limiter of every kernel."""
    model = one_of(context, model, onnx)
    if onnx is not None:
        from jaxperf.cli.breakdown import Asked

        wanted = Asked(device, devices_dir or (), params, launch, out, plot, as_json, quiet)
        return estimate_onnx(onnx, shapes, batch_of(context, batch), wanted)
    from jaxperf.cli.compute import start_jax

    start_jax()
    from jaxperf.core.sustained_file import load_sustained_table
    from jaxperf.io.fleet import select_device
    from jaxperf.io.huggingface import load_model
    from jaxperf.io.tables import check_output, json_text, write_rows
    from jaxperf.report.answer import estimate_record, kernel_rows, print_estimate
    from jaxperf.report.plots import check_picture
    from jaxperf.serving.estimate import estimate as evaluate

    check_output(out)
    check_picture(plot)
    spec = select_device(device, devices_dir or ())
    point: dict[str, Any] = {
        "tensor_parallel": tensor_parallel,
        "pipeline_parallel": pipeline_parallel,
        "expert_parallel": expert_parallel,
        "data_parallel": data_parallel,
        "batch": batch,
        "prompt": prompt,
        "output": output,
        "kv_cache": kv_cache,
    }
    config = load_model(model)
    point |= {"weights": config.weight_format if weights is None else weights}
    point |= {} if media_tokens is None else {"media_tokens": media_tokens}
    asked = TechniqueOptions(speculate, lora, kv_offload, power_cap, wide_experts)
    techniques = techniques_of(config, spec, tensor_parallel, expert_parallel, asked)
    answer = evaluate(config, spec, point, launch, load_sustained_table(params), techniques)
    record = estimate_record(answer)
    if techniques is not None:
        record["techniques"] = technique_record(answer)
    if as_json:
        typer.echo(json_text(record))
    else:
        print_estimate(answer, quiet)
        for line in technique_lines(answer):
            typer.echo(line)
    if not answer.feasible:
        say_not_written(out, plot)
        raise typer.Exit(EXIT_INFEASIBLE)
    if out is not None:
        write_rows(kernel_rows(answer), out, {"jaxperf": json_text(_provenance(record))})
    if plot is not None:
        _draw(answer, plot)


def _provenance(record: dict[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in ("model", "device", "point", "provenance")}


def _draw(answer: Estimate, path: Any) -> None:
    from jaxperf.report.answer import decode_points
    from jaxperf.report.plots import roofline_figure, save

    title = f"{answer.model.name} decode on {answer.spec.name}"
    save(roofline_figure(title, answer.peak, answer.spec.memory_bandwidth.si, decode_points(answer)), path)
