"""Training runs as points of the step model: what the table states, and what is taken where it is silent."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp

import hwspecs
from calibration.datasets.training import Run, TrainingTable
from calibration.datasets.training_columns import ALLOWED
from calibration.training.models import Models
from calibration.training.recomputed import recompute_fields, share_of
from calibration.training.routing_groups import stated_limit
from calibration.training.stacks import NEVER, NEWEST, UNFUSED, UNKNOWN, Stack, release_of, stack_of
from hwspecs import DeviceSpec
from hwspecs.errors import InputError
from jaxperf.core.device import Device, device_from_spec, stand_in_of
from jaxperf.core.formats import FORMATS, FormatFacts
from jaxperf.core.sustained import format_class
from jaxperf.network.limited_routing import hits_table
from jaxperf.serving.notes import multiplied_in, without_scales
from jaxperf.training.layout import CONTEXT_METHODS, IN_PIECES, ZERO_STAGES, Layout, training_layout
from jaxperf.training.model import TrainingModel
from jaxperf.training.recompute import modules_of

ADAPTER_RANK = 16.0  # of LoRA where notes do not say
# "LoRA rank 64", "rank=256", "lora_r=256", "r=8", and as NeMo names it, "lora_dim 32"; no "node_rank=1", no "r=0.5".
_RANK = re.compile(
    r"(?:lora[\s_-]*(?:rank|dim|r)|(?<![a-z_])(?:rank|r(?=\s*[=:])))\s*(?:of|is|[=:-])?\s*([1-9]\d{0,5})(?!\.?\d)", re.I
)
FLAG = (0.0, 1.0)
WHOLE_GRADIENTS = "zero 2 is as 1 with a pipeline, whose micro-batches add up in whole gradients"
CHUNKS_OF = {"zb-v": 2.0}  # of a pipeline stage
MOST_CHUNKS = 4.0  # of a pipeline stage where a table does not say
NO_OPTIMIZER = "no optimizer"  # of notes: a step that ends with the gradients


class Point(eqx.Module):
    """What `training_step` takes besides the efficiencies."""

    model: TrainingModel
    layout: Layout
    device: Device


@dataclass(frozen=True)
class Known:
    """Runs that can be laid out [R]: with their points, their software, the class of the format they are multiplied in
    (of `jaxperf.core.sustained.CLASSES`) and notes; `reasons`: row -> why another run is not among them."""

    runs: tuple[Run, ...]
    points: tuple[Point, ...]
    stacks: tuple[Stack, ...]
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    specs: Mapping[str, DeviceSpec]
    reasons: Mapping[int, str]

    PER_RUN: ClassVar[tuple[str, ...]] = ("runs", "points", "stacks", "classes", "notes")


def known_runs(table: TrainingTable, directories: Sequence[str] = ()) -> Known:
    """Resolve the models, layouts and devices of a table."""
    specs = {name: hwspecs.load(name, directories) for name in sorted({run.device for run in table.runs})}
    devices = {name: device_from_spec(spec) for name, spec in specs.items()}
    reasons, kept = dict(table.reasons), []
    models = Models()
    for run in table.runs:
        try:
            point, stack, note = _point(run, models, devices[run.device])
            notes_of_format = format_notes(specs[run.device], run.dtype)
            kept.append((run, point, stack, "; ".join(text for text in (*notes_of_format, note) if text)))
        except InputError as error:
            reasons[run.row] = str(error)
    runs, points, stacks, notes = zip(*kept, strict=True) if kept else ((), (), (), ())
    points = alike(points)
    classes = tuple(multiplied_class(specs[run.device], run.dtype) for run in runs)
    return Known(runs, points, stacks, classes, notes, specs, reasons)


def alike(points: Sequence[Point]) -> tuple[Point, ...]:
    """The points with `hits_table`s of one length, of zeros where a model has none: rows of a table have one structure.
    As they are where no model limits its routing."""
    own = [point.model.hits for point in points]
    longest = max((len(hits) for hits in own if hits is not None), default=0)
    if not longest:
        return tuple(points)
    none = jnp.zeros(longest)
    even = [none if hits is None else jnp.pad(hits, (0, longest - len(hits)), mode="edge") for hits in own]
    return tuple(
        dataclasses.replace(point, model=dataclasses.replace(point.model, hits=hits))
        for point, hits in zip(points, even, strict=True)
    )


def multiplied_class(spec: DeviceSpec, dtype: str) -> str:
    """The class of the format in which a device multiplies `dtype`: its own, or that of the stand-in, whose share of
    the peak it has."""
    compute = FORMATS[dtype].compute
    return format_class(stand_in_of(spec, compute) or compute)


def format_notes(spec: DeviceSpec, dtype: str) -> list[str]:
    """What a device does otherwise with the products of a format than its name says."""
    facts = FORMATS[dtype]
    notes = [f"{dtype} is a format of weights alone: trained in {facts.compute}"] if _weights_alone(facts) else []
    notes += multiplied_in(spec, (dtype, facts.activations))
    return notes + without_scales(spec, dtype)


def _weights_alone(facts: FormatFacts) -> bool:
    """Whether a format stores weights that are multiplied in a wider one."""
    return facts.itemsize < facts.operand_itemsize


def _point(run: Run, models: Models, device: Device) -> tuple[Point, Stack, str]:
    """A run's point, its software, and what was taken for granted."""
    stack = stack_of(run)
    model, of_model = models.of(run)
    layout, notes = layout_of(run, stack, float(model.layers))
    if (rank := float(layout.lora_rank)) > (width := float(model.hidden)):
        raise InputError(f"notes: a LoRA rank of {rank:,.0f} is above the model's width of {width:,.0f}.")
    point = Point(_limited(model, run, stack, notes), layout, device)
    if float(device.peak_flops[layout.compute_format]) <= 0.0:
        raise InputError(f"dtype: {run.device} multiplies neither {run.dtype} nor a format that can stand in for it.")
    notes += _silent(run, float(layout.data), float(model.topk))
    if without := [name for name in run.recompute_modules if name not in modules_of(model)]:
        notes.append(f"recompute_modules: the model has no {', no '.join(without)}")
    if stack.name == UNKNOWN:
        notes.append(f"the software is not {'known' if run.source else 'stated'}: taken to be like most")
    if release_of(run, stack) == NEWEST:
        notes.append("the release of the software is not stated: the newest")
    return point, stack, "; ".join(note for note in (of_model, *notes) if note)


def _limited(model: TrainingModel, run: Run, stack: Stack, notes: list[str]) -> TrainingModel:
    """The model with the groups of experts that a row states; appends a note where the software makes nothing of it."""
    topk = float(model.topk)
    limit = stated_limit(run, float(model.experts) if topk > 0.0 else 0.0, topk)
    if limit is None:
        return model
    if not stack.deduplicates:
        notes.append("expert_groups are not used: this software sends a token once for each of its experts")
    return dataclasses.replace(model, hits=hits_table(limit))


def layout_of(run: Run, stack: Stack, layers: float) -> tuple[Layout, list[str]]:
    """The layout of a run and a sentence for each choice its table leaves open.

    **Raises:** `InputError`, beginning with `world_size` or `global_batch`, where the numbers do not factor.
    """
    ranks = {name: _whole(name, _or(run.layout[name], 1.0)) for name in ("tp", "pp", "cp", "ep", "etp")}
    data = _data_parallel(run, ranks)
    microbatch, notes = _microbatch(run, stack, data)
    interleave, note = _interleave(run, stack, ranks["pp"], layers)
    recompute, again, untold = recompute_fields(run, stack)
    rank, untold_rank = _adapter_rank(run)
    numbers: dict[str, float] = {
        "tensor": ranks["tp"],
        "pipeline": ranks["pp"],
        "context": ranks["cp"],
        "expert": ranks["ep"],
        "expert_tensor": ranks["etp"],
        "data": data,
        "devices": float(run.devices),
        "interleave": interleave,
        "microbatch": microbatch,
        "global_batch": float(run.global_batch),
        "sequence": float(run.sequence),
        "zero": _one_of("zero", _or(run.layout["zero"], 1.0), ZERO_STAGES),
        "shard_group": _whole("shard_group", run.layout["shard_group"]) if _stated(run, "shard_group") else 0.0,
        "sequence_parallel": _one_of("seq_par", _or(run.layout["seq_par"], _splits_rows(run, ranks)), FLAG),
        "flash": float(stack.attention != UNFUSED),
        "overlap_tensor": float(stack.tensor_overlap != NEVER),
        "deduplicate": float(stack.deduplicates),
        "overlap_data": share_of(run, "overlap_data"),
        "overlap_offload": share_of(run, "overlap_offload"),
        "offload_optimizer": share_of(run, "offload_optimizer", 0.0),
        "host_memory": _host_memory(run),
        "lora_rank": rank,
        "frozen": float(rank > 0.0),
        **again,
        **({"optimizer_bytes": 0.0} if NO_OPTIMIZER in run.notes.lower() else {}),
    }
    schedule = run.schedule or ("interleaved" if interleave > 1.0 else "1f1b")
    method = run.context_method or CONTEXT_METHODS[0]
    layout = training_layout(run.dtype, schedule=schedule, recompute=recompute, context_method=method, **numbers)
    if schedule in IN_PIECES:
        notes.append(f"{schedule} is in no measured run: its passes are assumed to fill each other's gaps perfectly")
    if numbers["zero"] == 2.0 and ranks["pp"] > 1.0:
        notes.append(WHOLE_GRADIENTS)
    return layout, [*notes, note, *untold, untold_rank]


def _splits_rows(run: Run, ranks: Mapping[str, float]) -> float:
    """Whether tensor ranks split the rows of the residual stream where a table does not say: 1 where they can."""
    return float(ranks["tp"] > 1.0 and run.sequence % (ranks["tp"] * ranks["cp"]) == 0)


def _host_memory(run: Run) -> float:
    """What a device may fill of its host's memory, 0 where a table does not say [byte]."""
    stated = run.layout["host_memory_gb"]
    if stated <= 0.0:
        raise InputError(f"host_memory_gb: {stated:g} must be {ALLOWED['host_memory_gb']}.")
    return 1e9 * _or(stated, 0.0)


def _silent(run: Run, data: float, topk: float) -> list[str]:
    """A sentence for each of the plain defaults that a run was given and that matter to it."""
    open_world = math.isnan(run.layout["dp"])  # a stated dp leaves cp no choice: the ranks make the world
    matters = {"tp": True, "pp": True, "cp": open_world, "ep": topk > 0.0, "zero": data > 1.0}
    notes = [] if run.dtype_stated else [f"dtype is not stated: {run.dtype}"]
    if run.layout["cp"] > 1.0 and not run.context_method:
        notes.append(f"context_method is not stated: {CONTEXT_METHODS[0]}")
    return notes + [
        f"{name} is not stated: 1" for name, does in matters.items() if does and math.isnan(run.layout[name])
    ]


def _data_parallel(run: Run, ranks: Mapping[str, float]) -> float:
    """Data-parallel ranks: as stated, or what the other axes leave of the world."""
    others = ranks["tp"] * ranks["pp"] * ranks["cp"]
    if math.isnan(run.layout["dp"]) and run.devices % others:
        axes = f"tp x pp x cp = {ranks['tp']:g} x {ranks['pp']:g} x {ranks['cp']:g} = {others:g}"
        raise InputError(f"world_size: n_gpus is {run.devices:,}, which is no multiple of {axes}.")
    data = _or(run.layout["dp"], run.devices / others)
    if data * others != run.devices or not _is_whole(data):
        within = "; ep divides the experts among these ranks" if ranks["ep"] > 1.0 else ""
        raise InputError(
            f"world_size: n_gpus is {run.devices:,}, but tp x pp x cp x dp = {ranks['tp']:g} x {ranks['pp']:g} x "
            f"{ranks['cp']:g} x {data:g} = {data * others:g}{within}."
        )
    return data


def _microbatch(run: Run, stack: Stack, data: float) -> tuple[float, list[str]]:
    """Sequences of one micro-batch, and a sentence where that is not what the table states."""
    replica = run.global_batch / data
    if not _is_whole(replica):
        raise InputError(f"global_batch: {run.global_batch:,} is no multiple of {data:g} data-parallel ranks.")
    if not stack.accumulates:
        return replica, []
    stated = run.layout["micro_batch"]
    size = _whole("micro_batch", _or(stated, 1.0))
    if replica % size:
        raise InputError(f"global_batch: the {replica:g} sequences of a rank are no multiple of micro_batch {size:g}.")
    return size, ["micro_batch is not stated: 1"] if math.isnan(stated) else []


def _interleave(run: Run, stack: Stack, pipeline: float, layers: float) -> tuple[float, str]:
    """Chunks of a pipeline stage, and a sentence where they had to be chosen."""
    stated = run.layout["vp"]
    if pipeline <= 1.0 or not math.isnan(stated):
        return _whole("vp", _or(stated, 1.0)) if pipeline > 1.0 else 1.0, ""
    if run.schedule not in ("", "interleaved"):  # ZB-V has two stages a rank, the others one
        return CHUNKS_OF.get(run.schedule, 1.0), ""
    if not stack.interleaves and not run.schedule:
        return 1.0, "vp is not stated: 1"
    chunks = max(1.0, min(layers // pipeline, MOST_CHUNKS))
    return chunks, f"vp is not stated: {chunks:g}"


def _adapter_rank(run: Run) -> tuple[float, str]:
    """The rank of LoRA's adapters, 0 for a run without any, and a sentence where notes do not state it."""
    if run.task != "lora":
        return 0.0, ""
    stated = _RANK.search(run.notes)
    return (float(stated[1]), "") if stated else (ADAPTER_RANK, f"LoRA rank is not stated: {ADAPTER_RANK:g}")


def _one_of(name: str, value: float, choices: Sequence[float]) -> float:
    if value not in choices:
        raise InputError(f"{name}: {value:g} must be {ALLOWED[name]}.")
    return value


def _whole(name: str, value: float) -> float:
    if not _is_whole(value):
        raise InputError(f"{name}: {value:g} must be {ALLOWED[name]}.")
    return value


def _is_whole(value: float) -> bool:
    return value >= 1.0 and value == int(value)


def _stated(run: Run, name: str) -> bool:
    return not math.isnan(run.layout[name])


def _or(value: float, default: float) -> float:
    return default if math.isnan(value) else value
