"""What `jaxperf simulate` says: cells for every row, a summary as plain data, and the same as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxperf.cli.logged import FIRST_TOKEN_OF_VIDUR, Cells, agreement, agreement_words

if TYPE_CHECKING:
    import numpy as np

    from jaxperf.io.request_traces import RequestTrace
    from jaxperf.serving.simulator.run import Simulated
    from jaxperf.serving.simulator.settings import Scheduler

TIMES = {"scheduled_at": "scheduled", "first_token_at": "first_token", "completed_at": "completed"}
NEVER = "never admitted: it does not fit into an empty replica"
OUTGREW = "not completed: it outgrew the cache of an empty replica"
UNSENT = "never sent: the request it follows was not completed"
LATENCIES = ("ttft", "tpot", "itl", "e2e", "queueing", "prefill")
ENDS = ("mean", "p50", "p90", "p99", "max")
INTERVAL = "its interval"


def request_columns(trace: RequestTrace, found: Simulated) -> dict[str, np.ndarray]:
    """What became of every request of the trace, put together again from the replicas that shared them."""
    import numpy as np

    replicas = len(found.events)
    columns = {name: np.array([]) for name in (*TIMES.values(), "arrived", "restarts", "status")}
    if found.requests.swaps is not None:
        columns["swaps"] = np.array([])
    for name in columns:
        values = getattr(found.requests, name)
        columns[name] = np.empty(len(trace.row), values.dtype)
        for lane in range(replicas):
            share = columns[name][lane::replicas]
            share[:] = values[lane, : len(share)]
    asked = getattr(trace, "asked", None)
    columns |= {} if asked is None else {"asked": asked}
    return columns | {"prompt": trace.prompt, "output": trace.output}


def cells_of(
    trace: RequestTrace, requests: Mapping[str, np.ndarray] | None, sent: bool, refused: Mapping[int, str]
) -> Cells:
    """New cells for every row of the file; None where the request did not get so far.

    **Arguments:** `requests`: of `request_columns`, None where there are none; `sent`: whether to say when the client
    sent each request; `refused`: as of `cli.fleets.Answer`.
    """
    from jaxperf.serving.simulator.state import Status

    names = {**({"sent_at": "arrived"} if sent else {}), **TIMES}
    names |= {FIRST_TOKEN_OF_VIDUR: "first_token"} if FIRST_TOKEN_OF_VIDUR in trace.rows[0] else {}
    counts = {"num_restarts": "restarts"} | ({"num_swaps": "swaps"} if "swaps" in (requests or {}) else {})
    cells: Cells = {name: [None] * len(trace.rows) for name in (*names, *counts)}
    cells["reason"] = [trace.reasons.get(row, "") for row in range(len(trace.rows))]
    if requests is None:
        return cells
    values = {name: requests[field].tolist() for name, field in names.items()}
    values |= {name: requests[field].tolist() for name, field in counts.items()}
    status, ends = requests["status"].tolist(), {Status.WAITING: UNSENT}
    for place, row in enumerate(trace.row.tolist()):
        for name in counts:
            cells[name][row] = values[name][place]
        cells["reason"][row] = ends.get(status[place], "")
        if status[place] == Status.REJECTED:
            cells["reason"][row] = _never(refused[place]) if place in refused else OUTGREW
        for name in names:
            cells[name][row] = values[name][place] if values[name][place] >= 0.0 else None
    return cells


def _never(lacks: str) -> str:
    return f"{NEVER} ({lacks})" if lacks else NEVER


def with_columns(trace: RequestTrace, cells: Cells) -> list[dict[str, Any]]:
    """The rows of the file; a column of the same name, as in another simulator's output, gives way to ours."""
    return [{**row, **{name: values[index] for name, values in cells.items()}} for index, row in enumerate(trace.rows)]


def summary(trace: RequestTrace, cells: Cells) -> dict[str, Any]:
    """How many rows became what, and how they agree with times in the file, as plain data."""
    groups: dict[str, list[str]] = {}
    for reason in filter(None, cells["reason"]):
        groups.setdefault(NEVER if reason.startswith(NEVER) else reason, []).append(reason)
    without = sorted(groups.values(), key=len, reverse=True)
    return {
        "rows": len(trace.rows),
        "completed": sum(time is not None for time in cells["completed_at"]),
        "without_times": [{"reason": _common(each), "rows": len(each)} for each in without],
        "agreement": agreement(trace, cells),
    }


def _common(reasons: Sequence[str]) -> str:
    """The first of some reasons that differ in numbers at most."""
    return reasons[0] + ("" if len(set(reasons)) == 1 else ", and others like it")


def figures(
    requests: Mapping[str, np.ndarray],
    found: Simulated,
    scheduler: Scheduler,
    limits: Mapping[str, float],
    warm_up: float,
    asked: int,
) -> dict[str, Any]:
    """Latencies and rates as plain data, of `asked` replicas, some perhaps without a request; empty where nothing was
    completed."""
    from jaxperf.serving.simulator.metrics import after_warm_up, summarize

    if not (requests["completed"] >= 0.0).any():
        return {}
    replicas = len(found.events)
    shares = [{name: values[lane::replicas] for name, values in requests.items()} for lane in range(replicas)]
    pipelined = scheduler.pipeline_parallel > 1
    said = summarize(shares, found, scheduler.numbers["blocks"], limits, warm_up, pipelined)
    said |= scheduler.fragmentation(after_warm_up(requests, warm_up))
    return said | {"utilization": said["utilization"] * replicas / asked}


def used_options(scheduler: Scheduler, options: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[str]]:
    """The columns of the requests that the scheduler uses; where priorities are given in vain, a sentence."""
    if scheduler.by_priority == ("priority" in options):
        return dict(options), []
    if scheduler.by_priority:
        return dict(options), ["scheduling_policy is priority, but the file has no column priority"]
    rest = {name: values for name, values in options.items() if name != "priority"}
    return rest, ["the column priority is not used: scheduling_policy is fcfs"]


def prefix_notes(
    data: Mapping[str, Any], scheduler: Scheduler, trace: RequestTrace, routing: str | None = None
) -> list[str]:
    """Where prefixes are stated, asked to be cached or to be routed by in vain, a sentence each; `data`: the
    settings."""
    shared, notes = trace.hashes is not None or hasattr(trace, "texts"), []
    if trace.hashes is not None and scheduler.name != "vllm_v1":
        notes.append(f"the column hash_ids is not used: {scheduler.name} caches no prefixes, as vllm_v1 does")
    if data.get("enable_prefix_caching") and not shared:
        notes.append("enable_prefix_caching is true, but nothing says which prompts are alike: there are no hash_ids")
    if routing == "prefix_aware" and not (shared and scheduler.tokens_per_hash):
        notes.append("routing prefix_aware is as least_outstanding: no prefixes are cached")
    return notes


def reservation_notes(scheduler: Scheduler, tokens: np.ndarray) -> list[str]:
    """Whether requests that leave so many `tokens` [R] in the cache outgrow what is reserved, in a sentence."""
    reserved = scheduler.numbers["reserved"] * scheduler.numbers["block_size"]
    longer = 0 if scheduler.policy.paged else int((tokens > reserved).sum())
    if not longer:
        return []
    return [
        f"{longer:,} requests outgrow the {reserved:,} tokens that max_blocks_per_seq reserves for each; they run, and "
        "the blocks that they would need beyond are not counted"
    ]


def step_notes(found: Simulated) -> list[str]:
    """Whether the table of step times reached all steps, in a sentence."""
    steps, beyond = int(found.totals.steps.sum()), int(found.totals.beyond.sum())
    if not beyond:
        return []
    return [f"{beyond:,} of {steps:,} steps lie beyond the table of step times; its last entries are used"]


def backlog_notes(requests: Mapping[str, np.ndarray]) -> list[str]:
    """Whether requests of an open loop come faster than they are completed, in a sentence; none where all come at once.

    Beyond what a request takes at the pace of the fastest prefill and of the fastest decodes there is a queue, or a
    batch that grows.

    **Arguments:** `requests`: of `request_columns`, or of pools and fleets; perhaps empty.
    """
    import numpy as np

    from jaxperf.serving.fleet.capacity import KEPT_UP, middle_spans
    from jaxperf.serving.simulator.metrics import request_metrics

    if not requests:
        return []
    told, prompt = request_metrics(requests), requests["prompt"]
    alone = prompt * _least(told["prefill"] / prompt) + (requests["output"] - 1) * _least(told["tpot"])
    came, went = middle_spans({**requests, "real": np.ones(len(requests["arrived"]), bool)}, alone)
    if not came > 0.0 or KEPT_UP * went <= came:
        return []
    share = f"completed at {came / went:.0%} of the rate at which they come"
    return [f"requests are {share}: the queue, and with it every latency, grows with the length of the trace"]


def _least(values: np.ndarray) -> float:
    """The smallest of the numbers among `values`; 0 where there is none."""
    return min((value for value in values.tolist() if value == value), default=0.0)


def print_simulated(record: Mapping[str, Any], quiet: bool) -> None:
    """The table of latencies, the replica's figures, and what to know of them."""
    from jaxperf.report.text import console, number, print_notes, table, unit_cost_words
    from jaxperf.serving.unit_costs import ENERGY

    out = console()
    title = f"{record['completed']:,} of {record['rows']:,} requests completed, scheduler {record['scheduler']}"
    if "latency_s" in record:
        rows = [(name, *(number(record["latency_s"][name][end] * 1e3) for end in ENDS)) for name in LATENCIES]
        columns = ("ms", *ENDS)
        if "intervals" in record:
            spans = [record["intervals"]["latency_s"][name]["mean"] for name in LATENCIES]
            columns = ("ms", "mean", INTERVAL, *ENDS[1:])
            rows = [(*row[:2], span_words(span, 1e3), *row[2:]) for row, span in zip(rows, spans, strict=True)]
        out.print(table(title, columns, rows))
        out.print(_replica_words(record), soft_wrap=True)
        if ENERGY in record:
            out.print(unit_cost_words(record), soft_wrap=True)
    else:
        out.print(title)
    for entry in record["agreement"]:
        out.print(agreement_words(entry), soft_wrap=True)
    for entry in record["without_times"]:
        out.print(f"no times ({entry['rows']:,}): {entry['reason']}", soft_wrap=True)
    print_notes(out, record["notes"], quiet)
    if not quiet:
        out.print(f"step times: {record['step_time']}", soft_wrap=True)
    out.print(f"written: {record['out']}", soft_wrap=True)


def span_words(span: Sequence[float], scale: float = 1.0) -> str:
    """Both ends of an interval; as a number that is not known where either is not."""
    from jaxperf.report.text import number

    known = all(math.isfinite(end) for end in span)
    return " - ".join(number(end * scale) for end in span) if known else number(math.nan)


def _replica_words(record: Mapping[str, Any]) -> str:
    from jaxperf.report.text import number

    words = [
        f"{number(record['requests_per_second'])} requests/s",
        f"{number(record['output_tokens_per_second'])} output tokens/s",
        f"busy {record['utilization']:.1%}",
        f"{number(record['batch_occupancy'])} requests in the batch",
        f"KV cache {record['kv_use']:.1%} (at most {record['kv_use_max']:.1%})",
        f"{record['preemptions']} evictions",
    ]
    if "kv_waste" in record:
        words.append(
            f"{number(record['kv_empty_tokens'])} places of a request's blocks empty ({record['kv_waste']:.1%})"
        )
    if "goodput" in record:
        good = record["goodput"]
        words.append(f"goodput {number(good['requests_per_second'])} requests/s ({good['share']:.1%})")
    return ", ".join(words)
