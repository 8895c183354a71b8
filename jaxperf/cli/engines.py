"""What commands that simulate an engine have in common: options, settings, step times, the prefix cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from hwspecs.schema import DeviceSpec
    from jaxperf.core.sustained import CalibratedDevice
    from jaxperf.core.sustained_file import Calibration
    from jaxperf.io.request_traces import RequestTrace
    from jaxperf.models.config import ModelConfig
    from jaxperf.serving.simulator.memory import Placement
    from jaxperf.serving.simulator.settings import Scheduler
    from jaxperf.serving.simulator.step_time import AbstractStepTime
    from jaxperf.serving.unit_costs import Prices

SettingsFile = Annotated[Path, typer.Option("--settings", metavar="S.json", help="The scheduler and its numbers.")]
StepTimes = Annotated[
    Path | None, typer.Option("--step-time", metavar="T.npz", help="Table of step times (default: our own model).")
]
ServedModel = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", help="The model served (default: the settings').")
]
ServedDevice = Annotated[
    str | None, typer.Option("--device", metavar="NAME", help="Device of our own model (default: the settings').")
]
FusedAttention = Annotated[
    bool,
    typer.Option("--fused-attention", help="Prompts and decodes of a step attend in one kernel, as in POD-Attention."),
]


@dataclass(frozen=True)
class Served:
    """What is served on what, as the options say; None where the settings are to say it. `slices`: the device is one of
    so many equal slices of the one named (MIG); `level`: of what its kernels sustain, one of `LEVELS`; `fused`: prompts
    and decodes attend in one kernel."""

    model: str | None = None
    device: str | None = None
    weights: str | None = None
    kv_cache: str = "bf16"
    params: Path | None = None
    folders: tuple[str | Path, ...] = ()
    slices: int = 1
    level: str = "nominal"
    fused: bool = False

    def config(self, named: str | None) -> ModelConfig:
        """The model served, `named` in the settings unless an option says otherwise."""
        from jaxperf.io.huggingface import load_model

        name = named if self.model is None else self.model
        if name is None:
            raise InputError("the settings name no model, and there is no --model; a step's time is that of a model.")
        return load_model(name)

    def check_named(self, scheduler: Scheduler, where: str, device: bool) -> None:
        """Raises `InputError` for a model, or a `device` where one is needed, that settings name and nobody knows."""
        from jaxperf.io.fleet import select_device
        from jaxperf.io.huggingface import load_model

        try:
            if self.model is None and scheduler.model is not None:
                load_model(scheduler.model)
            if device and self.device is None and scheduler.device is not None:
                select_device(scheduler.device, self.folders)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None

    def calibration(self, named: str | None) -> Calibration:
        """Of the device, `named` in the settings unless an option says otherwise."""
        from jaxperf.core.sustained_file import calibration_of, load_sustained_table
        from jaxperf.io.fleet import select_device

        name = named if self.device is None else self.device
        if name is None:
            raise InputError("the settings name no device; give --device, or a table of step times with --step-time.")
        return calibration_of(select_device(name, self.folders), load_sustained_table(self.params))

    def calibrated(self, named: str | None) -> tuple[str, CalibratedDevice]:
        """The device's name, and what it sustains."""
        from jaxperf.serving.colocate.slices import slice_of

        found = self.calibration(named)
        device = found.calibrated
        return found.spec.name, device if self.slices == 1 else slice_of(device, self.slices)

    def notes(self, table: Path | None, schedulers: Sequence[Scheduler], intervals: bool = True) -> list[str]:
        """What our own steps of the model assume, leave out and rest on, as `estimate` says it; with a table of step
        times which options do not change them. `intervals`: whether those of the kernels are told."""
        from jaxperf.core.formats import CACHE_FORMATS, FORMATS, format_name
        from jaxperf.serving.notes import notes_of_many
        from jaxperf.serving.provenance import provenance_of

        if table is not None:
            given = self._options()
            return [f"step times are those of {table}, whatever {' and '.join(given)} say"] if given else []
        config = self.config(schedulers[0].model)
        weights = [format_name(self.weights or config.weight_format, FORMATS)]
        found = {(each := self.calibration(scheduler.device)).spec.name: each for scheduler in schedulers}
        specs = [each.spec for each in found.values()]
        ranks = max(scheduler.tensor_parallel for scheduler in schedulers)
        notes = notes_of_many(config, specs, weights, [format_name(self.kv_cache, CACHE_FORMATS)], ranks=ranks)
        origin = provenance_of(config, found, weights)
        return [*notes, origin.sentence if intervals else origin.without_interval]

    def _options(self) -> list[str]:
        """The options given that our own step times go by."""
        given = {
            "--device": self.device is not None,
            "--weights": self.weights is not None,
            "--kv-cache": self.kv_cache != Served.kv_cache,
            "--params": self.params is not None,
            "--fused-attention": self.fused,
        }
        return [name for name, there in given.items() if there]


Paid = tuple[list[str] | None, float | None]  # --price and --electricity
Placed = list[tuple["DeviceSpec", float]]


def placed(served: Served, engines: Sequence[tuple[Scheduler, int]]) -> Placed:
    """The devices of so many replicas of each engine, and their number; none where settings name no device that is
    known. Raises `InputError` for one that an option names."""
    from jaxperf.io.fleet import select_device

    try:
        return [
            (
                select_device(served.device or scheduler.device or "", served.folders),
                replicas * scheduler.tensor_parallel * scheduler.pipeline_parallel,
            )
            for scheduler, replicas in engines
        ]
    except InputError:  # with a table of step times the name of a device in settings is only a name
        if served.device is not None:
            raise
        return []


def priced(placed: Placed, price: Sequence[str] | None, electricity: float | None) -> Prices:
    """What is paid for the devices; raises `InputError` as `parse_unit_prices` does, and where none is known."""
    from jaxperf.cli.options import parse_unit_prices

    if not placed and (price or electricity is not None):
        raise InputError("--price, --electricity: no device that is known is named; give --device.")
    return parse_unit_prices(price, electricity, {spec.name: spec for spec, _ in placed})


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of a scheduler as they are written, by our names."""
    from jaxperf.io.huggingface import read_text
    from jaxperf.io.json_text import parse_unique
    from jaxperf.serving.simulator.names import in_our_words

    data = parse_unique(read_text(path), str(path))
    if not isinstance(data, dict):
        raise InputError(f'{path}: settings are an object with names and values, such as {{"sched": "vllm"}}.')
    return in_our_words(data, str(path))


def scheduler_of(
    data: Mapping[str, Any], served: Served, where: str, tokens: np.ndarray, table: Path | None = None
) -> Scheduler:
    """The scheduler that settings describe, with blocks and their bytes counted where they are needed and not stated.

    **Arguments:** `tokens` [R]: of every request, prompt and output; `table`: of step times; with our own model
    instead, stated blocks are held against the memory too.
    **Raises:** `InputError` as `parse_scheduler` does, and for a model or device that is not named or too large.
    """
    import dataclasses

    from jaxperf.serving.simulator.cells import utilization_of
    from jaxperf.serving.simulator.memory import cache_memory, check_blocks
    from jaxperf.serving.simulator.settings import parse_scheduler, without_blocks

    counted, share = without_blocks(data), utilization_of(data, where)
    if not counted and (data.get("preemption") != "swap" or data.get("block_bytes") is not None):
        stated = parse_scheduler(data, where)
        served.check_named(stated, where, table is None)
        if table is not None:
            return stated
        placement = placed_in_memory(stated, served, tokens)
        try:
            said = check_blocks(stated.numbers["blocks"], placement, share)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        return dataclasses.replace(stated, notes=(*stated.notes, *said))
    # Parsed with a stand-in first, so that what is wrong with the rest is said before a model is looked for.
    assumed = parse_scheduler({**data, **({"num_blocks": 1} if counted else {}), "block_bytes": 1}, where)
    served.check_named(assumed, where, True)
    try:
        found = cache_memory(placed_in_memory(assumed, served, tokens), share, assumed.step_setting)
    except InputError as error:
        raise InputError(f"{where}: no {'num_blocks' if counted else 'block_bytes'}: {error}") from None
    blocks = {"num_blocks": found.blocks} if counted else {}
    copied = {"block_bytes": found.block_bytes} if data.get("preemption") == "swap" else {}
    scheduler = parse_scheduler({**copied, **data, **blocks}, where)
    return dataclasses.replace(scheduler, notes=(*scheduler.notes, *([found.note] if counted else [])))


def placed_in_memory(scheduler: Scheduler, served: Served, tokens: np.ndarray) -> Placement:
    """What `cache_memory` counts with; `tokens` [R]: of every request, prompt and output."""
    from jaxperf.models.layers import transformer
    from jaxperf.serving.simulator.composed import deployment_for
    from jaxperf.serving.simulator.memory import Placement
    from jaxperf.serving.simulator.settings import FREEING

    config, (_, device) = served.config(scheduler.model), served.calibrated(scheduler.device)
    layout = (scheduler.tensor_parallel, served.weights, served.kv_cache, scheduler.pipeline_parallel, served.level)
    deployment = deployment_for(config, device, *layout)
    block = scheduler.numbers["block_size"]
    length = float(tokens.mean()) if scheduler.name in FREEING and len(tokens) else None
    return Placement(deployment, transformer(config), block, scheduler.most_tokens(), scheduler.numbers["cap"], length)


def context_of(data: Mapping[str, Any], served: Served, where: str) -> int | None:
    """Tokens of the context of the model that settings name; None where it is not known or no model is named.

    **Raises:** `InputError` for a model that nobody knows, with `where` the settings are that name it.
    """
    pools = data.get("pools")
    prefill = pools.get("prefill") if isinstance(pools, dict) else None
    named = (prefill if isinstance(prefill, dict) else {}).get("model", data.get("model"))
    if served.model is None and not isinstance(named, str):
        return None
    try:
        return served.config(named).max_context
    except InputError as error:
        raise InputError(str(error) if served.model is not None else f"{where}: {error}") from None


def step_times_of(
    table: Path | None, scheduler: Scheduler, trace: RequestTrace, served: Served
) -> tuple[AbstractStepTime, str]:
    """The function of step times, and in words where it is from."""
    config = served.config(scheduler.model)
    if scheduler.pipeline_parallel > max(len(config.layers), 1):
        raise InputError(
            f"pp {scheduler.pipeline_parallel} is more than the {len(config.layers)} layers of {config.name}."
        )
    if table is not None:
        from jaxperf.io.step_times import load_step_times

        return load_step_times(table, config, scheduler.tensor_parallel), str(table)
    from jaxperf.io.session_traces import SessionTrace
    from jaxperf.serving.simulator.composed import composed_times

    name, device = served.calibrated(scheduler.device)
    alike = isinstance(trace, SessionTrace) or trace.hashes is not None
    formats = (served.weights, served.kv_cache)
    times = composed_times(config, device, scheduler, trace, *formats, alike, served.level, served.fused)
    kernel = ", prompts and decodes attending in one kernel" if served.fused else ""
    return times, f"our model of {config.name} on {_placement_words(scheduler, name)}{kernel}"


def _placement_words(scheduler: Scheduler, device: str) -> str:
    """`8 x h100-sxm (TP4 PP2)`: all devices of a replica, as `estimate` says them."""
    from jaxperf.report.text import layout_words

    ranks, stages = scheduler.tensor_parallel, scheduler.pipeline_parallel
    layout = layout_words({"tensor_parallel": ranks, "pipeline_parallel": stages})
    return f"{ranks * stages} x {device} ({layout})"


def prefix_paths_of(trace: RequestTrace, scheduler: Scheduler) -> np.ndarray | None:
    """The nodes of every request in the prefix cache; None where the trace has no hashes or the scheduler no cache."""
    from jaxperf.serving.simulator.paths import prefix_paths

    if trace.hashes is None or not scheduler.tokens_per_hash:
        return None
    size = scheduler.numbers["block_size"]
    return prefix_paths(trace.hashes, trace.prompt, trace.output, size, scheduler.tokens_per_hash)
