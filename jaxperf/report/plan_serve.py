"""A serving plan as text: the best configuration, what ends its load, why the others lose, what it rests on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from jaxperf.report.plan_serve_rows import Costs, configuration_words, front_rows
from jaxperf.report.text import bold, console, interval, milliseconds, number, table, unit_cost_words
from jaxperf.report.why import why_more
from jaxperf.serving.plan.points import LATENCIES
from jaxperf.serving.plan.request import Answer, Choice, Request

MOST_REASONS = 4
SAME = 5e-4  # of the device-seconds: equal in what is printed


def print_plan(
    request: Request, answers: Sequence[Answer], costs: Costs, origin: str, notes: Sequence[str], quiet: bool
) -> None:
    """Print the plan as text; `origin`: where the kernels' times are from."""
    out = console()
    wanted = ", ".join(f"{name} {milliseconds(limit)} ms" for name, limit in request.slo.items()) or "no limits"
    asked = "as many requests as they can" if request.rate is None else f"{number(request.rate)} requests/s"
    spread = f" (coefficient of variation {request.spread:g})" if request.spread else ""
    bursts = f" (coefficient of variation {request.arrival_cv:g} between them)" if request.arrival_cv != 1.0 else ""
    out.print(
        bold(
            request.model.name,
            f": {request.prompt:,} tokens in, {request.output:,} out{spread}; "
            f"{request.at} within {wanted}; {asked}{bursts}",
        )
    )
    for answer in answers:
        _print_answer(request, answer, costs, quiet)
    if quiet:
        return
    points = sum(answer.tried for answer in answers)
    out.print(f"\nfrom      {points:,} points by the steady state of vLLM v1's scheduler (docs/steady.md)")
    out.print(f"          {origin}", soft_wrap=True)
    for note in notes:
        out.print(f"note      {note}", soft_wrap=True)


def _print_answer(request: Request, answer: Answer, costs: Costs, quiet: bool) -> None:
    out = console()
    out.print(bold(f"\n{answer.devices:,} x {answer.device}"))
    if answer.interrupted:
        out.print(f"interrupted: the best of the {len(answer.configurations):,} configurations until then")
    if not answer.choices:
        for line in infeasible_sentences(request, answer):
            out.print(line, soft_wrap=True)
        return
    for line in _headline(request, answer, answer.choices[0], costs):
        out.print(line, soft_wrap=True)
    if quiet:
        return
    out.print(_alternatives(request, answer))
    for line in (*why_lines(answer), *_front_line(answer), *_refused_lines(answer)):
        out.print(line, soft_wrap=True)


def _headline(request: Request, answer: Answer, best: Choice, costs: Costs) -> list[str]:
    """The numbers with their intervals, what ends the load, and what a request costs."""
    row = best.row
    ends = {"rate": "the rate that was asked", "load": "what it can serve"}
    bound = ends.get(best.bound, f"{best.bound.upper()} at {request.at}")
    total = sum(best.terms.values())
    parts = ", ".join(f"{name} {value / total:.0%}" for name, value in best.terms.items())
    lines = [
        f"system    {configuration_words(answer, best.configuration, row)}; {int(row['devices'])} devices, at most "
        f"{int(row['slots'])} sequences an engine, {int(row['budget']):,} tokens a step",
        f"serves    {number(row['rate'])} requests/s: {number(row['tokens_per_second_per_device'])} tokens/s/device, "
        f"{number(row['tokens_per_second_per_user'])} tokens/s/user; {row['utilization']:.0%} of what it can, ended by "
        f"{bound}",
        *(_latency_line(request, best, name) for name in LATENCIES),
        f"cost      {number(total)} device-seconds a request: {parts}",
        f"          {unit_cost_words(costs(answer.device, row['tokens_per_second'], row['devices']))}",
    ]
    missed = best.missed(request.slo)
    return [*lines, f"warning   the simulator misses {' and '.join(missed)}"] if missed else lines


def _latency_line(request: Request, choice: Choice, name: str) -> str:
    row, at = choice.row, f"{name}_at"
    if math.isnan(row[name]):
        return f"{name.upper():9s} none: no request makes a second token"
    simulated = ""
    if name in choice.simulated:
        both = (milliseconds(choice.simulated[each]) for each in (name, at))
        simulated = "; simulated {}, {}".format(*both)
    means, levels = (_range(choice, each) for each in (name, at))
    return (
        f"{name.upper():9s} {milliseconds(row[name])} ms {means}, {request.at} {milliseconds(row[at])} ms "
        f"{levels}{simulated}"
    )


def _range(choice: Choice, name: str) -> str:
    """The interval; an engine as slow as its upper end may not keep up."""
    lower, upper = choice.lower[name], choice.upper[name]
    if math.isfinite(upper):
        return interval(lower, upper, 1e3)
    return f"[{milliseconds(lower)}, overloaded]"


def _alternatives(request: Request, answer: Answer) -> Any:
    rows = []
    for rank, choice in enumerate(answer.choices, start=1):
        row = choice.row
        again = [choice.simulated.get(f"{name}_at", math.nan) for name in ("ttft", "tpot")]
        simulated = "/".join(map(milliseconds, again)) if choice.simulated else "-"
        rows.append(
            (
                str(rank),
                number(row["tokens_per_second_per_device"]),
                number(row["tokens_per_second_per_user"]),
                number(row["rate"]),
                *(milliseconds(row[f"{name}_at"]) for name in LATENCIES),
                simulated,
                f"{row['utilization']:.0%}",
                configuration_words(answer, choice.configuration, row),
            )
        )
    latencies = [f"{name.upper()} {request.at} ms" for name in LATENCIES]
    columns = ("#", "tokens/s/device", "tokens/s/user", "requests/s", *latencies, "simulated TTFT/TPOT", "load")
    return table("Configurations", (*columns, "configuration"), rows)


def why_lines(answer: Answer) -> list[str]:
    """Why each of the others is not first: device-seconds of a request, in shares of the first's, a longer E2E, or
    devices that it leaves over."""
    best, *others = answer.choices
    lines = []
    for rank, choice in enumerate(others, start=2):
        more = sum(choice.terms.values()) / sum(best.terms.values()) - 1.0
        longer = choice.row["e2e"] / best.row["e2e"] - 1.0
        costs = f"{more:+.1%} device-seconds a request" if abs(more) >= SAME else f"as much, its E2E {longer:+.0%}"
        over = int(best.row["devices"] - choice.row["devices"])
        idle = f", but leaves {over} device{'s' if over > 1 else ''} over" if over > 0 else ""
        terms = why_more(best.terms, choice.terms) or "the same in all terms"
        lines.append(f"why       #{rank} takes {costs}{idle}: {terms}")
    return lines


def _front_line(answer: Answer) -> list[str]:
    front = front_rows(answer)
    if not front:
        return []
    ends = [
        f"{number(row['tokens_per_second_per_user'])} tokens/s/user with {number(row['tokens_per_second_per_device'])} "
        "tokens/s/device"
        for row in (front[0], front[-1])
    ]
    return [f"front     {len(front)} points from {ends[0]} to {ends[1]}, whatever the limits (all of them in --json)"]


def _refused_lines(answer: Answer) -> list[str]:
    reasons = Counter(each.why.partition(":")[0] for each in answer.refused)
    return [f"excluded  {count:,}: {_reason(reason)}" for reason, count in reasons.most_common(MOST_REASONS)]


def _reason(reason: str) -> str:
    return "no load keeps the limits" if reason.startswith("nearest") else reason


def infeasible_sentences(request: Request, answer: Answer) -> list[str]:
    """Why no configuration qualifies, most frequent first, and what comes nearest."""
    found = len(answer.configurations)
    if answer.interrupted and not found:
        return ["Interrupted before the first configuration was done."]
    heading = f"Nothing keeps the limits among {found:,} configurations:" if found else "No configuration can run:"
    lines = [heading, *(_refused_lines(answer) or ["two pools take two devices at least"])]
    if answer.nearest is None:
        return lines
    row, factor = answer.nearest
    configuration = answer.configurations[int(row["configuration"])]
    reached = ", ".join(f"{name} {milliseconds(row[f'{name}_at'])} ms" for name in request.slo)
    return [
        *lines,
        f"nearest   {configuration_words(answer, configuration, row)} at {number(row['rate'])} requests/s: "
        f"{request.at} {reached}, {factor:.2f} x the limit",
    ]
