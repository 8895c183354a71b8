"""Predict inference over context ranks: the graph of one rank as an iteration of one device, then what it waits for.

All ranks do the same work at once. An all-to-all is waited for in full; a block of a ring is on its way while the one
before it is worked at, so that of each only what takes longer than the isolated kernel of a block is waited for.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import hwspecs
from calibration.composition.graph_answers import NO_MODEL, Answer, Prediction, predict_able
from calibration.composition.kernel_times import kernel_times
from calibration.composition.parallel import ONE_DEVICE
from calibration.composition.parallel_links import exchange_time, ideal_exchange, ideal_sending, sending_time
from calibration.composition.parallel_predict import LINKS
from calibration.composition.row_graphs import taken
from calibration.composition.rows import Row
from calibration.kernels.parameters import Parameters
from hwspecs import DeviceSpec
from hwspecs.errors import InputError
from jaxperf.models.composition import Composition
from jaxperf.models.graph import Graph
from jaxperf.models.graph_steps import lay_out
from jaxperf.models.workloads.context import Division, Exchange, exchanges
from jaxperf.models.workloads.video import rank_graph

VARIANT = "plain"
NOTE = "context ranks: links at 75 % of their rate, nothing measured; interval widened for them"
Blocks = Mapping[tuple[object, ...], tuple[float, float]]  # device and kernel -> its time and roofline [s]


def predict_context(
    rows: Sequence[Row],
    compositions: Mapping[str, Composition],
    kernels: Parameters,
    directories: Sequence[str] = (),
) -> list[Answer]:
    """Every row with its prediction and a note, or without one and the reason."""
    first = {row.configuration: row for row in rows}
    opened = {configuration: _opened(row) for configuration, row in first.items()}
    graphs = {configuration: graph for configuration, graph in opened.items() if not isinstance(graph, str)}
    found: list[Answer] = [(row, None, why) for row in rows if isinstance(why := opened[row.configuration], str)]
    able = [row for row in rows if row.configuration in graphs]
    pieces = [_piece(row) for row in able]
    laid = {_piece(first[configuration]).configuration: lay_out(graph) for configuration, graph in graphs.items()}
    sent = {key: exchanges(graph, first[key].layout.context_parallel) for key, graph in graphs.items()}
    blocks = _blocks(able, sent, kernels, directories)
    specs = {name: hwspecs.load(name, directories) for name in {row.device for row in able}}
    answers = predict_able(pieces, laid, compositions, kernels, directories)
    for row, alone in zip(able, answers, strict=True):
        one = with_exchanges(alone, row, sent[row.configuration], specs[row.device], blocks)
        known = math.isfinite(one.time)
        found.append((row, one if known else None, f"{NOTE}; {taken(row)}" if known else NO_MODEL))
    return found


def _opened(row: Row) -> Graph | str:
    """The graph of one rank of a row, or why there is none."""
    layout = row.layout
    if row.mode != "inf":
        return f"over context ranks ({row.variant}) only inference is predicted"
    if layout.devices > layout.context_parallel:
        return f"context ranks are predicted alone, as in cp{layout.context_parallel}; variant is {row.variant}"
    try:
        division = Division(layout.context_parallel, layout.context_method)
        return rank_graph(row.model.lower(), row.seq, row.batch, row.dtype, division)
    except InputError as error:
        return f"no graph: {error}"


def _piece(row: Row) -> Row:
    """The row that stands for one rank on one device."""
    return dataclasses.replace(row, layout=ONE_DEVICE, variant=VARIANT, part=row.variant)


def _blocks(
    rows: Sequence[Row], sent: Mapping[tuple, Sequence[Exchange]], kernels: Parameters, directories: Sequence[str]
) -> Blocks:
    """The kernels that something is sent behind, on every device."""
    ops = {each.behind.key: each.behind for own in sent.values() for each in own if each.behind is not None}
    if not ops:
        return {}
    devices = sorted({row.device for row in rows})
    times = kernel_times(list(ops.values()), devices, kernels, directories=directories)
    return {
        (device, key): (float(times.predicted[at, place]), float(times.roofline[at, place]))
        for at, device in enumerate(devices)
        for place, key in enumerate(ops)
    }


def with_exchanges(
    alone: Prediction, row: Row, sent: Sequence[Exchange], spec: DeviceSpec, blocks: Blocks
) -> Prediction:
    """The prediction of a rank with what it waits for, of which the standard deviation of the logarithm is `LINKS`."""
    ranks = row.layout.context_parallel
    exposed = ideal = 0.0
    for each in sent:
        if each.behind is None:
            exposed += each.times * exchange_time(spec, ranks, each.size)
            ideal += each.times * ideal_exchange(spec, ranks, each.size)
        else:
            block, roofline = blocks[row.device, each.behind.key]
            exposed += each.times * max(0.0, sending_time(spec, ranks, each.size) - block)
            ideal += each.times * max(0.0, ideal_sending(spec, ranks, each.size) - roofline)
    time = alone.time + exposed
    links = exposed / time
    return dataclasses.replace(
        alone,
        time=time,
        forward=alone.forward + exposed,
        roofline=alone.roofline + ideal,
        common=(math.sqrt(alone.common) * (1.0 - links) + links * LINKS) ** 2,
        separate=alone.separate * (1.0 - links) ** 2 + (links * LINKS) ** 2,
        exposed=exposed,
    )
