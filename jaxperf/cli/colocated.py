"""What `jaxperf colocate` answers: a row for every engine, alone and in each way to share a device, and notes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwspecs.errors import InputError
from jaxperf.cli.engines import Served
from jaxperf.cli.kernel_intervals import at_ends, intervals
from jaxperf.cli.logged import left_out_notes
from jaxperf.cli.neighbors import (
    Engine,
    Question,
    Run,
    Shared,
    alone,
    engine_of,
    in_slices,
    in_turns,
    side_by_side,
    with_memory_divided,
)
from jaxperf.cli.simulate_said import backlog_notes, reservation_notes, span_words, step_notes, used_options
from jaxperf.serving.fleet.metrics import summarize_fleet

ALONE = "alone"
LATENCIES = ("ttft", "tpot", "e2e")
MEANS = tuple(f"{name}_mean_s" for name in LATENCIES)
NAN = float("nan")
NOTES = {
    "mps": "kernels of all engines share arithmetic, memory bandwidth and links max-min fairly, by what a step with "
    "prompts and one without need of them in the mean; that is the best MPS can do",
    "time_slice": "of k engines with work each has 1 / k of the time, and switching between them takes none",
    "mig": "each engine has 1 / {} of cores, arithmetic, L2, memory, bandwidth and power, whether the others have work "
    "or not; the slices that a device can be cut into have sizes of their own",
}
NOT_MODELED = (
    "caches that evict each other's lines, launches that queue, and the memory of each process's context are not in it"
)


def answer_of(
    questions: Sequence[Question], served: Served, ways: Sequence[str], limits: Mapping[str, float]
) -> dict[str, Any]:
    """Everything that is told, as plain data, mean latencies with their intervals; `limits` of the SLO in seconds.

    **Raises:** `InputError` for engines that cannot run on the device even alone, or not on the same one.
    """
    record = _answer_of(questions, served, ways, limits)
    ends = at_ends(lambda end: _answer_of(questions, end, ways, limits)["rows"], served)
    for row, *others in zip(record["rows"], *ends, strict=True):
        for name in MEANS:
            if name in row:
                row[f"{name}_lower"], row[f"{name}_upper"] = intervals(row[name], [other[name] for other in others])
    return record


def _answer_of(
    questions: Sequence[Question], served: Served, ways: Sequence[str], limits: Mapping[str, float]
) -> dict[str, Any]:
    whole = [engine_of(question, served) for question in questions]
    device = _common_device(whole, served)
    solo = [alone(engine) for engine in whole]
    notes = _engine_notes(whole, served)
    before = [_figures(found, 0, limits) for found in solo]
    rows = [_row(ALONE, found, 0, said, said) for found, said in zip(solo, before, strict=True)]
    notes += [note for found in solo for note in _run_notes(ALONE, found)]
    for way in ways:
        found = _shared(way, whole, [each.runs[0] for each in solo], served)
        if isinstance(found, str):
            rows += [_empty_row(way, engine, found) for engine in whole]
            continue
        figures = [_figures(found, place, limits) for place in range(len(whole))]
        rows += [_row(way, found, place, figures[place], before[place]) for place in range(len(whole))]
        notes += [f"{way}: {NOTES[way].format(len(whole))}", *_new_notes(way, found, whole), *_run_notes(way, found)]
    columns = dict.fromkeys(name for row in rows for name in row)
    rows = [{name: row.get(name, NAN) for name in columns} for row in rows]
    return {"device": device, "rows": rows, "notes": list(dict.fromkeys([*notes, NOT_MODELED]))}


def _common_device(engines: Sequence[Engine], served: Served) -> str:
    """The device that all engines name.

    **Raises:** `InputError` where they name several, or are laid out on it in different ways or as a pipeline.
    """
    for each in engines:
        if each.scheduler.ahead:
            raise InputError(
                f"{each.question.where}: async_scheduling is true; engines that share a device form no step ahead here."
            )
        if each.scheduler.pipeline_parallel > 1:
            raise InputError(
                f"{each.question.where}: pp is above 1; engines that share a device are not pipelines here."
            )
    places = {served.calibrated(each.scheduler.device)[0]: each.question.where for each in engines}
    if len(places) > 1:
        named = ", ".join(f"{name} ({where})" for name, where in places.items())
        raise InputError(f"the engines are on different devices: {named}; give --device.")
    layouts = {each.scheduler.tensor_parallel: each.question.where for each in engines}
    if len(layouts) > 1:
        named = ", ".join(f"{ranks} ({where})" for ranks, where in layouts.items())
        raise InputError(f"tp is not the same: {named}; engines that share devices are split over the same ones.")
    return next(iter(places))


def _shared(way: str, whole: Sequence[Engine], solo: Sequence[Run], served: Served) -> Shared | str:
    """All engines in one way of sharing, or why it is not possible; `solo`: each alone."""
    try:
        if way == "mig":
            if whole[0].scheduler.tensor_parallel > 1:
                return "slices have no links to other devices; tp must be 1."
            sliced = dataclasses.replace(served, slices=len(whole))
            return in_slices([engine_of(one.question, sliced) for one in whole], whole)
        engines = with_memory_divided(whole, served)
    except InputError as error:
        return str(error)
    return (side_by_side if way == "mps" else in_turns)(engines, solo)


def _figures(found: Shared, place: int, limits: Mapping[str, float]) -> dict[str, Any]:
    """Latencies, rates and use of one engine, as `jaxperf simulate` has them; empty where nothing was completed."""
    run, numbers = found.runs[place], found.engines[place].scheduler.numbers
    done = run.columns["completed"] >= 0.0
    if not done.any():
        return {}
    return summarize_fleet(run.columns, [np.arange(len(done))], run.found, numbers["blocks"], limits)


def _row(way: str, found: Shared, place: int, figures: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """One engine in one way of sharing; `before`: its figures alone."""
    engine, run = found.engines[place], found.runs[place]
    latency = {name: figures["latency_s"][name] if figures else {"mean": NAN, "p99": NAN} for name in LATENCIES}
    solo = {name: before["latency_s"][name]["mean"] if before else NAN for name in LATENCIES}
    good = figures.get("goodput", {})
    blocks = engine.scheduler.numbers["blocks"]
    return {
        **_who(way, engine),
        "completed": int((run.columns["completed"] >= 0.0).sum()),
        **{f"{name}_{end}_s": latency[name][end] for name in LATENCIES for end in ("mean", "p99")},
        **{f"{name}_slowdown": latency[name]["mean"] / solo[name] for name in LATENCIES},
        "prefill_step_slowdown": float(found.stretch[place, 0]),
        "decode_step_slowdown": float(found.stretch[place, 1]),
        "busy": figures.get("utilization", NAN),
        "bandwidth_share": float(found.bandwidth[place]),
        "weights_bytes": engine.memory.weights,
        "activations_bytes": engine.memory.activations,
        "cache_bytes": blocks * engine.memory.block,
        "num_blocks": blocks,
        **{name: figures.get(name, NAN) for name in ("kv_use_max", "preemptions", "requests_per_second")},
        "output_tokens_per_second": figures.get("output_tokens_per_second", NAN),
        **({"goodput_share": good["share"], "goodput_per_second": good["requests_per_second"]} if good else {}),
        "reason": "" if figures else "no request is completed",
    }


def _empty_row(way: str, engine: Engine, reason: str) -> dict[str, Any]:
    return {**_who(way, engine), "completed": 0, "reason": reason}


def _who(way: str, engine: Engine) -> dict[str, Any]:
    question = engine.question
    return {
        "sharing": way,
        "engine": question.name,
        "settings": question.where,
        "requests": question.requests,
        "rows": len(question.trace.rows),
    }


def _engine_notes(engines: Sequence[Engine], served: Served) -> list[str]:
    """What was assumed or not used of each engine and its requests, whatever it shares."""
    found = []
    for engine in engines:
        trace, scheduler = engine.question.trace, engine.scheduler
        own = [
            *scheduler.notes,
            *used_options(scheduler, engine.question.options)[1],
            *reservation_notes(scheduler, trace.prompt + trace.output - 1),
            *trace.notes,
            *left_out_notes(trace),
            *served.notes(None, [scheduler]),
            f"step times: {engine.step_times[1]}",
        ]
        found += [f"{engine.question.name}: {note}" for note in own]
    return found


def _new_notes(way: str, found: Shared, whole: Sequence[Engine]) -> list[str]:
    """What settings mean here and not on the whole device: how many blocks there are."""
    return [
        f"{way}: {own.question.name}: {note}"
        for own, large in zip(found.engines, whole, strict=True)
        for note in own.scheduler.notes
        if note not in large.scheduler.notes
    ]


def _run_notes(way: str, found: Shared) -> list[str]:
    """What to know of the simulations: steps beyond the tables, and who does not keep up."""
    notes = [f"{way}: {note}" for note in found.notes]
    for engine, run in zip(found.engines, found.runs, strict=True):
        own = [*step_notes(run.found), *backlog_notes(run.columns)]
        notes += [f"{way}: {engine.question.name}: {note}" for note in own]
    return notes


def print_colocated(record: Mapping[str, Any], quiet: bool) -> None:
    """The table, the bandwidth that all take together, and notes."""
    from jaxperf.report.text import console, gigabytes, number, print_notes, table

    out, rows = console(), record["rows"]
    done = [row for row in rows if not row["reason"]]
    times = [f"{name}_{end}_s" for name in LATENCIES for end in ("mean", "p99")]
    cells = [
        (
            *(row["sharing"], row["engine"]),
            *(number(row[name] * 1e3) for name in times),
            *(number(row[f"{name}_slowdown"]) for name in (*LATENCIES, "prefill_step", "decode_step")),
            *(f"{row[name]:.1%}" for name in ("busy", "bandwidth_share")),
            *(gigabytes(row[name]) for name in ("weights_bytes", "cache_bytes")),
        )
        for row in done
    ]
    titles = ("sharing", "engine", "TTFT ms", "p99", "TPOT ms", "p99", "E2E ms", "p99", "x TTFT", "x TPOT", "x E2E")
    titles += ("x prefill", "x decode", "busy", "bandwidth", "weights", "cache")
    engines = len({row["engine"] for row in rows})
    out.print(table(f"{engines} engines on one {record['device']}; x: times as long as alone", titles, cells))
    spans = [
        (
            row["sharing"],
            row["engine"],
            *(span_words([row[f"{name}_{end}"] for end in ("lower", "upper")], 1e3) for name in MEANS),
        )
        for row in done
    ]
    out.print(table("intervals of the means", ("sharing", "engine", "TTFT ms", "TPOT ms", "E2E ms"), spans))
    for way in dict.fromkeys(row["sharing"] for row in rows if row["sharing"] != ALONE):
        own = [row for row in rows if row["sharing"] == way]
        for reason in dict.fromkeys(row["reason"] for row in own if row["reason"]):
            out.print(f"{way}: not possible: {reason}", soft_wrap=True)
        if all(not row["reason"] for row in own):
            taken = sum(row["bandwidth_share"] for row in own)
            memory = sum(row["weights_bytes"] + row["activations_bytes"] + row["cache_bytes"] for row in own)
            good = ", ".join(f"{row['engine']} {row['goodput_share']:.1%}" for row in own if "goodput_share" in row)
            within = f"; within the limits: {good}" if good else ""
            words = f"memory bandwidth busy {taken:.1%}, {gigabytes(memory)} of memory taken{within}"
            out.print(f"{way}: {words}", soft_wrap=True)
    print_notes(out, record["notes"], quiet)
