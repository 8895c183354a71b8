"""The regimes that the steady state is compared in: every one is of engines that there are."""

from __future__ import annotations

from benchmarks.steady_regimes import case_of, regimes


def test_every_regime_is_of_engines_and_loads_that_there_are() -> None:
    every = dict(regimes())
    assert sum(map(len, every.values())) == 343
    assert all(0.0 < setup.load < 0.9 and setup.requests >= 1024 for setups in every.values() for setup in setups)
    for setups in every.values():
        case, setup = case_of(setups[0]), setups[0]
        assert float(case.engine.budget) == setup.budget and case.scheduler.numbers["cap"] == setup.slots
