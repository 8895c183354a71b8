"""A plan for pools of different devices as text and records: what each pool does, and which of them bounds the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxperf.report.plan import infeasible_sentences, print_model, print_origin
from jaxperf.report.plan_rows import layout_words
from jaxperf.report.text import bold, console, number, quantity
from jaxperf.training.search.plan import Answer, Request
from jaxperf.training.search.pools import PoolPlan

UNITS = {"replicas": "sequences", "stages": "layers", "alone": "sequences"}
BETWEEN = {
    "replicas": "to reduce gradients between pools and to wait for the slowest rank of all",
    "stages": "to fill the other pools, to hand over and to wait for the slowest rank of all",
}


def pool_rows(plans: Sequence[PoolPlan]) -> list[dict[str, Any]]:
    """One row a pool of each assignment, SI units."""
    return [
        {
            "assigned": each.assigned,
            "time": each.time,
            "between_pools": each.between,
            "device": pool.name,
            "devices": pool.devices,
            "share": share,
            "unit": UNITS[each.assigned],
            "pool_time": answer.choices[0].metrics["time"] if answer.choices else float("nan"),
            "layout": layout_words(answer.choices[0].layout) if answer.choices else "",
        }
        for each in plans
        for pool, share, answer in zip(each.pools, each.shares, each.answers, strict=True)
    ]


def print_pools(request: Request, plans: Sequence[PoolPlan], quiet: bool) -> None:
    """Print the plans, best first."""
    out = console()
    print_model(request)
    for each in plans:
        head = _speed(request, each) if each.feasible else "nothing feasible"
        where = "one pool alone" if each.assigned == "alone" else f"{each.assigned} in each pool"
        out.print(bold(f"\n{where}", f": {head}"))
        for place, answer in enumerate(each.answers):
            out.print(_pool_line(each, place, answer), soft_wrap=True)
        if each.feasible and each.assigned in BETWEEN:
            out.print(f"{quantity(each.between, 's')} {BETWEEN[each.assigned]}")
    if not quiet:
        print_origin(request, [answer for each in plans for answer in each.answers])


def _speed(request: Request, plan: PoolPlan) -> str:
    tokens = request.global_batch * request.sequence / plan.time
    return f"{number(plan.time)} s, {tokens:,.0f} tokens/s"


def _pool_line(plan: PoolPlan, place: int, answer: Answer) -> str:
    head = f"{answer.devices:,} x {answer.device} take {plan.shares[place]:,} {UNITS[plan.assigned]}: "
    if not answer.choices:
        return head + "\n".join(infeasible_sentences(answer))
    best = answer.choices[0]
    slowest = ", which bounds the step" if plan.feasible and len(plan.pools) > 1 and place == plan.bound else ""
    return f"{head}{number(best.metrics['time'])} s{slowest}; {layout_words(best.layout)}"
