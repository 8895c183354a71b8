"""The power law: recovered from runs made with one, held out, stored, and the shipped one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import hwspecs
from calibration.power import evaluate
from calibration.power.evaluate import OURS, TWIN, doubts, error_rows, hold_out, meets_target
from calibration.power.fit import fit_law
from calibration.power.parameters import SHARES, PowerParameters, load_power, save_power
from calibration.power.points import Answer, Points, Priced, all_answers
from calibration.power.rows import Run
from hwspecs.errors import InputError
from jaxperf.core.cost import Cost
from jaxperf.core.device import device_from_spec
from jaxperf.core.numerics import as_float, stack
from jaxperf.core.sustained_file import load_sustained_table
from jaxperf.serving.techniques.power import PowerLaw

LAW = PowerLaw(0.2, 0.45, 0.3)
NAN = float("nan")
A100 = hwspecs.load("a100-sxm-80gb")


def run(prompt: float, batch: float, limit: float = 1.0) -> Run:
    times = {"prompt_time": 1e-4 * prompt * batch, "token_time": 8e-3, "e2e_time": NAN}
    return Run("gpt2", A100, limit, 1.0, prompt, batch, 64.0, **times, average_power=NAN, peak_power=NAN, rows=1)


def kernel(compute: float, memory: float) -> dict[str, Cost]:
    parts = (max(compute, memory) + 1e-4, compute, memory, 0.0, 1e-4, 1e12 * compute, 2e12 * memory)
    return {"gemm": Cost(*map(as_float, parts))}


def priced(runs: Sequence[Run], rates: object = None) -> list[Priced]:
    """One kernel a phase instead of a model's: prefills keep the arithmetic units busy, decodes the memory."""
    prefill = [kernel(0.6e-4 * each.prompt * each.batch, 0.2e-4 * each.prompt + 1e-3) for each in runs]
    decode = [kernel(2e-5 * each.batch, 2e-3 + 1e-7 * each.prompt * each.batch) for each in runs]
    names = ("prompt_time", "token_time", "rest_time", "limit")
    columns = ([getattr(each, name) for each in runs] for name in names)
    points = Points(stack([device_from_spec(A100)] * len(runs)), stack(prefill), stack(decode), *columns)
    return [Priced(np.arange(len(runs)), points)]


@pytest.fixture(autouse=True)
def one_kernel_a_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "priced_runs", priced)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """Runs and twins at half the power, with the times and powers that the law gives them."""
    free = [run(prompt, batch) for prompt in (64.0, 256.0, 768.0) for batch in (1.0, 4.0, 32.0)]
    made = []
    for limit in (1.0, 0.5):
        found = all_answers(LAW, priced([dataclasses.replace(each, limit=limit) for each in free]), True)
        for place, each in enumerate(free):
            told = {name: float(found[name][place]) for name in Answer._fields}
            made.append(dataclasses.replace(each, limit=limit, **told))
    return made


def test_a_law_is_recovered_from_the_powers_it_makes(runs: list[Run]) -> None:
    free = [each for each in runs if each.limit == 1.0]
    measured = np.array([[each.average_power, each.peak_power] for each in free])
    found = fit_law(priced(free), measured, np.ones(len(free), bool))
    for name in SHARES:
        np.testing.assert_allclose(getattr(found, name), getattr(LAW, name), rtol=1e-3)


def test_twins_made_by_the_law_meet_the_target(runs: list[Run]) -> None:
    found = hold_out(runs, load_sustained_table())
    errors = error_rows(found)
    assert meets_target(errors) and doubts(found) == []
    assert {row["split"] for row in errors} == {"configuration", TWIN}, "all runs are on one rank: no split by ranks"
    own = [row["median"] for row in errors if row["who"] == OURS]
    assert max(own) < 1e-3


def test_twins_that_nobody_measured_are_noticed(runs: list[Run]) -> None:
    before = {each.configuration: each for each in runs if each.limit == 1.0}
    unstated = {"average_power": NAN, "peak_power": NAN}
    made_up = list(before.values())
    made_up += [
        dataclasses.replace(each, limit=0.5, prompt_time=1.3 * each.prompt_time, **unstated) for each in before.values()
    ]
    told = hold_out(made_up, load_sustained_table())
    rows = error_rows(told)
    assert not meets_target(rows), "a power that nobody stated is not met"
    assert not any(row["output"] == "average_power" and row["split"] == TWIN for row in rows)
    sentences = doubts(told)
    assert "No run under a power limit states its power." in sentences
    assert any("1.3 x" in sentence and "computed, not measured" in sentence for sentence in sentences)


def test_too_few_powers_are_refused(runs: list[Run]) -> None:
    with pytest.raises(InputError, match="0 runs without a limit state a power; at least 8 are needed"):
        hold_out([each for each in runs if each.limit < 1.0], load_sustained_table())


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    given = PowerParameters(LAW, True, ("a100-sxm-80gb",), {"created": "2026-11-21"})
    save_power(given, tmp_path / "power")
    found = load_power(tmp_path / "power.json")
    assert (found.calibrated, found.devices) == (True, ("a100-sxm-80gb",))
    assert all(float(getattr(found.law, name)) == float(getattr(LAW, name)) for name in SHARES)
    card = json.loads((tmp_path / "power.json").read_text())
    (tmp_path / "power.json").write_text(json.dumps({**card, "shares": ["background"]}))
    with pytest.raises(InputError, match="damaged .* python -m calibration.power"):
        load_power(tmp_path / "power")


def test_the_shipped_law_says_that_energy_is_not_calibrated() -> None:
    """No twin of its table states a power."""
    shipped = load_power()
    assert not shipped.calibrated and shipped.devices == ("a100-sxm-80gb",)
    assert 0.15 < float(shipped.law.background) < 0.45
    own = {(row["split"], row["output"]): row for row in shipped.card["errors"] if row["who"] == OURS}
    assert own["ranks", "average_power"]["median"] < 0.10 and own[TWIN, "prompt_time"]["median"] < 0.08
    json.dumps(dict(shipped.card), allow_nan=False)
