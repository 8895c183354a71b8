"""The fitted table of sustained rates: what it says of a device, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import hwspecs
from hwspecs.changed import changed_facts
from hwspecs.errors import InputError
from jaxperf.core.efficiency import FAMILIES, assumed_shares
from jaxperf.core.formats import number_format
from jaxperf.core.relative_energy import UNDER_A_CAP
from jaxperf.core.sustained import CLASSES, RATE_LEVELS, format_class, sustained_efficiencies
from jaxperf.core.sustained_file import (
    Calibration,
    calibration_of,
    checksum,
    class_on,
    load_sustained_table,
    power_time,
)

SHIPPED = load_sustained_table()
H100, B200, EPYC = (hwspecs.load(name) for name in ("h100-sxm", "b200", "epyc-9654"))
LOW, NOMINAL, HIGH, ROOFLINE = range(len(RATE_LEVELS))


def test_shares_are_bounded_and_levels_in_order() -> None:
    for spec in (H100, B200, EPYC):
        for family, rates in calibration_of(spec, SHIPPED).calibrated.sustained.rates.items():
            for leaf in (np.asarray(rates.compute), np.asarray(rates.memory)):
                assert leaf.shape == (len(RATE_LEVELS), len(CLASSES)), family
                assert (leaf > 0.0).all() and (np.diff(leaf, axis=0) >= 0.0).all() and (leaf[ROOFLINE] == 1.0).all()
            floor = np.asarray(rates.floor)
            assert (np.diff(floor[:ROOFLINE], axis=0) <= 0.0).all()
            assert (floor[ROOFLINE] == np.float32(spec.launch_latency.si)).all() or floor.dtype == np.float64


def test_tiers_measured_transfer_and_assumed() -> None:
    measured, transfer, other_kind = (calibration_of(spec, SHIPPED).tiers for spec in (H100, B200, EPYC))
    assert measured["gemm"]["16-bit"] == measured["gemm"]["8-bit"] == "measured"
    assert measured["gemm"]["4-bit"] == measured["gemm"]["32-bit"] == "transfer"  # borrowed from another class
    assert {transfer[family]["16-bit"] for family in SHIPPED.families} == {"transfer"}
    assert {tier for each in other_kind.values() for tier in each.values()} == {"assumed"}
    assert measured["linear_attention"]["16-bit"] == "assumed"


def test_a_device_that_a_user_changed_is_not_the_one_that_was_measured() -> None:
    def changed(**facts: str) -> hwspecs.DeviceSpec:
        each = {name: getattr(H100, name).model_copy(update={"quantity": text}) for name, text in facts.items()}
        return H100.model_copy(update=each)

    faster, capped = changed(memory_bandwidth="6.7 TB/s"), changed(tdp="350 W")
    assert changed_facts(faster) == ("memory_bandwidth",) and changed_facts(capped) == changed_facts(H100) == ()
    known = calibration_of(faster, SHIPPED)
    stranger = calibration_of(faster.model_copy(update={"name": "my-chip", "base": "h100-sxm"}), SHIPPED)
    assert known.changed == ("memory_bandwidth",) and known.tiers == stranger.tiers
    assert known.tiers["gemm"]["16-bit"] == "transfer" != calibration_of(capped, SHIPPED).tiers["gemm"]["16-bit"]
    same = jax.tree.map(lambda a, b: bool((a == b).all()), known.calibrated, stranger.calibrated)
    assert all(jax.tree.leaves(same))


def test_rows_of_ones_own_are_of_the_changed_device() -> None:
    faster = H100.model_copy(
        update={"memory_bandwidth": H100.memory_bandwidth.model_copy(update={"quantity": "6.7 TB/s"})}
    )
    own = calibration_of(faster, dataclasses.replace(SHIPPED, path="mine.sustained.json"))
    assert own.tiers["gemm"]["16-bit"] == "measured"


def test_a_family_without_a_fit_keeps_the_assumed_shares() -> None:
    rates = calibration_of(H100, SHIPPED).calibrated.sustained.rates["linear_attention"]
    shares = assumed_shares()["linear_attention"]
    for resource in ("compute", "memory"):
        found = np.asarray(getattr(rates, resource))[:ROOFLINE, 1]
        assert found == pytest.approx([shares[resource][level] for level in ("low", "nominal", "high")])
    assert (np.asarray(rates.exposed) == 0.0).all()


def test_a_transferred_interval_is_wider_than_a_measured_one() -> None:
    def ratio(spec: Any) -> float:
        memory = np.asarray(calibration_of(spec, SHIPPED).calibrated.sustained.rates["gemm"].memory)
        return float(memory[NOMINAL, CLASSES.index("16-bit")] / memory[LOW, CLASSES.index("16-bit")])

    assert ratio(B200) > ratio(H100) > 1.0


def test_the_power_limit_is_of_the_design_and_an_operation_takes_less_under_a_lower_one() -> None:
    def at(tdp: float, clock: float = H100.clock_rate.si) -> float:
        stated = {"tdp": f"{tdp} W", "clock_rate": f"{clock} Hz"}
        each = {name: getattr(H100, name).model_copy(update={"quantity": text}) for name, text in stated.items()}
        return power_time(H100.model_copy(update=each), H100, 4e-13, "16-bit", SHIPPED.power)

    found = [at(tdp) for tdp in (50.0, 200.0, 700.0, 1e5)]
    assert found == sorted(found, reverse=True)
    assert at(25.0) == pytest.approx(2.0**UNDER_A_CAP * at(50.0), rel=1e-3)
    assert at(700.0, 2.0 * H100.clock_rate.si) == at(700.0)  # what it can pay is no less at a higher clock
    assert power_time(H100, None, 4e-13, "8-bit", SHIPPED.power) == pytest.approx(at(700.0) / 2.0)


def test_a_device_made_from_a_measured_one_starts_from_what_that_sustains(tmp_path: Path) -> None:
    def made(name: str, **facts: str) -> Calibration:
        source = '[sources.me]\ntitle = "t"\npublisher = "me"\nkind = "estimate"\nyear = 2026\n'
        stated = [
            f'{fact} = {{ quantity = "{text}", source = "me", confidence = "estimated", note = "what if" }}\n'
            for fact, text in facts.items()
        ]
        (tmp_path / f"{name}.toml").write_text(f'name = "{name}"\nbase = "h100-sxm"\n{"".join(stated)}{source}')
        return calibration_of(hwspecs.load(name, [tmp_path]), SHIPPED)

    shipped, same, faster = (
        calibration_of(H100, SHIPPED),
        made("same", tdp="700 W"),
        made("f", memory_bandwidth="4 TB/s"),
    )
    assert same.tiers == shipped.tiers and same.changed == ()
    assert faster.changed == ("memory_bandwidth",) and faster.tiers["gemm"]["16-bit"] == "transfer"
    for family in SHIPPED.families:
        ours, theirs = (each.calibrated.sustained.rates[family] for each in (faster, shipped))
        assert np.array_equal(ours.memory[NOMINAL], theirs.memory[NOMINAL]), family
        assert (np.asarray(ours.memory)[LOW] <= np.asarray(theirs.memory)[LOW]).all(), family


def test_every_format_has_a_class_and_each_kernel_takes_its_own() -> None:
    assert [format_class(name) for name in ("fp64", "tf32", "bf16", "int8", "fp4")] == [
        "32-bit",
        "32-bit",
        "16-bit",
        "8-bit",
        "4-bit",
    ]
    sustained = calibration_of(H100, SHIPPED).calibrated.sustained
    found = sustained_efficiencies(sustained, np.int32(NOMINAL), 0.75, number_format("fp8"), number_format("bf16"))
    for family in FAMILIES:
        column = CLASSES.index("8-bit" if family in ("gemm", "moe") else "16-bit")
        expected = np.asarray(sustained.rates[family].compute)[NOMINAL, column]
        assert float(getattr(found, family).compute) == float(expected), family
    plain, bare = found.plain_gemm, sustained.rates["gemm"]
    assert float(plain.compute) == float(bare.compute[NOMINAL, CLASSES.index("16-bit")])
    assert float(plain.compute) != float(found.gemm.compute)  # the head of a quantized model is not quantized


def test_what_a_device_lacks_has_the_rates_of_what_it_is_multiplied_in() -> None:
    """The RTX 3090 multiplies int8, which its power limit slows, and not fp8."""
    ampere, bf16 = hwspecs.load("rtx-3090"), number_format("bf16")
    sustained = calibration_of(ampere, SHIPPED).calibrated.sustained
    of = {
        name: sustained_efficiencies(sustained, np.int32(NOMINAL), 0.75, number_format(name), bf16)
        for name in ("bf16", "fp8", "int8", "fp4")
    }
    for family in ("gemm", "moe"):
        share = {name: float(getattr(each, family).power) for name, each in of.items()}
        assert share["fp8"] == share["fp4"] == share["bf16"] != share["int8"], family
    assert [class_on(spec, "fp8") for spec in (H100, ampere, hwspecs.load("p4"))] == ["8-bit", "16-bit", "32-bit"]


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    card = {
        **SHIPPED.card,
        "families": json.loads(json.dumps(SHIPPED.families)),
        "power": dict(SHIPPED.power),
    }
    return tmp_path / "mine.sustained.json", card


def test_a_table_beside_parameters_is_found_by_their_name(stored: tuple[Path, dict[str, Any]]) -> None:
    path, card = stored
    path.write_text(json.dumps(card))
    for given in (path, path.parent / "mine", path.parent / "mine.json", path.parent / "mine.safetensors"):
        assert load_sustained_table(given).families == SHIPPED.families
    assert load_sustained_table(path).path == str(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda card: card.update(schema=2), "a newer jaxperf reads it"),
        (lambda card: card.update(schema=0), "make it again"),
        (lambda card: card.pop("schema"), "have schema None"),
        (lambda card: card.pop("families"), "are damaged"),
        (lambda card: card["power"].update(usable_share=0.0), "power.usable_share is 0.0"),
        (lambda card: card["power"].update(reference_budget="little"), "are damaged"),
        (lambda card: card["families"].update(gem=card["families"].pop("gemm")), "unknown family 'gem'"),
        (lambda card: card["families"]["gemm"]["classes"]["16-bit"].update(compute=1.1), "gemm.16-bit.family: a share"),
        (
            lambda card: card["families"]["gemm"]["classes"]["16-bit"]["devices"]["h100-sxm"].update(floor=-1e-6),
            "gemm.16-bit.h100-sxm: a share",
        ),
        (
            lambda card: card["families"]["moe"]["classes"]["16-bit"].update(half_width=[0.5, 0.1]),
            "moe.16-bit.family: half-widths",
        ),
        (
            lambda card: card["families"]["moe"]["classes"]["16-bit"]["devices"]["l40s"].update(tier="sure"),
            "unknown tier 'sure'",
        ),
        (lambda card: card["families"]["moe"]["classes"].update({"5-bit": {}}), "unknown format class '5-bit'"),
    ],
)
def test_damaged_tables_are_refused(stored: tuple[Path, dict[str, Any]], change: Any, said: str) -> None:
    path, card = stored
    change(card)
    if card.keys() >= {"families", "power"}:
        card["sha256"] = checksum(card)
    path.write_text(json.dumps(card))
    with pytest.raises(InputError, match=said):
        load_sustained_table(path)


def test_a_changed_number_is_noticed(stored: tuple[Path, dict[str, Any]]) -> None:
    path, card = stored
    card["power"]["usable_share"] *= 0.5
    path.write_text(json.dumps(card))
    with pytest.raises(InputError, match="do not have the checksum"):
        load_sustained_table(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"'])
def test_what_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.sustained.json"
    path.write_text(text)
    with pytest.raises(InputError, match="x.sustained.json"):
        load_sustained_table(path)


def test_a_missing_file_says_what_makes_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="calibration.sustained"):
        load_sustained_table(tmp_path / "none")
