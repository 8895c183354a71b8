"""`jaxperf codesign --method gradient`: as good as a sweep of everything, within budgets, and every mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jaxperf.io.codesign.free import Axis
from jaxperf.io.codesign.gradient import _steps
from tests.cli.test_codesign import CASE  # noqa: F401  (the fixture `case` writes it)

QUICK = ("--generations", "2", "--json")
RANGES = ("--free", "buffer.size=2:16", "--free", "memory.mesh_x=2:8", "--free", "memory.read_bandwidth=1:4:1")
NAMES = ("buffer.size", "memory.mesh_x", "memory.read_bandwidth")
SILICON = ("--technology", "16nm", "--mac-bits", "8,16")

pytestmark = pytest.mark.usefixtures("plain_jax")


@pytest.fixture
def ask(cli, parse_json, case: Path):
    """What a co-design by gradients says, and its exit code."""

    def run(*options: str) -> tuple[dict[str, Any], int]:
        result = cli("codesign", "--base", case, "--method", "gradient", *RANGES, *QUICK, *options)
        return parse_json(result.stdout), result.exit_code

    return run


@pytest.mark.long
def test_slopes_find_the_best_machine_of_a_budget(ask, cli, parse_json, case: Path) -> None:
    """Of sizes 2, 4, 8, 16 and meshes 2, 4, 8 a sweep has this one first among those that keep the budget."""
    best = ("--free", "buffer.size=2", "--free", "memory.mesh_x=4", "--free", "memory.read_bandwidth=4")
    swept = parse_json(cli("codesign", "--base", case, *best, *SILICON, *QUICK).stdout)["rows"][0]
    budget = swept["area_m2"] * 1.05
    said, code = ask("--machines", "5", *SILICON, "--area-budget", f"{budget * 1e6:.9f}mm^2")
    assert code == 0 and said["mapped"] <= 5 and said["machines"] == 5 and said["method"] == "gradient"
    assert said["rows"][0]["edp_j_cycle"] <= swept["edp_j_cycle"] * 1.001
    assert set(said["rows"][0]) == set(swept)
    keys = [tuple(row[name] for name in NAMES) for row in said["rows"]]
    assert len(set(keys)) == len(keys)
    for row, (size, mesh, bandwidth) in zip(said["rows"], keys, strict=True):
        assert row["area_m2"] <= budget and row["feasible"]
        assert 2 <= size <= 16 and 2 <= mesh <= 8 and 1 <= bandwidth <= 4
        assert all(float(each).is_integer() for each in (size, mesh, bandwidth))


@pytest.mark.long
def test_a_budget_that_nothing_keeps_ends_with_the_reason(ask) -> None:
    said, code = ask("--machines", "3", *SILICON, "--area-budget", "0.0000001mm^2")
    assert code == 3 and not any(row["feasible"] for row in said["rows"])
    assert "mm2; the budget is" in said["rows"][0]["reason"]


def test_an_interruption_keeps_what_was_mapped(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    from jaxperf.io.codesign import gradient as codesign_gradient

    def stopped(*at: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(codesign_gradient, "_climb", stopped)
    said, code = ask("--machines", "3")
    assert code == 130 and said["mapped"] == 1 and said["rows"][0]["feasible"]


def test_mistakes_in_ranges_are_named(refuse, case: Path, own_folder: Path) -> None:
    at = ("codesign", "--base", case, "--method", "gradient")
    assert "--free LEVEL.size=1024:65536" in refuse(*at)
    assert "takes a range LOW:HIGH" in refuse(*at, "--free", "buffer.size=2,4")
    assert "takes a range LOW:HIGH" in refuse(*at, "--free", "buffer.size=2:4:1:1")
    assert "must begin above 0 and end above" in refuse(*at, "--free", "buffer.size=4:2")
    assert "must begin above 0 and end above" in refuse(*at, "--free", "memory.read_bandwidth=0:2")
    assert "must be an integer from 1" in refuse(*at, "--free", "buffer.size=2.5:4")
    assert "must be an integer from 1" in refuse(*at, "--free", "buffer.size=2:")
    assert "the step must not be longer" in refuse(*at, "--free", "buffer.size=2:4:3")
    assert "a mesh of 1 is another structure" in refuse(*at, "--free", "memory.mesh_x=1:4")
    assert "is given twice" in refuse(*at, "--free", "buffer.size=2:4", "--free", "buffer.size=2:8")
    assert "--machines is 0" in refuse(*at, "--free", "buffer.size=2:4", "--machines", "0")
    assert "Did you mean gradient" in refuse(*at[:-1], "gradients", "--free", "buffer.size=2:4")
    sweep = ("codesign", "--base", case)
    assert "a range goes with --method gradient" in refuse(*sweep, "--free", "buffer.size=2:4")
    assert "--machines goes with --method gradient" in refuse(*sweep, "--free", "buffer.size=2", "--machines", "3")
    (own_folder / "odd.json").write_text(json.dumps({"levels": {"memory": {"mesh_x": 3}}}))
    said = refuse(*at, "--constraints", "odd.json", "--free", "memory.mesh_x=2:6")
    assert "mesh_x 3 times mesh_y 1 must be 4, the children of one of its instances" in said


@pytest.mark.parametrize(
    ("axis", "number", "beside"),
    [
        (Axis("a", "size", (10.0, 35.0), 10.0), 27.0, {20.0, 30.0}),
        (Axis("a", "size", (10.0, 35.0), 10.0), 34.0, {30.0}),
        (Axis("a", "size", (10.0, 35.0), 10.0), 9.0, {10.0}),
        (Axis("a", "mesh_x", (2.0, 8.0), 1.0), 4.0, {4.0, 5.0}),
        (Axis("a", "read_bandwidth", (1.0, 4.0)), 1.23456, {1.235}),
        (Axis("a", "read_bandwidth", (1.0, 3.99999)), 3.98, {3.99999}),
    ],
)
def test_numbers_go_to_the_steps_beside_them(axis: Axis, number: float, beside: set[float]) -> None:
    assert set(_steps(axis, number)) == beside
