"""Why one choice costs more than another: the terms that grew, and those that shrank."""

from __future__ import annotations

from types import SimpleNamespace

from jaxperf.report.plan_rows import why_slower
from jaxperf.report.why import why_more
from jaxperf.training.search.terms import TERMS


def test_why_names_what_grew_and_what_shrank() -> None:
    best = {"prompts": 1.0, "outputs": 2.0, "idle": 1.0}
    assert why_more(best, {"prompts": 1.0, "outputs": 3.0, "idle": 0.5}) == "outputs +25.0%, though idle -12.5%"
    assert why_more(best, {"prompts": 2.0, "outputs": 2.05, "idle": 1.0}) == "prompts +25.0%"
    assert why_more(best, dict(best)) == ""


def test_a_training_step_is_compared_by_its_terms() -> None:
    best = SimpleNamespace(metrics=dict.fromkeys(TERMS, 1.0))
    slower = SimpleNamespace(metrics=best.metrics | {"idle": 1.0 + 0.2 * len(TERMS), "compute.gemm": 0.2})
    assert why_slower(best, slower) == f"pipeline bubble +20.0%, though dense products -{0.8 / len(TERMS):.1%}"
    assert why_slower(best, best) == "the same time, more memory"
