"""Parameters survive the disk, and anything wrong with the files is said."""

from __future__ import annotations

import dataclasses
import json
from importlib import resources
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load

from calibration.intervals import Spread
from calibration.kernels.calibrate import calibrate
from calibration.kernels.fit import Settings
from calibration.kernels.parameters import LAWS, Parameters, load_parameters, save_parameters
from calibration.kernels.predict import predict
from calibration.stored import save_arrays
from hwspecs.errors import InputError
from tests.calibration.tables import as_read, blank_table, gemm_table

QUICK = Settings(steps=20, law_steps=20, law_rows=500, batch=32, widths=(4, 4))
HOPPER = ("h100-sxm", "h200-sxm")  # of one generation: no fold to fit


@pytest.fixture(scope="module")
def parameters() -> Parameters:
    return calibrate([as_read(gemm_table(200, HOPPER))], settings=QUICK)


@pytest.fixture
def saved(parameters: Parameters, tmp_path: Path) -> Path:
    save_parameters(parameters, tmp_path / "p")
    return tmp_path / "p"


def test_round_trip(parameters: Parameters, saved: Path) -> None:
    again = load_parameters(saved)
    assert set(again.families) == {"gemm"}
    assert again.card["devices"] == list(HOPPER)
    leaves = (jax.tree.leaves(each.families["gemm"].model) for each in (again, parameters))
    for a, b in zip(*leaves, strict=True):
        np.testing.assert_array_equal(a, b)
    assert again.families["gemm"].spread == parameters.families["gemm"].spread
    read = as_read(gemm_table(50, HOPPER, seed=9))
    first, second = predict(read, parameters), predict(read, again)
    np.testing.assert_array_equal(first.columns["predicted_us"], second.columns["predicted_us"])


def test_a_law_of_before_has_no_throttle_one_kind_of_memory_dram_after_l2_and_no_pipelines_beside(saved: Path) -> None:
    body = load(saved.with_suffix(".safetensors").read_bytes())
    card = json.loads(saved.with_suffix(".json").read_text())
    later = ("throttle", "gddr", "inline_ecc", "on_chip_sharpness", "special", "ahead")
    save_arrays(saved, {name: body[name] for name in body if not name.endswith(later)}, card, card["schema"])
    law = load_parameters(saved).families["gemm"].model.law
    assert [float(getattr(law, name)) for name in later[:-2]] == [1.0, 0.0, 0.0, 0.0]
    assert float(law.special) < -60.0  # what pipelines beside the matrix units take is nothing
    assert float(law.ahead) < -60.0  # and so is the share of a host's time before the device starts


def test_parameters_of_another_kind_are_told_from_those_of_another_schema() -> None:
    said = (
        r"batches.json' are of another kind, made by 'python -m calibration\.composition\.batches_refit .*name others"
    )
    with pytest.raises(InputError, match=said):
        load_parameters(Path(str(resources.files("calibration") / "fitted" / "batches")))


@pytest.mark.parametrize("law", [1, LAWS["gemm"] + 1])
def test_another_law_of_a_family_says_what_to_do(saved: Path, law: int) -> None:
    path = saved.with_suffix(".json")
    card = json.loads(path.read_text())
    card["families"]["gemm"]["law"] = law
    path.write_text(json.dumps(card))
    with pytest.raises(InputError, match="have gemm as another jaxperf counts .* make them again"):
        load_parameters(saved)
    assert "gemm" not in load_parameters(saved, refitted=["gemm"]).families


def test_a_flipped_byte_is_noticed(saved: Path) -> None:
    path = saved.with_suffix(".safetensors")
    body = bytearray(path.read_bytes())
    body[-3] ^= 1
    path.write_bytes(bytes(body))
    with pytest.raises(InputError, match="checksum"):
        load_parameters(saved)


@pytest.mark.parametrize(("schema", "told"), [(0, "make them again"), (99, "newer jaxperf"), (None, "make them again")])
def test_another_schema_says_what_to_do(saved: Path, schema: int | None, told: str) -> None:
    path = saved.with_suffix(".json")
    card = json.loads(path.read_text())
    path.write_text(json.dumps(card | {"schema": schema}))
    with pytest.raises(InputError, match=told):
        load_parameters(saved)


@pytest.mark.parametrize("part", [{"devices": 3}, {"excluded": [3]}, {"adapted": {"gemm": 7}}, {"command": 7}])
def test_a_part_of_the_card_of_another_type_is_named(saved: Path, part: dict[str, object]) -> None:
    path = saved.with_suffix(".json")
    path.write_text(json.dumps(json.loads(path.read_text()) | part))
    with pytest.raises(InputError, match=rf"p\.json' are damaged .*'{next(iter(part))}'"):
        load_parameters(saved)


@pytest.mark.parametrize("width", [[0.1], [0.1, 0.2, 0.3], ["a", "b"], [0.1, float("nan")], [-0.2, 0.1], 0.1, None])
@pytest.mark.parametrize("part", ["cells", "formats"])
def test_widths_that_are_none_are_told(saved: Path, part: str, width: object) -> None:
    path = saved.with_suffix(".json")
    card = json.loads(path.read_text())
    card["families"]["gemm"][part] = {"bf16": width}
    path.write_text(json.dumps(card))
    with pytest.raises(InputError, match=r"p\.json' are damaged"):
        load_parameters(saved)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"schema": 1}', b'{"\xff": 1}', b"[" * 100_000])
def test_a_damaged_card_is_named(saved: Path, damage: bytes) -> None:
    saved.with_suffix(".json").write_bytes(damage)
    with pytest.raises(InputError, match=r"p\.json"):
        load_parameters(saved)


def test_missing_files_and_unwritable_places_are_named(parameters: Parameters, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="jaxperf calibrate"):
        load_parameters(tmp_path / "nothing")
    with pytest.raises(InputError, match="Cannot write"):
        save_parameters(parameters, tmp_path / "no" / "folder")
    assert list(tmp_path.iterdir()) == []


def test_predictions_keep_the_rows_and_say_where_they_come_from(parameters: Parameters) -> None:
    known, other = gemm_table(20, HOPPER, seed=4), gemm_table(20, devices=("mi300x",), seed=4)
    sizes = {"rows": np.full(3, 8.0), "columns": np.full(3, 64.0)}
    alone = blank_table("norm", sizes, np.array(["h100-sxm", "h100-sxm", ""], dtype=object))
    spread = Spread(measured=(0.05, 0.2), transfer=(0.3, 0.7))
    gemm = dataclasses.replace(parameters.families["gemm"], spread=spread)
    found = predict(as_read(known, other, alone), Parameters({"gemm": gemm}, parameters.card)).columns
    assert list(found["tier"]) == ["measured"] * 20 + ["transfer"] * 20 + ["roofline"] * 2 + [""]
    assert "device never measured" in found["reason"][20]
    assert "unknown" in found["reason"][-1] and np.isnan(found["predicted_us"][-1])
    told = found["tier"] != ""
    assert (found["lower_us"][told] <= found["predicted_us"][told]).all()
    assert (found["predicted_us"][told] <= found["upper_us"][told]).all()
    assert set(found["limiter"][told]) <= {"compute", "memory", "latency"}
    half_width = np.log(found["upper_us"] / found["predicted_us"])
    assert np.median(half_width[:20]) == pytest.approx(0.2, rel=1e-4)
    assert np.median(half_width[20:40]) == pytest.approx(0.7, rel=0.1)  # some lie outside of what was measured


def test_excluded_devices_are_not_learned_from() -> None:
    found = calibrate([as_read(gemm_table(60, ("h100-sxm", "l40s")))], exclude=["L40S"], settings=QUICK)
    assert found.card["devices"] == ["h100-sxm"] and found.card["excluded"] == ["l40s"]
    assert found.families["gemm"].names.known["device"] == ("h100-sxm",)


def test_nothing_to_learn_from_is_one_sentence() -> None:
    table = blank_table("gemm", {"m": [1.0], "n": [1.0], "k": [1.0], "batch": [1.0]}, np.array([""], dtype=object))
    with pytest.raises(InputError, match="No usable row"):
        calibrate([as_read(table)], settings=QUICK)
