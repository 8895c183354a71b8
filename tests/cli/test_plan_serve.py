"""`plan serve`: text, JSON, files and pictures, what nothing meets, and what is refused."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import jaxperf.cli.progress
import jaxperf.serving.plan.simulate
from jaxperf.cli.plan_serve import _draw
from jaxperf.report.plan_serve import infeasible_sentences
from jaxperf.serving.plan.request import Refused
from jaxperf.serving.plan.space import Configuration

PLAN = ("plan", "serve", "gpt2", "--devices", "l4", "--prompt", "256", "--output", "64", "--budget", "512")
LIMITS = ("--n", "2", "--slo", "ttft=200ms,tpot=50ms")


def test_a_plan_as_data_with_files_and_pictures(cli, parse_json, own_folder: Path) -> None:
    files = ("-o", "plan.csv", "--plot", "front.svg", "--timeline", "best.svg")
    one = ("--modes", "aggregated", "--top", "3", "--simulate", "1", "--price", "l4=0.72")
    result = cli(*PLAN, *LIMITS, *one, *files, "--async-scheduling", "--json")
    assert result.exit_code == 0, result.output
    found = parse_json(result.stdout)
    ranked = [row for row in found["rows"] if row["rank"] is not None]
    assert [row["rank"] for row in ranked] == list(range(1, len(ranked) + 1)) and len(ranked) <= 3
    for row in ranked:
        assert row["ttft_p90"] <= 0.2 and row["tpot_p90"] <= 0.05
        assert row["ttft_lower"] <= row["ttft"] and row["devices"] <= 2
        assert row["tokens_per_second"] == pytest.approx(row["rate"] * 64)
        hours = row["devices"] * 1e6 / row["tokens_per_second"] / 3600.0
        assert row["kwh_per_million_tokens"] == pytest.approx(0.072 * hours)
        assert row["dollars_per_million_tokens"] == pytest.approx(0.72 * hours)
        spent = sum(row[f"device_seconds_{name}"] for name in ("prompts", "outputs", "idle"))
        assert spent == pytest.approx(row["devices"] / row["rate"])
    assert ranked[0]["ttft_p90_simulated"] <= 0.2 and ranked[0]["tpot_p90_simulated"] <= 0.05
    assert ranked[0]["why"] == "" and found["provenance"]["async_scheduling"] is True
    assert "energy: uncalibrated" in found["provenance"]["notes"][-1]
    (search,) = found["provenance"]["searches"]
    users = [row["tokens_per_second_per_user"] for row in search["front"]]
    devices = [row["tokens_per_second_per_device"] for row in search["front"]]
    assert users == sorted(users, reverse=True) and devices == sorted(devices)
    with (own_folder / "plan.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(found["rows"])
    assert all((own_folder / name).stat().st_size > 1000 for name in ("front.svg", "best.svg"))


@pytest.mark.long
def test_bursts_leave_less_to_do(cli, parse_json) -> None:
    """Of requests in bursts fewer can be served within a limit on the first token, and the simulator agrees."""
    one = ("--n", "1", "--modes", "aggregated", "--simulate", "1", "--top", "1", "--slo", "ttft=40ms", "--json")
    even, bursts = (parse_json(cli(*PLAN, *one, "--arrival-cv", cv).stdout)["rows"][0] for cv in ("1", "3"))
    assert bursts["rate"] < 0.8 * even["rate"]
    for row in (even, bursts):
        assert row["ttft_p90_simulated"] == pytest.approx(row["ttft_p90"], rel=0.2)


def test_the_load_goes_up_to_the_limit(cli, parse_json) -> None:
    """Loads are tried in steps of 3 % of what can be served; the best of them then in between."""
    one = ("--n", "2", "--modes", "aggregated", "--simulate", "0", "--top", "2", "--json")
    rows = parse_json(cli(*PLAN, *one, "--slo", "tpot=6ms").stdout)["rows"][:2]
    for row in rows:
        assert row["bound"] == "tpot" and 0.995 * 6e-3 < row["tpot_p90"] <= 6e-3


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_single_tokens_have_no_tpot_and_keep_any_limit_on_it(cli, parse_json) -> None:
    one = ("plan", "serve", "gpt2", "--devices", "l4", "--prompt", "256", "--output", "1", "--budget", "512")
    result = cli(*one, "--n", "2", "--slo", "tpot=1us", "--rate", "5", "--simulate", "1", "--top", "1", "--json")
    assert result.exit_code == 0, result.output
    best = parse_json(result.stdout)["rows"][0]
    assert best["mode"] == "aggregated" and best["ttft_simulated"] > 0.0
    assert all(best[name] is None for name in ("tpot", "tpot_p90", "tpot_simulated", "tpot_lower"))
    said = cli(*one, "--n", "2", "--rate", "5", "--simulate", "0")
    assert "no request makes a second token" in said.stdout


@pytest.mark.long
def test_a_plan_in_words_for_a_rate(cli) -> None:
    result = cli(*PLAN, *LIMITS, "--simulate", "0", "--rate", "5")
    assert result.exit_code == 0, result.output
    for said in (
        "system ",
        "serves ",
        "TTFT ",
        "cost ",
        "front ",
        "from ",
        "p90 within ttft 200 ms",
        "5.00 requests/s",
    ):
        assert said in result.stdout, said


def test_limits_that_nothing_keeps_say_what_comes_nearest(cli) -> None:
    result = cli(*PLAN, "--n", "2", "--slo", "tpot=1us", "--modes", "aggregated", "--rate", "5")
    assert result.exit_code == 3
    assert "Nothing keeps the limits" in result.stdout
    assert "nearest " in result.stdout and "x the limit" in result.stdout


def test_an_engine_that_cannot_run_says_why_and_draws_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    refused = [Refused(Configuration(0), "the context is longer than the model was trained for")]
    answer: Any = SimpleNamespace(
        configurations=[], refused=refused, nearest=None, interrupted=False, front={}, device="l4"
    )
    request: Any = SimpleNamespace(model=SimpleNamespace(name="gpt2"), prompt=2000, output=64)
    assert infeasible_sentences(request, answer) == ["No configuration can run:", f"excluded  1: {refused[0].why}"]
    _draw(request, [answer], {}, Path("front.svg"), Path("best.svg"))
    said = capsys.readouterr().err
    assert "'front.svg' is not drawn: no configuration can run" in said and "'best.svg' is not drawn" in said


def interrupting(after: int) -> Any:
    """A progress bar that stands for Ctrl-C after so many configurations."""

    @contextlib.contextmanager
    def bar(what: str, quiet: bool) -> Iterator[Any]:
        def report(done: int, total: int) -> None:
            if done == after:
                raise KeyboardInterrupt

        yield report

    return bar


def test_ctrl_c_keeps_what_is_done(cli, parse_json, monkeypatch: pytest.MonkeyPatch, own_folder: Path) -> None:
    monkeypatch.setattr(jaxperf.cli.progress, "progress_bar", interrupting(1))
    two = ("plan", "serve", "gpt2", "--devices", "l4,t4", *PLAN[5:], *LIMITS, "--modes", "aggregated")
    result = cli(*two, "-o", "plan.csv")
    assert result.exit_code == 130
    assert "interrupted: the best of the 1 configurations" in result.stdout and "system " in result.stdout
    assert "x t4" not in result.stdout and (own_folder / "plan.csv").exists()


def test_ctrl_c_in_the_simulator_keeps_the_search(cli, parse_json, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(jaxperf.serving.plan.simulate, "rescored", stop)
    result = cli(*PLAN, *LIMITS, "--modes", "aggregated", "--top", "2", "--json")
    assert result.exit_code == 130
    found = parse_json(result.stdout)
    ranked = [row for row in found["rows"] if row["rank"] is not None]
    assert ranked and all(row["ttft_p90_simulated"] is None for row in ranked)
    assert found["provenance"]["searches"][0]["interrupted"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--n", "0"), "'0' has no number of devices"),
        (("--n", "2,4"), "a serving plan is for one"),
        (("--n", "2", "--slo", "tptt=1s"), "Did you mean tpot?"),
        (("--n", "2", "--slo", "ttft=fast"), "ttft"),
        (("--n", "2", "--at", "p42"), "--at: unknown 'p42'; allowed: p50, p90"),
        (("--n", "2", "--modes", "agregated"), "Did you mean aggregated"),
        (("--n", "8192"), "--n: 8,192 devices are too many; at most 4,096"),
        (("--n", "512", "--rate", "1"), "--n: 512 devices are too many with --rate; at most 256"),
        (("--n", "2", "--modes", "disaggregated", "--output", "1"), "allowed: aggregated"),
        (("--n", "2", "--modes", ","), "--modes: none is given; allowed: aggregated"),
        (("--n", "2", "--output", "99999999999"), "--output: 99,999,999,999 must be from 1 to 16,777,216"),
        (("--n", "2", "--plot", "a.svg", "--timeline", "a.svg"), "give two files"),
        (("--n", "2", "--rate", "0"), "--rate: 0 must be from"),
        (("--n", "2", "--rate", "nan"), "--rate: nan must be from"),
        (("--n", "2", "--prompt", "0"), "--prompt: 0 must be from 1"),
        (("--n", "2", "--spread", "-1"), "--spread: -1 must be from 0"),
        (("--n", "2", "--arrival-cv", "0"), "--arrival-cv: 0 must be from 0.1 to 10"),
        (("--n", "2", "--budget", "64"), "--budget: 64 must be from 512"),
        (("--n", "2", "--budget", "many"), "--budget: 'many' has no number of tokens"),
        (("--n", "2", "--weights", "fp7"), "fp"),
        (("--n", "2", "--top", "0"), "--top: 0 must be at least 1"),
        (("--n", "2", "--simulate", "-1"), "--simulate: -1 must be at least 0"),
        (("--n", "2", "-o", "plan.txt"), "the ending must be one of"),
        (("--n", "2", "--plot", "front.txt"), "the ending must be one of"),
    ],
)
def test_refused(refuse, arguments: tuple[str, ...], said: str) -> None:
    assert said in refuse(*PLAN, *arguments)


def test_what_is_missing_or_unknown_is_refused(refuse) -> None:
    assert "Which devices?" in refuse("plan", "serve", "gpt2", "--n", "2")
    assert "Did you mean" in refuse("plan", "serve", "gtp2", "--devices", "l4", "--n", "2")
    assert "no size is given; write --n 8." in refuse("plan", "serve", "gpt2", "--devices", "l4")
