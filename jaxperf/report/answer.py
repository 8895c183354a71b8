"""The answer to one configuration: the number with its interval, what limits it, where it comes from."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from jaxperf.core.cost import Cost, Limiter
from jaxperf.core.feasible import SENTENCES, Reason
from jaxperf.models.step import COLLECTIVES
from jaxperf.report.text import (
    LIMITER_WORDS,
    bold,
    console,
    gigabytes,
    interval,
    layout_words,
    limiter_words,
    milliseconds,
    number,
    table,
)
from jaxperf.serving.estimate import Estimate
from jaxperf.serving.explain import HOST, PHASES, WAIT, limiter_shares, pipeline_wait

# Metric -> (how it is called, unit of the printed number, scale from SI).
SHOWN = {
    "ttft": ("TTFT", "ms", 1e3),
    "tpot": ("TPOT", "ms", 1e3),
    "tokens_per_second": ("output", "tokens/s", 1.0),
    "tokens_per_second_per_device": ("per device", "tokens/s", 1.0),
    "energy_per_token": ("energy", "J/token at TDP", 1.0),
}
BUSIEST = "busiest stage"  # what a wait in a pipeline is limited by
LEAST_WAIT = 1e-6  # of a step; less is rounding
CAPPED = "J/token at cap"  # of the energy where a limit is given


def estimate_record(answer: Estimate) -> dict[str, Any]:
    """The whole answer as plain data, SI units."""
    metrics = {name: _number(value) for name, value in answer.explanation.metrics.items()}
    memory = answer.explanation.cost.memory
    return {
        "model": answer.model.name,
        "device": answer.spec.name,
        "point": dict(answer.point),
        "feasible": answer.feasible,
        "reasons": answer.reasons,
        "metrics": metrics,
        "memory_bytes": {
            name: float(getattr(memory, name)) for name in ("weights", "kv_cache", "activations", "usable")
        },
        "largest_batch": answer.largest_batch,
        "kernels": kernel_rows(answer),
        "notes": list(answer.notes),
        "roofline": {name: _number(answer.explanation.roofline[name]) for name in ("ttft", "tpot")},
        "provenance": {**answer.provenance.record, "device_values": device_confidence(answer)},
    }


def kernel_rows(answer: Estimate) -> list[dict[str, Any]]:
    """One row a kernel and phase: time [s] with the ends of its interval, its share, FLOP, bytes, limiter.

    All kernels of the total are at the same end at once: without pipelines the ends of the rows add up to its own. In a
    pipeline the wait for its busiest stage is a row as well, the times adding up to that of the step.
    """
    rows = []
    for phase in PHASES:
        step, ends = getattr(answer.explanation.cost, phase), answer.explanation.ends[phase]
        wait = max(0.0, float(pipeline_wait(step))) if _in_turns(answer) else 0.0
        total = sum(float(cost.time) for cost in step.kernels.values()) + float(step.host) + wait
        slowest_first = sorted(step.kernels.items(), key=lambda item: -float(item[1].time))
        timed = [(name, cost.time, _work(cost)) for name, cost in slowest_first if float(cost.time) > 0.0]
        nothing = {"flops": 0.0, "bytes_moved": 0.0}
        waits = [(WAIT, wait, {**nothing, "limiter": BUSIEST})] if wait > LEAST_WAIT * total else []
        host = (HOST, step.host, {**nothing, "limiter": LIMITER_WORDS[Limiter.HOST]})
        for name, time, work in [*timed, *waits, host]:
            lower, upper = map(float, ends[name])
            times = {"time": float(time), "time_lower": lower, "time_upper": upper, "share": float(time) / total}
            rows.append({"phase": phase, "kernel": name, **times, **work})
    return rows


def _in_turns(answer: Estimate) -> bool:
    """Whether stages of a pipeline serve plain steps, of which techniques make other totals."""
    return answer.techniques is None and answer.point["pipeline_parallel"] > 1


def _work(cost: Cost) -> dict[str, Any]:
    limiter = LIMITER_WORDS[Limiter(int(np.asarray(cost.limiter)))]
    return {"flops": float(cost.flops), "bytes_moved": float(cost.bytes_moved), "limiter": limiter}


def decode_points(answer: Estimate) -> dict[str, tuple[float, float, float]]:
    """Kernel -> (FLOP, device-memory bytes, time [s]) of a decode step, for the roofline."""
    kernels = answer.explanation.cost.decode.kernels
    return {
        name: (float(cost.flops), float(cost.bytes_moved), float(cost.time))
        for name, cost in kernels.items()
        if name not in COLLECTIVES
    }


def print_estimate(answer: Estimate, quiet: bool) -> None:
    """Print the answer as text."""
    out = console()
    point = answer.point
    out.print(
        bold(
            answer.model.name,
            f" on {int(answer.explanation.metrics['num_devices'])} x {answer.spec.name} "
            f"({layout_words(dict(point))}), batch {point['batch']}, {point['prompt']} tokens in, {point['output']} "
            f"out, weights {point['weights']}, KV cache {point['kv_cache']}\n",
        )
    )
    out.print(_memory_line(answer), soft_wrap=True)
    if not answer.feasible:
        out.print(f"infeasible: {'; '.join(_with_lengths(answer))}", soft_wrap=True)
        if not quiet:
            _print_notes(answer)
        return
    _print_metrics(answer)
    if quiet:
        return
    out.print(_kernel_table(answer))
    _print_provenance(answer)


def _print_metrics(answer: Estimate) -> None:
    out = console()
    metrics = answer.explanation.metrics
    why = {"ttft": limiter_words(limiter_shares(answer.explanation, "prefill"))}
    why |= {"tpot": limiter_words(limiter_shares(answer.explanation, "decode"))}
    for name, (word, unit, scale) in SHOWN.items():
        ends = interval(float(metrics[f"{name}_lower"]), float(metrics[f"{name}_upper"]), scale)
        value = number(float(metrics[name]) * scale)
        limited = f"   limited by {why[name]}" if name in why else ""
        unit = CAPPED if name == "energy_per_token" and answer.capped else unit
        out.print(f"{word:11s}{value:>9s} {unit:15s}{ends}{limited}", soft_wrap=True)


def _memory_line(answer: Estimate) -> str:
    memory = answer.explanation.cost.memory
    parts = [
        f"{gigabytes(float(getattr(memory, name)))} {word}"
        for name, word in (("weights", "weights"), ("kv_cache", "KV cache"), ("activations", "activations"))
    ]
    line = f"memory     {' + '.join(parts)} of {gigabytes(float(memory.usable))} usable a device"
    most = answer.largest_batch
    return line if most is None else f"{line}; room for {most:,} such {'sequence' if most == 1 else 'sequences'}"


def _with_lengths(answer: Estimate) -> list[str]:
    """The reasons; that of the context with its numbers."""
    point, longest = answer.point, answer.model.max_context
    tokens = f" ({point['prompt']:,} + {point['output']:,} tokens; it was trained for {longest or 0:,})"
    return [f"{text}{tokens if text == SENTENCES[Reason.CONTEXT] else ''}" for text in answer.reasons]


def _kernel_table(answer: Estimate) -> Any:
    rows = [
        (
            row["phase"],
            row["kernel"],
            milliseconds(row["time"]),
            interval(row["time_lower"], row["time_upper"], 1e3),
            f"{row['share']:.1%}",
            f"{row['flops'] / 1e9:.3g}",
            f"{row['bytes_moved'] / 1e9:.3g}",
            row["limiter"],
        )
        for row in kernel_rows(answer)
    ]
    columns = ("phase", "kernel", "ms", "interval", "share", "GFLOP", "GB", "limited by")
    return table("Kernels of one device: all layers together, one pass", columns, rows)


def _print_provenance(answer: Estimate) -> None:
    out = console()
    roofline = {name: milliseconds(float(answer.explanation.roofline[name])) for name in ("ttft", "tpot")}
    out.print(f"from       {answer.provenance.sentence}", soft_wrap=True)
    out.print(f"           plain roofline: TTFT {roofline['ttft']} ms, TPOT {roofline['tpot']} ms", soft_wrap=True)
    out.print(f"           device values: {device_confidence(answer)}", soft_wrap=True)
    out.print("           TTFT: one prompt, no queueing; TPOT: no interference from prefills; cold weights")
    _print_notes(answer)


def _print_notes(answer: Estimate) -> None:
    out = console()
    for note in answer.notes:
        out.print(f"note       {note}", soft_wrap=True)


def device_confidence(answer: Estimate) -> str:
    """How the device's values are supported: `12 confirmed, 5 estimated (launch_latency, ...)`."""
    values = answer.spec.values()
    counts = Counter(value.confidence for _, value in values)
    weak = [path for path, value in values if value.confidence == "estimated"]
    words = ", ".join(f"{count} {confidence}" for confidence, count in counts.most_common())
    return f"{words} ({', '.join(weak)})" if weak else words


def _number(value: Any) -> float | None:
    """A JSON number; None for NaN, which JSON lacks."""
    found = float(np.asarray(value))
    return None if np.isnan(found) else found
