"""Priors are chosen by what the kind of collective they answer for had no part in."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from calibration.collectives.choice import CANDIDATES, chosen_by_others, scaled_settings
from calibration.collectives.terms import TERMS

KIND = np.array(["a", "a", "b", "c", "c", "c"])


def test_a_kind_is_answered_by_what_is_best_for_the_others() -> None:
    first = np.array([0.0, 0.0, 0.9, 0.5, 0.5, np.nan])
    second = np.array([0.9, 0.9, 0.1, 0.4, 0.4, np.nan])
    # Without a 0.9 + 0.5 against 0.1 + 0.4, without b 0.5 against 1.3, without c 0.9 against 1.0.
    assert chosen_by_others({"first": first, "second": second}, KIND) == {"a": "second", "b": "first", "c": "first"}


@given(st.lists(st.floats(0.0, 10.0), min_size=2, max_size=2))
def test_the_own_error_has_no_part_in_it(own: list[float]) -> None:
    base = np.array([0.3, 0.3, 0.2, 0.1, 0.1, 0.1])
    changed = np.concatenate([own, base[2:]])
    assert chosen_by_others({"x": base, "y": 0.9 * changed}, KIND)["a"] == "y"


def test_candidates_differ_from_the_shipped_only_in_settings() -> None:
    assert CANDIDATES["shipped"] == TERMS and scaled_settings(1.0) == TERMS
    for term, wide in zip(TERMS, scaled_settings(2.0), strict=True):
        factor = 2.0 if "setting" in term.level else 1.0
        assert (wide.spread, wide.rough) == (factor * term.spread, factor * term.rough)
    assert len(CANDIDATES["own settings only"]) == len(TERMS) - 4
