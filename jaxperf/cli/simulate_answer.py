"""What `jaxperf simulate` is asked, and which simulation answers it: replicas in turn, behind a router, or pools."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwspecs.errors import InputError
from jaxperf.serving.unit_costs import ENERGY_NOTE, unit_costs

if TYPE_CHECKING:
    import numpy as np

    from jaxperf.cli.engines import Paid, Placed, Served
    from jaxperf.cli.fleets import Answer
    from jaxperf.io.request_traces import RequestTrace
    from jaxperf.serving.simulator.adapt import Terms
    from jaxperf.serving.simulator.settings import Scheduler
    from jaxperf.serving.simulator.step_time import AbstractStepTime, StepTimeTable
    from jaxperf.serving.unit_costs import Prices

IN_TURN = "round_robin"
Options = dict[str, "np.ndarray"]


@dataclass(frozen=True)
class Asked:
    """How requests are given to replicas and what is told of them; `limits` of the SLO and `warm_up` in seconds;
    `paid`: --price and --electricity."""

    replicas: int
    routing: str
    concurrency: int | None
    step_time: Path | None
    adapt: Path | None
    limits: Mapping[str, float]
    warm_up: float
    paid: Paid = (None, None)


QUEUED = "queued_at"  # by the engine, after what comes before it
OF_STEPS = ("latency_s", "requests_per_second", "output_tokens_per_second", "goodput")  # figures with intervals


def answer_of(
    data: Mapping[str, Any], where: str, trace: RequestTrace, options: Options, served: Served, asked: Asked
) -> Answer:
    """The simulation of a trace with the settings `data`, from the file `where`; with `intervals` of the figures where
    its steps are those of our own kernels.

    **Raises:** `InputError` for settings that are wrong, and for options that do not go together.
    """
    from jaxperf.cli.kernel_intervals import at_ends, intervals

    answer = _answer_of(data, where, trace, options, served, asked)
    if not answer.figures or asked.step_time is not None or asked.adapt is not None:
        return answer
    ends = at_ends(lambda end: _answer_of(data, where, trace, options, end, asked).figures, served)
    told = {name: answer.figures[name] for name in OF_STEPS if name in answer.figures}
    return dataclasses.replace(answer, figures=answer.figures | {"intervals": intervals(told, ends)})


def _answer_of(
    data: Mapping[str, Any], where: str, trace: RequestTrace, options: Options, served: Served, asked: Asked
) -> Answer:
    from jaxperf.cli.engines import placed, priced, scheduler_of, step_times_of
    from jaxperf.cli.fleets import Answer, answer_of_pools, answer_of_replicas, pools_of
    from jaxperf.cli.simulate_said import prefix_notes, reservation_notes, used_options
    from jaxperf.serving.fleet.settings import check_stages
    from jaxperf.serving.simulator.adapt import with_terms

    if "pools" in data:
        _refuse_beside_pools(options, asked)
        pools = pools_of(data, where, served, trace, asked.step_time)
        devices = placed(served, [(pool.scheduler, pool.replicas) for pool in (pools.prefill, pools.decode)])
        prices = priced(devices, *asked.paid)
        answer = answer_of_pools(pools, trace, served, asked.step_time, asked.limits, asked.warm_up)
        return _with_costs(answer, devices, prices)
    scheduler = scheduler_of(data, served, where, trace.prompt + trace.output, asked.step_time)
    devices = placed(served, [(scheduler, asked.replicas)])
    prices = priced(devices, *asked.paid)
    options, said = used_options(scheduler, options)
    said += prefix_notes(data, scheduler, trace, asked.routing)
    notes = [*scheduler.notes, *said, *reservation_notes(scheduler, trace.prompt + trace.output - 1)]
    if not len(trace.row):
        return Answer({}, {}, scheduler.name, scheduler.numbers, "none", notes, {})
    routed = asked.routing != IN_TURN or getattr(trace, "after", None) is not None
    if asked.concurrency is not None:
        _check_concurrency(trace, asked.routing)
    if routed:
        check_stages(scheduler, where)
    times, source = step_times_of(asked.step_time, scheduler, trace, served)
    notes += served.notes(asked.step_time, [scheduler], intervals=asked.adapt is None)
    if asked.adapt is not None:
        terms, words, said = _adapted(asked.adapt, asked.step_time, scheduler, served, trace)
        times = with_terms(_table(times), terms)
        source += words
        notes += said
    if not routed:
        answer = _answer_in_turn(scheduler, trace, options, times, source, asked)
    else:
        rest = (asked.replicas, asked.routing, asked.limits, asked.warm_up)
        answer = answer_of_replicas(scheduler, trace, options, times, source, *rest)
    return _with_costs(dataclasses.replace(answer, notes=[*notes, *answer.notes]), devices, prices)


def _check_concurrency(trace: RequestTrace, routing: str) -> None:
    """Raises `InputError` for requests that no client keeps under way by itself."""
    if getattr(trace, "after", None) is not None:
        raise InputError("--concurrency is not for requests that are sent when others have ended; leave it out.")
    if getattr(trace, "asked", None) is not None:
        raise InputError("--concurrency is not for requests that come from stages before the engine; leave it out.")
    if routing != IN_TURN:
        raise InputError("--concurrency is for requests in turn; leave it or --routing out.")


def _with_costs(answer: Answer, devices: Placed, prices: Prices) -> Answer:
    """The answer with what a million output tokens take, where the devices are known and tokens were made."""
    if not devices or not answer.figures:
        return answer
    costs = unit_costs(answer.figures["output_tokens_per_second"], devices, prices)
    return dataclasses.replace(answer, figures=answer.figures | costs, notes=[*answer.notes, ENERGY_NOTE])


def _refuse_beside_pools(options: Options, asked: Asked) -> None:
    given = {
        "--concurrency": asked.concurrency is not None,
        "--adapt": asked.adapt is not None,
        "--replicas": asked.replicas != 1,
        "--routing": asked.routing != IN_TURN,
        "the column priority": "priority" in options,
        "the column prefilled_tokens": "brought" in options,
    }
    for name, there in given.items():
        if there:
            raise InputError(f"{name} does not go with settings that have pools, each of which has its own.")


def _answer_in_turn(
    scheduler: Scheduler, trace: RequestTrace, options: Options, times: AbstractStepTime, source: str, asked: Asked
) -> Answer:
    """Replicas that take every n-th request, each with a client of its own."""
    from jaxperf.cli.fleets import Answer, requests_of
    from jaxperf.cli.simulate_said import figures, request_columns, step_notes
    from jaxperf.serving.simulator.refusals import refusals
    from jaxperf.serving.simulator.run import simulate_requests
    from jaxperf.serving.simulator.trace import OPEN
    from jaxperf.serving.simulator.workloads import round_robin

    shares = round_robin(trace, asked.replicas, requests_of(trace, scheduler).path, **options)
    found = simulate_requests(scheduler, times, shares, OPEN if asked.concurrency is None else asked.concurrency)
    columns = request_columns(trace, found)
    told = figures(columns, found, scheduler, asked.limits, asked.warm_up, asked.replicas)
    refused = refusals(scheduler, columns, options.get("brought"))
    return Answer(columns, told, scheduler.name, scheduler.numbers, source, step_notes(found), refused)


def _adapted(
    log: Path, table: Path | None, scheduler: Scheduler, served: Served, simulated: RequestTrace
) -> tuple[Terms, str, list[str]]:
    """The terms of step times fitted to a measured log, in words how, and what of the log is left out or not compared.

    They are fitted to step times as far as the log reaches, so that they do not depend on what is then simulated.
    """
    import numpy as np

    from jaxperf.cli.engines import step_times_of
    from jaxperf.cli.fleets import requests_of
    from jaxperf.cli.logged import left_out_notes, own_times, uncompared_notes
    from jaxperf.cli.simulate_said import step_notes, used_options
    from jaxperf.io.request_options import with_options
    from jaxperf.io.request_traces import read_requests
    from jaxperf.serving.simulator.adapt import check_compared, fit_terms, with_terms
    from jaxperf.serving.simulator.run import simulate_requests

    trace, options = with_options(read_requests(log))
    requests = requests_of(trace, scheduler, used_options(scheduler, options)[0])
    names = {"first_token": "first_token_at", "completed": "completed_at"}
    measured = {name: own_times(trace, column)[1][trace.row] for name, column in names.items()}
    said = [*trace.notes, *left_out_notes(trace), *uncompared_notes(trace), *_clock_notes(trace, simulated)]
    compared = int(np.isfinite(measured["first_token"] + measured["completed"]).sum())
    try:
        check_compared(compared)
        times = _table(step_times_of(table, scheduler, trace, served)[0])
        terms = fit_terms(times, scheduler, requests, measured)
    except InputError as error:
        raise InputError(f"--adapt: {log}: {'; '.join([str(error).removesuffix('.'), *said])}.") from None
    said += step_notes(simulate_requests(scheduler, with_terms(times, terms), [requests]))
    fitted = f"linear x {terms.linear:.3g}, attention x {terms.attention:.3g}"
    added = f"{terms.step * 1e3:.3g} ms a step and {terms.decode * 1e6:.3g} us a decode"
    words = f", fitted to {compared} requests of {log}: {fitted}, {added}"
    return terms, words, [f"--adapt: {each}" for each in said]


def _table(times: AbstractStepTime) -> StepTimeTable:
    """The table that terms are fitted to. Raises `InputError` where attention is one kernel, which has no terms."""
    from jaxperf.serving.simulator.step_time import StepTimeTable

    if not isinstance(times, StepTimeTable):
        raise InputError("it does not go with --fused-attention: a log has in its times what its kernels hide.")
    return times


def _clock_notes(log: RequestTrace, simulated: RequestTrace) -> list[str]:
    """Whether one file says when requests were queued by the engine and the other when they came, in a sentence."""
    from jaxperf.io.request_cells import column_named
    from jaxperf.io.request_traces import NAMES

    first, second = ((column_named(trace.rows[0], NAMES["arrived_at"]) or "").strip() for trace in (log, simulated))
    if (first.casefold() == QUEUED) == (second.casefold() == QUEUED):
        return []
    return [
        f"its requests are counted from {first}, those of the simulation from {second}: what passes between the two is "
        "in the times of one of them only"
    ]
