"""Fitted scalars of serving on disk, and how levels make a value."""

from __future__ import annotations

import json
import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from calibration.serving.parameters import PARTS, TIERS, WIDTHS, ServingParameters, load_serving, save_serving
from calibration.serving.scalars import SCALARS, values_of
from hwspecs.errors import InputError


def parameters() -> ServingParameters:
    widths = {tier: {part: (0.1, 0.2, 0.3) for part in PARTS} for tier in TIERS}
    return ServingParameters({"step/all/": 0.5, "held/kin/vllm x": -1.0}, widths, ("vllm x",), {"data": []})


def test_what_is_saved_is_loaded(tmp_path: Path):
    save_serving(parameters(), tmp_path / "own")
    found = load_serving(tmp_path / "own")
    assert found.deviations == parameters().deviations
    assert found.widths == parameters().widths
    assert found.engines == {"vllm"}


@pytest.mark.parametrize(
    "damage",
    [{"widths": {}}, {"deviations": ["one"]}, {"deviations": ["a/all/", "b/all/"]}, {"schema": 99}, {"sha256": "0"}],
)
def test_damage_is_told_with_what_to_do(tmp_path: Path, damage: dict[str, object]):
    save_serving(parameters(), tmp_path / "own")
    card = json.loads((tmp_path / "own.json").read_text())
    (tmp_path / "own.json").write_text(json.dumps({**card, **damage}))
    with pytest.raises(InputError, match="calibration.serving|newer"):
        load_serving(tmp_path / "own")


def test_the_shipped_scalars_say_where_they_are_from():
    found = load_serving()
    assert found.card["command"].startswith("python -m calibration.serving")
    assert {row["split"] for row in found.card["errors"]} >= {"group", "model", "engine", "device", "cap"}
    assert {"vllm", "sglang", "trtllm"} <= found.engines
    for parts in found.widths.values():
        assert all(len(widths) == len(WIDTHS) and min(widths) > 0.0 for widths in parts.values())


def test_levels_that_were_not_fitted_leave_what_all_have_in_common():
    places = {field: np.full((len(scalar.deviations), 2), 1) for field, scalar in SCALARS.items()}
    places["step"][0] = [0, 1]  # the first row has the only fitted number
    found = values_of(jnp.array([0.7]), {field: jnp.asarray(place) for field, place in places.items()})
    mean = SCALARS["step"].mean
    np.testing.assert_allclose(found["step"], [math.exp(mean + 0.7), math.exp(mean)], rtol=1e-12)
    np.testing.assert_allclose(found["synchrony"], 1.0 / (1.0 + math.exp(-SCALARS["synchrony"].mean)))
