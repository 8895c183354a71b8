"""Predict iterations over several devices: the stages' graphs as iterations of one device, then what they send."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import hwspecs
from calibration.composition.batches_links import Curve
from calibration.composition.batches_parameters import load_steps
from calibration.composition.graph_answers import NO_MODEL, TIERS, Answer, Prediction, predict_able
from calibration.composition.parallel import ONE_DEVICE, Layout
from calibration.composition.parallel_links import ideal_reduction, ideal_sending, reduction_time, sending_time
from calibration.composition.parallel_stages import Stage, stages_of
from calibration.composition.parallel_time import Links, StageTimes, pipeline_time, with_communication
from calibration.composition.row_graphs import described
from calibration.composition.rows import Row
from calibration.kernels.parameters import Parameters
from hwspecs import DeviceSpec
from hwspecs.errors import InputError
from jaxperf.models.composition import Composition
from jaxperf.models.graph_steps import Laid, lay_out
from jaxperf.models.workloads.video import DENOISERS

VARIANT = "plain"
# Standard deviations of the logarithm, assumed, since hardly any iteration over several devices was measured: of what
# devices send (a factor of 1.5 in 90 % of cases), and of the framework, another one than compositions are fitted on.
LINKS, FRAMEWORK = 0.25, 0.1
NOTE = "several devices: nothing fused, nothing sent behind compute; interval widened for the links and the framework"


@dataclass(frozen=True)
class Part:
    """A kind of stage of a row with the predictions of one of its micro-batches and of its update."""

    stage: Stage
    passes: Prediction
    update: Prediction


def predict_parallel(
    rows: Sequence[Row],
    compositions: Mapping[str, Composition],
    kernels: Parameters,
    directories: Sequence[str] = (),
    curves: Sequence[Curve] | None = None,
) -> list[Answer]:
    """Every row with its prediction and a note, or without one and the reason.

    **Arguments:** `curves`: measured all-reduces, the shipped ones by default.
    """
    if not rows:
        return []
    curves = load_steps().curves if curves is None else curves
    registry = hwspecs.open_registry(list(directories))
    opened: dict[tuple, tuple[Stage, ...] | str] = {}
    for row in rows:
        if row.configuration not in opened:
            opened[row.configuration] = _opened(row)
    stages = {row: own for row in rows if not isinstance(own := opened[row.configuration], str)}
    answers = _answers(stages, compositions, kernels, directories)
    overhead = float(compositions[VARIANT].overhead)
    found: list[Answer] = []
    for row in rows:
        own = opened[row.configuration]
        if isinstance(own, str):
            found.append((row, None, own))
            continue
        parts = [
            Part(stage, *(answers[_key(piece)] for piece in _pieces(row, place))) for place, stage in enumerate(own)
        ]
        one = joined(row.layout, parts, registry.load(row.device), curves, overhead)
        found.append((row, one, NOTE) if math.isfinite(one.time) else (row, None, NO_MODEL))
    return found


def _opened(row: Row) -> tuple[Stage, ...] | str:
    """The stages of a row, or why there are none."""
    if row.mode != "train":
        return f"over several devices only training is predicted, and inference of {', '.join(DENOISERS)} as in cp8"
    try:
        return stages_of(described(row.model), row.layout, row.seq, row.batch)
    except InputError as error:
        return f"no graph: {error}"


def _pieces(row: Row, place: int) -> tuple[Row, Row]:
    """The rows that stand for one micro-batch and for the update of a row's stage on one device; alike ones have one
    `_key`."""
    alone = dataclasses.replace(row, place=0, layout=ONE_DEVICE, label=math.nan, label_forward=math.nan, peers=())
    named = [dataclasses.replace(alone, part=f"{row.variant} {part} {place}") for part in ("stage", "update")]
    passes, update = (dataclasses.replace(each, variant=VARIANT) for each in named)
    return passes, update


def _key(piece: Row) -> tuple:
    """What its prediction depends on. Rows themselves are unlike for their labels, NaN here, from Python 3.13 on."""
    return piece.device, piece.configuration


def _answers(
    stages: Mapping[Row, Sequence[Stage]],
    compositions: Mapping[str, Composition],
    kernels: Parameters,
    directories: Sequence[str],
) -> dict[tuple, Prediction]:
    """The prediction of every piece of some rows, by its `_key`."""
    laid: dict[tuple, Laid] = {}
    pieces: dict[tuple, Row] = {}
    for row, own in stages.items():
        for place, stage in enumerate(own):
            for piece, graph in zip(_pieces(row, place), (stage.graph, stage.update), strict=True):
                pieces.setdefault(_key(piece), piece)
                if piece.configuration not in laid:
                    laid[piece.configuration] = lay_out(graph)
    return dict(zip(pieces, predict_able(list(pieces.values()), laid, compositions, kernels, directories), strict=True))


def joined(
    layout: Layout, parts: Sequence[Part], spec: DeviceSpec, curves: Sequence[Curve], overhead: float
) -> Prediction:
    """The prediction of an iteration from those of its stages; `overhead` of an iteration, which each of them has [s].

    The deviations of kernels add up linearly over the stages, which launch the same ones, and the part of the time
    that devices send has that of `LINKS`.
    """
    computed = [_times(part, overhead) for part in parts]
    alone = pipeline_time(computed, layout.microbatches)
    time = pipeline_time(_sent(layout, parts, computed, _links(layout, spec, curves)), layout.microbatches)
    ideal = [StageTimes(part.passes.roofline, 0.0, part.update.roofline, part.stage.count) for part in parts]
    links = (time - alone) / time
    common, separate = (_weighted(parts, name) * (1.0 - links) for name in ("common", "separate"))
    return Prediction(
        time=time + overhead,
        forward=sum(part.stage.count * part.passes.forward for part in parts),
        kernel=_busiest(layout, parts, "kernel"),
        host=_busiest(layout, parts, "host"),
        roofline=pipeline_time(_sent(layout, parts, ideal, _ideal_links(layout, spec)), layout.microbatches),
        common=(common + links * LINKS) ** 2 + FRAMEWORK**2,
        separate=separate**2 + (links * LINKS) ** 2 + FRAMEWORK**2,
        tier=max((part.passes.tier for part in parts), key=TIERS.index),
        exposed=time - alone,
    )


def _times(part: Part, overhead: float) -> StageTimes:
    passes = part.passes
    backward = passes.time - passes.forward - overhead
    return StageTimes(passes.forward, backward, part.update.time - overhead, part.stage.count)


def _sent(layout: Layout, parts: Sequence[Part], times: Sequence[StageTimes], links: Links) -> list[StageTimes]:
    return [with_communication(part.stage, each, layout, links) for part, each in zip(parts, times, strict=True)]


def _links(layout: Layout, spec: DeviceSpec, curves: Sequence[Curve]) -> Links:
    return Links(functools.partial(reduction_time, curves, spec), functools.partial(sending_time, spec, layout.devices))


def _ideal_links(layout: Layout, spec: DeviceSpec) -> Links:
    return Links(functools.partial(ideal_reduction, spec), functools.partial(ideal_sending, spec, layout.devices))


def _weighted(parts: Sequence[Part], name: str) -> float:
    """Mean over the stages of a standard deviation, weighted with the time of their passes [log 1]."""
    weights = [part.stage.count * part.passes.time for part in parts]
    deviations = [math.sqrt(getattr(part.passes, name)) for part in parts]
    return sum(w * d for w, d in zip(weights, deviations, strict=True)) / sum(weights)


def _busiest(layout: Layout, parts: Sequence[Part], name: str) -> float:
    """Seconds of an iteration that the busiest device, or its host, works."""
    return max(layout.microbatches * getattr(part.passes, name) + getattr(part.update, name) for part in parts)
