"""A training plan as text and rows: each size's best layout, what limits it, why others lose, what it rests on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxperf.core.numerics import as_float
from jaxperf.report.plan_rows import (
    front_rows,
    layout_words,
    other_savers,
    saved_by,
    variation_sizes,
    why_slower,
)
from jaxperf.report.text import bold, console, gigabytes, interval, number, quantity, table
from jaxperf.report.why import why_more
from jaxperf.training.failures import DAY, HOUR, Failures
from jaxperf.training.layout import IN_PIECES, SCHEDULES
from jaxperf.training.layout_checks import SENTENCES
from jaxperf.training.placement import torn_groups
from jaxperf.training.search.plan import Answer, Choice, Request
from jaxperf.training.search.savers import SAVERS
from jaxperf.training.search.terms import MEMORY_TERMS, shares, terms

MOST_REASONS = 3
TIGHT = 0.95  # of the memory, beyond which it is told


def duration(seconds: float) -> str:
    """A time as people say it: `46 min`, `3.1 h`, `12 d`."""
    for unit, size in (("d", DAY), ("h", HOUR), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return f"{number(seconds / size)} {unit}"
    return quantity(seconds, "s")


def print_plan(request: Request, answers: Sequence[Answer], quiet: bool) -> None:
    """Print the plan as text."""
    print_model(request)
    if len(answers) > 1:
        console().print(_sizes(answers))
        console().print("\n".join(pick_lines(answers)), soft_wrap=True)
    for answer in answers:
        _print_answer(request, answer, quiet)
    if not quiet:
        print_origin(request, answers)


def print_model(request: Request) -> None:
    """Print what is trained."""
    active = float(request.model.active_parameters)
    size = f"{number(float(request.model.parameters) / 1e9)} G parameters"
    sparse = f", {number(active / 1e9)} G active" if active < float(request.model.parameters) else ""
    console().print(
        bold(
            request.name,
            f" ({size}{sparse}): {request.global_batch:,} sequences of {request.sequence:,} tokens a step, "
            f"{request.dtype}{_adapted(request)}",
        )
    )


def _adapted(request: Request) -> str:
    if not request.lora_rank:
        return ""
    learned = number(float(request.learned_parameters()) / 1e6)
    return f", LoRA of rank {request.lora_rank}: {learned} M parameters learn"


def _sizes(answers: Sequence[Answer]) -> Any:
    """The best of each device and size."""
    rows = []
    for answer in answers:
        if not answer.choices:
            rows.append((f"{answer.devices:,}", answer.device, *["-"] * 7, "nothing feasible"))
            continue
        best = answer.choices[0]
        rows.append(
            (
                f"{answer.devices:,}",
                answer.device,
                *_figures(best),
                f"{float(best.outlook.kept.share):.1%}",
                number(best.device_hours),
                layout_words(best.layout),
            )
        )
    columns = ("devices", "device", "step s", "range", "MFU", "memory GB", "bubble")
    return table("Sizes", (*columns, "goodput", "device-hours", "best layout"), rows)


def pick_lines(answers: Sequence[Answer]) -> list[str]:
    """Which device and size is best by each measure."""
    found = [(answer, answer.choices[0]) for answer in answers if answer.choices]
    cost, unit = _cost(found)
    measures = {
        "fastest": (lambda choice: choice.metrics["time"], ""),
        "cheapest": (cost, f" ({unit})"),
        "smallest": (lambda choice: choice.metrics["memory.total"], " (memory of a device)"),
    }
    lines = []
    for name, (measure, words) in measures.items() if found else ():
        answer, _ = min(found, key=lambda pair, measure=measure: measure(pair[1]))
        lines.append(f"{name:9s} {answer.devices:,} x {answer.device}{words}")
    return lines


def _cost(found: Sequence[tuple[Answer, Choice]]) -> tuple[Callable[[Choice], float], str]:
    """What the cheapest is by, and in which unit: dollars only where every answer has a price."""
    unpriced = dict.fromkeys(answer.device for answer, choice in found if choice.cost is None)
    if not unpriced:
        return lambda choice: choice.cost or 0.0, "dollars"
    some = any(choice.cost is not None for _, choice in found)
    return lambda choice: choice.device_hours, "device-hours" + (f"; no price of {', '.join(unpriced)}" if some else "")


def _figures(choice: Choice) -> tuple[str, ...]:
    metrics = choice.metrics
    return (
        number(metrics["time"]),
        interval(choice.lower, choice.upper),
        f"{metrics['mfu']:.1%}",
        number(metrics["memory.total"] / 1e9),
        f"{metrics['bubble_fraction']:.1%}",
    )


def _print_answer(request: Request, answer: Answer, quiet: bool) -> None:
    out = console()
    out.print(bold(f"\n{answer.devices:,} x {answer.device}"))
    if not answer.choices:
        for sentence in infeasible_sentences(answer):
            out.print(sentence, soft_wrap=True)
        return
    for line in (*_headline(answer, answer.choices[0]), *saver_lines(request, answer)):
        out.print(line, soft_wrap=True)
    if quiet:
        return
    out.print(_alternatives(answer))
    for line in (
        *why_lines(answer),
        *ideal_lines(answer),
        *placed_lines(answer),
        *tight_lines(answer),
        _front_line(answer),
        *_infeasible_lines(answer),
    ):
        out.print(line, soft_wrap=True)


def _headline(answer: Answer, best: Choice) -> list[str]:
    """The number with its interval, what limits it, what chance and failures make of it."""
    metrics, look = best.metrics, best.outlook
    parts = ", ".join(f"{share:.0%} {word}" for word, share in list(shares(metrics).items())[:5])
    large = {word: metrics[name] / 1e9 for name, word in MEMORY_TERMS.items() if metrics[name] > 5e7}
    memory = ", ".join(f"{size:.1f} {word}" for word, size in large.items())
    host = f"; {gigabytes(metrics['memory.host'])} on the host" if metrics["memory.host"] > 0.0 else ""
    lost = {"saving": look.kept.saving, "work done again": look.kept.redone, "restarts": look.kept.restarting}
    losses = ", ".join(f"{word} {float(share):.1%}" for word, share in lost.items())
    median = float(look.median)
    lines = [
        f"layout    {layout_words(best.layout)}",
        f"step      {number(metrics['time'])} s {interval(best.lower, best.upper)}   MFU {metrics['mfu']:.1%}, "
        f"{metrics['tokens_per_second']:,.0f} tokens/s: {parts}",
        f"memory    {gigabytes(metrics['memory.total'])} of {gigabytes(answer.capacity)}: {memory} GB{host}",
        f"chance    {number(median)} s {interval(float(look.lower), float(look.upper))} in nine steps of ten: "
        f"{median / float(look.nominal) - 1.0:+z.1%} to a step whose ranks are alike, as they wait for each other",
        f"goodput   {float(look.kept.share):.1%}: interrupted every {duration(float(look.mtbf))}, saved every "
        f"{duration(float(look.kept.interval))}; lost to {losses}; spares: {int(look.spares)}",
    ]
    cost = "" if best.cost is None else f", {number(best.cost)} dollars"
    tokens = metrics["tokens_per_second"] * metrics["time"]
    return [
        *lines,
        f"cost      {number(best.device_hours)} device-hours{cost}, {quantity(best.tdp_energy, 'J')} at TDP a step; "
        f"{number(best.device_hours / tokens * 1e9)} device-hours for 10^9 tokens",
    ]


def _alternatives(answer: Answer) -> Any:
    rows = [
        (str(rank), *_figures(choice), layout_words(choice.layout))
        for rank, choice in enumerate(answer.choices, start=1)
    ]
    return table("Layouts", ("#", "step s", "range", "MFU", "memory GB", "bubble", "layout"), rows)


def why_lines(answer: Answer) -> list[str]:
    """Why each of the others is not first: its terms, in shares of the first's step."""
    best, *others = answer.choices
    words = [why_slower(best, choice) for choice in others]
    return [
        f"why       #{rank} takes {choice.metrics['time'] / best.metrics['time'] - 1.0:+.1%}: {why}"
        for rank, (choice, why) in enumerate(zip(others, words, strict=True), start=2)
    ]


def saver_lines(request: Request, answer: Answer) -> list[str]:
    """Which savers of memory were tried and why, and what of them the first layout has."""
    if not answer.found.savers:
        return []
    tried = ", ".join(SAVERS[name] for name in answer.found.savers)
    why = "were asked for" if request.save_always else "were tried as no layout fits without"
    best = answer.choices[0]
    lines = [f"savers    {tried} {why}; the first has {saved_by(best.layout)}"]
    if (other := other_savers(answer)) is not None:
        longer = other["time"] / best.metrics["time"] - 1.0
        grew = why_more(terms(best.metrics), terms(other)) or "the same time"
        lines.append(f"          saved otherwise it takes {longer:+.1%} ({grew}): {layout_words(other)}")
    return lines


def ideal_lines(answer: Answer) -> list[str]:
    """What to know where the first layout has a schedule that no measured run has."""
    schedule = SCHEDULES[int(answer.choices[0].layout["schedule"])]
    if answer.choices[0].layout["pipeline"] == 1.0 or schedule not in IN_PIECES:
        return []
    return [
        f"ideal     {schedule} is in no measured run: its passes are assumed to fill each other's gaps perfectly; "
        "--schedules 1f1b,interleaved plans without such schedules"
    ]


def placed_lines(answer: Answer) -> list[str]:
    """What to know where the first layout has groups that divide no node."""
    return [
        f"placed    groups of {each.ranks:,} {name} ranks divide no node of {answer.node}: {each.idle} of its "
        f"devices are taken to stay idle; packed densely, {each.torn:,} of {each.groups:,} lie in one node more, slower"
        for name, each in torn_groups(answer.choices[0].layout, answer.node).items()
    ]


def tight_lines(answer: Answer) -> list[str]:
    """What to know where the first layout leaves hardly any memory: no run's memory was measured."""
    full = answer.choices[0].metrics["memory.total"] / answer.capacity
    if full <= TIGHT:
        return []
    return [
        f"tight     memory is {full:.0%} full by a count that no run's was compared with; --reserve leaves more room"
    ]


def _front_line(answer: Answer) -> str:
    front = front_rows(answer)
    ends = [f"{number(row['time'])} s in {gigabytes(row['memory.total'])}" for row in (front[0], front[-1])]
    return f"front     {len(front)} layouts between {ends[0]} and {ends[1]} (time and memory; all of them in --json)"


def _infeasible_lines(answer: Answer) -> list[str]:
    most = answer.found.reasons.most_common(MOST_REASONS)
    return [f"excluded  {count:,}: {SENTENCES[reason]}" for reason, count in most]


def infeasible_sentences(answer: Answer) -> list[str]:
    """Why nothing is feasible, most frequent first, and what would be."""
    found = answer.found
    if found.interrupted:
        return ["Interrupted before a feasible layout was found."]
    lines = [f"Nothing is feasible among {found.splits:,} splits:", *_infeasible_lines(answer)]
    if found.least_memory > answer.capacity and found.least_memory < float("inf"):
        offloaded = (
            ", recomputed and offloaded" if {"optimizer", "activations"} & {*found.savers} else " and recomputed"
        )
        lines.append(
            f"memory    the least that any split needs, sharded{offloaded}, is {gigabytes(found.least_memory)} of "
            f"{gigabytes(answer.capacity)}"
        )
    if answer.feasible_from is not None:
        lines.append(f"nearest   {answer.feasible_from:,} devices have a feasible layout")
    return lines


def print_origin(request: Request, answers: Sequence[Answer]) -> None:
    """Print what the numbers rest on."""
    out = console()
    tried = sum(answer.found.tried for answer in answers)
    sizes = ", ".join(f"{size:.1%} {name}" for name, size in variation_sizes(request).items())
    out.print(f"\nfrom      {tried:,} layouts")
    for tier in dict.fromkeys(answer.tier for answer in answers):
        out.print(f"          efficiencies {tier}", soft_wrap=True)
    if request.savers and not any(answer.found.savers for answer in answers):
        tried = ", ".join(SAVERS[name] for name in request.savers)
        out.print(f"          not tried, as layouts fit without: {tried} (--savers all tries them)", soft_wrap=True)
    out.print(f"          variation assumed: {sizes} (ranges in docs/stochastic.md)", soft_wrap=True)
    out.print(f"          {failure_sentence(request.failures)}", soft_wrap=True)
    for note in request.notes:
        out.print(f"note      {note}", soft_wrap=True)


def failure_sentence(failures: Failures) -> str:
    """Where the rate of interruptions is from."""
    years = as_float(failures.device_mtbf) / DAY / 365.0
    return (
        f"interruptions: one in {float(years):.1f} device-years (as in Llama 3's run); restart "
        f"{duration(float(failures.restart))}, repair {duration(float(failures.repair))} (assumed)"
    )
