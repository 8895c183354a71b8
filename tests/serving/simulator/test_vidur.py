"""Request by request against Vidur (microsoft/vidur 7d47513): the schedulers given the step times it used.

The references are rounded to nine digits, so times of several hundred seconds agree to half a microsecond.
"""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from jaxperf.io.huggingface import load_model
from jaxperf.io.request_traces import read_requests
from jaxperf.io.step_times import load_step_times
from jaxperf.serving.simulator.metrics import request_metrics
from jaxperf.serving.simulator.run import Simulated, simulate
from jaxperf.serving.simulator.settings import Scheduler, parse_scheduler
from jaxperf.serving.simulator.state import Sizes
from jaxperf.serving.simulator.trace import pad_traces

CASES = (
    "survey_vllm_7b_q2_n200",
    "survey_sarathi_7b_q2_n50",
    "vllm_7b_conv_q2_n512",
    "vllm_7b_conv_q6_n512_blocks1000",
    "vllm_7b_codereplay_n512",
    "vllm_70btp2_conv_q0.4_n256_lowkv",
    "sarathi512_7b_conv_q6_n512",
    "sarathi512_34b_arxiv_q1_n256",
    "sarathi2048_7b_codereplay_n512",
    "orca_34b_conv_q1_n256",
    "ft_34b_uni_q4_n256_hugekv",
)
SIZE, SLOTS, LOG = 512, 128, 8192  # of every case, so that a policy is compiled once
MICROSECOND = 1e-6


def vidur(directory: Path) -> Path:
    path = directory / "serving" / "vidur"
    if not path.is_dir():
        pytest.skip(f"{path} is absent")
    return path


def simulated(directory: Path, case: str) -> tuple[Scheduler, dict[str, np.ndarray], Simulated]:
    scheduler = parse_scheduler(json.loads((directory / f"{case}.settings.json").read_text()))
    trace = read_requests(directory / f"{case}.requests.csv")
    assert scheduler.model is not None
    name = f"steptime_{scheduler.model.split('/')[1]}_tp{scheduler.tensor_parallel}.npz"
    times = load_step_times(directory / name, load_model(scheduler.model), scheduler.tensor_parallel)
    found = simulate(scheduler.policy, times, scheduler.arrays(), pad_traces([trace], SIZE), Sizes(SLOTS, LOG))
    names = ("arrived", "scheduled", "first_token", "completed", "restarts")
    requests = {name: np.asarray(getattr(found.requests, name))[0, : len(trace.row)] for name in names}
    return scheduler, {**requests, "output": trace.output}, found


@pytest.mark.parametrize("case", CASES)
def test_every_request_and_every_step_is_vidurs(data_directory: Path, case: str) -> None:
    directory = vidur(data_directory)
    _, requests, found = simulated(directory, case)
    with (directory / f"{case}.requests.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for name, column in (
        ("scheduled", "scheduled_at"),
        ("first_token", "prefill_completed_at"),
        ("completed", "completed_at"),
    ):
        reference = np.array([float(row[column]) for row in rows])
        assert np.abs(requests[name] - reference).max() <= MICROSECOND
    assert requests["restarts"].tolist() == [int(row["num_restarts"]) for row in rows]
    with gzip.open(directory / f"{case}.batches.csv.gz", "rt", newline="") as file:
        batches = [
            (int(row["batch_size"]), int(row["num_tokens"]), int(row["n_decode"])) for row in csv.DictReader(file)
        ]
    log = found.log
    count, runs = int(log.count[0]), np.asarray(log.steps)[0]
    columns = (np.asarray(values)[0, :count] for values in (log.sequences, log.tokens, log.decodes))
    assert np.repeat(np.stack(list(columns), axis=1), runs[:count], axis=0).tolist() == [list(each) for each in batches]
    assert int(found.totals.beyond[0]) == 0


def test_evictions_are_among_the_references(data_directory: Path) -> None:
    """One case runs out of blocks, so that the agreement above is also one of evictions."""
    _, requests, _ = simulated(vidur(data_directory), "vllm_7b_conv_q6_n512_blocks1000")
    assert requests["restarts"].sum() == 37


@pytest.mark.parametrize(
    ("case", "e2e", "e2e_p99", "ttft", "tpot"),
    [
        ("survey_vllm_7b_q2_n200", 0.176, 0.314, 0.0268, 0.0093),
        ("survey_sarathi_7b_q2_n50", 0.157, 0.262, 0.0244, 0.0090),
    ],
)
def test_table_8_of_the_survey(
    data_directory: Path, case: str, e2e: float, e2e_p99: float, ttft: float, tpot: float
) -> None:
    """The survey's Vidur runs: total length uniform in 128 to 512, 20:1, Poisson 2/s, seed 42, Llama-2-7B on an A100.

    Its percentiles interpolate, and its TPOT spreads the time after the first token over all output tokens.
    """
    _, requests, _ = simulated(vidur(data_directory), case)
    metrics = request_metrics(requests)
    assert metrics["e2e"].mean() == pytest.approx(e2e, abs=5e-4)
    assert np.quantile(metrics["e2e"], 0.99) == pytest.approx(e2e_p99, abs=5e-4)
    assert metrics["ttft"].mean() == pytest.approx(ttft, abs=5e-5)
    spread = (metrics["e2e"] - metrics["ttft"]) / requests["output"]
    assert spread.mean() == pytest.approx(tpot, abs=5e-5)
