"""Terms fitted to a log: recovered where they are known, and on real logs of vLLM the second half from the first."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from hwspecs.errors import InputError
from jaxperf.api import load_device
from jaxperf.io.huggingface import load_model
from jaxperf.serving.simulator.adapt import Terms, fit_terms, with_terms
from jaxperf.serving.simulator.composed import composed_times
from jaxperf.serving.simulator.metrics import request_metrics
from jaxperf.serving.simulator.run import simulate_requests
from jaxperf.serving.simulator.settings import Scheduler, parse_scheduler
from jaxperf.serving.simulator.step_time import StepTimeTable
from jaxperf.serving.simulator.workloads import Requests
from tests.serving.simulator import fuzz
from tests.serving.simulator.test_metrics import SETTINGS, drawn


def simulated(scheduler: Scheduler, table: StepTimeTable, requests: Requests) -> dict[str, np.ndarray]:
    found = simulate_requests(scheduler, table, [requests]).requests
    names = ("scheduled", "first_token", "completed")
    columns = {name: getattr(found, name)[0, : len(requests.arrived)] for name in names}
    return columns | {"arrived": requests.arrived, "output": requests.output}


def test_terms_that_made_a_log_are_found_again() -> None:
    scheduler, table = parse_scheduler(SETTINGS), fuzz.table()
    made = Terms(1.3, 0.6, 2e-3, 1e-4)
    requests = drawn(rate=30.0)
    log = simulated(scheduler, with_terms(table, made), requests)
    half = {name: np.where(np.arange(60) < 30, log[name], np.nan) for name in ("first_token", "completed")}
    fitted = with_terms(table, fit_terms(table, scheduler, requests, half))
    later = slice(30, 60)
    expected, plain, found = (
        request_metrics(each)
        for each in (log, simulated(scheduler, table, requests), simulated(scheduler, fitted, requests))
    )
    for name in ("ttft", "tpot", "e2e"):
        truth = np.nanmean(expected[name][later])
        assert abs(np.nanmean(found[name][later]) / truth - 1.0) < 0.02
        assert abs(np.nanmean(plain[name][later]) / truth - 1.0) > 0.1


def test_terms_of_one_and_nothing_change_nothing() -> None:
    table = fuzz.table()
    same = with_terms(table, Terms(1.0, 1.0, 0.0, 0.0))
    for name in ("tokens", "decode", "prefill"):
        np.testing.assert_array_equal(getattr(same, name), getattr(table, name))


def test_a_log_with_too_few_times_is_refused() -> None:
    requests = drawn()
    nothing = np.full(60, np.nan)
    with pytest.raises(InputError, match="only 0 requests"):
        fit_terms(fuzz.table(), parse_scheduler(SETTINGS), requests, {"first_token": nothing, "completed": nothing})


# Engine settings as the source of the logs states them; the blocks of the second card follow from its memory.
RUNS = {
    "RTX4090/Llama-3.1-8B": ("rtx-4090", {"batch_size_cap": 256, "num_blocks": 2588}),
    "RTXPRO6000/Llama-3.1-8B": ("rtx-pro-6000", {"batch_size_cap": 128, "num_blocks": 31000}),
}


@pytest.mark.validation
@pytest.mark.parametrize("run", RUNS)
def test_the_second_half_of_a_real_log_from_the_first(data_directory: Path, run: str) -> None:
    """vLLM 0.19: mean TTFT, TPOT and E2E to 5 %, each request's E2E to 8 % of the mean."""
    path = data_directory / "serving" / "vllm_real_requests.csv.gz"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    with gzip.open(path, "rt", newline="") as file:
        rows = sorted(
            (row for row in csv.DictReader(file) if row["run"] == run), key=lambda row: float(row["queued_at"])
        )
    column = {
        name: np.array([float(row[name]) for row in rows]) for name in ("queued_at", "first_token_at", "last_token_at")
    }
    lengths = [np.array([int(row[name]) for row in rows]) for name in ("input_toks", "output_toks")]
    requests = Requests(column["queued_at"], *lengths)
    device, settings = RUNS[run]
    scheduler = parse_scheduler({"sched": "vllm_v1", "max_tokens_in_batch": 2048, **settings})
    table = composed_times(load_model("llama-3.1-8b"), load_device(device), scheduler, requests)
    half = np.arange(len(rows)) < len(rows) // 2
    log = {"first_token": column["first_token_at"], "completed": column["last_token_at"]}
    terms = fit_terms(table, scheduler, requests, {name: np.where(half, times, np.nan) for name, times in log.items()})
    truth = request_metrics(
        {"arrived": requests.arrived, "output": requests.output, "scheduled": log["first_token"], **log}
    )
    errors = {}
    for label, times in (("no fit", table), ("fitted", with_terms(table, terms))):
        found = request_metrics(simulated(scheduler, times, requests))
        for name in ("ttft", "tpot", "e2e"):
            ours, theirs = found[name][~half], truth[name][~half]
            errors[label, name] = (ours.mean() / theirs.mean() - 1.0, np.abs(ours - theirs).mean() / theirs.mean())
    print(f"\n{run}: {terms}")
    for (label, name), (mean, each) in errors.items():
        print(f"  {label} {name}: mean {mean:+.1%}, each request {each:.1%} of the mean")
    assert all(abs(errors["fitted", name][0]) <= 0.05 for name in ("ttft", "tpot", "e2e"))
    assert errors["fitted", "e2e"][1] <= 0.08
