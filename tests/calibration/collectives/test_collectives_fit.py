"""Curves fitted to made-up systems: what is recovered, what is shared, and that folds leave out whole groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from calibration.collectives.adapt import adapt, measured_points
from calibration.collectives.evaluate import FEW_COUNT, device_folds, evaluate, few_of, rank_folds, size_folds, without
from calibration.collectives.fit import BOUND, correction, fit_curves, merged
from calibration.collectives.parameters import (
    LAW,
    SCHEMA,
    TIERS,
    CollectiveParameters,
    load_collectives,
    save_collectives,
)
from calibration.collectives.points import Points
from calibration.collectives.predict import predict_collectives, tiers_of
from calibration.collectives.refit import refit
from calibration.collectives.rows import FAMILY, measured_collectives, read_collectives
from calibration.collectives.scores import coverage, error_rows, interval_widths, resolution_of
from calibration.collectives.terms import SIZE, Term
from hwspecs.errors import InputError
from jaxperf.core.parameter_files import paths

Slowness = Callable[[str, int, float], float]
SIZES = [2.0**power for power in range(10, 28)]
DEVICES = {"a100": 300e9, "h100": 450e9, "h200": 450e9}


def write(path: Path, slowness: Slowness, devices: tuple[str, ...] = ("a100", "h100"), flag: int = 0) -> Path:
    """Rings of 10 us, 2 us a step and 2 (n-1)/n S / B, times `slowness(device, ranks, log2 size)`."""
    lines = ["gpu,framework,version,kernel,op,topology,dtype,num_gpus,gpus_per_node,bytes,latency_us,flag"]
    for device in devices:
        for ranks in (2, 4, 8):
            for size in SIZES:
                time = 10e-6 + 2 * (ranks - 1) * (2e-6 + size / ranks / (0.8 * DEVICES[device]))
                time *= slowness(device, ranks, float(np.log2(size)))
                cells = f"{device},nccl,2.27,nccl,all_reduce,node,int8,{ranks},{ranks},{size:.0f}"
                lines.append(f"{cells},{time * 1e6:.9g},{flag}")
    path.write_text("\n".join(lines) + "\n")
    return path


def learned(path: Path) -> tuple[Points, np.ndarray, np.ndarray]:
    """Points, times, and the logarithm of time over law."""
    points, measured = measured_points(measured_collectives([path]))
    return points, measured, np.log(measured / points.time)


def typical(device: str, ranks: int, place: float) -> float:
    return (1.3 if device == "a100" else 0.9) * (1.0 + 0.1 * np.sin(place))


def test_a_smooth_slowness_is_recovered_and_shared_with_a_new_version(tmp_path: Path) -> None:
    points, _, y = learned(write(tmp_path / "rows.csv", typical))
    curves = fit_curves(points, y)
    assert np.abs(correction(curves, points) - y).max() < 0.02
    newer = {**points.names, "cell": points.names["cell"] + "x", "cell setting": points.names["cell setting"] + "x"}
    told = correction(curves, dataclasses.replace(points, names=newer))
    assert np.median(np.abs(told - y)) < 0.15 < np.median(np.abs(y))


def test_the_fit_is_deterministic(tmp_path: Path) -> None:
    points, _, y = learned(write(tmp_path / "rows.csv", typical))
    first, second = fit_curves(points, y), fit_curves(points, y)
    assert first.known == second.known
    assert all(np.array_equal(first.values[name], second.values[name]) for name in first.values)


def test_an_unknown_name_falls_back_and_the_correction_is_bounded(tmp_path: Path) -> None:
    points, _, y = learned(write(tmp_path / "rows.csv", typical))
    curves = fit_curves(points, y)
    strangers = {level: np.array([f"?{name}" for name in names]) for level, names in points.names.items()}
    assert (correction(curves, dataclasses.replace(points, names=strangers)) == 0.0).all()
    wild = merged([curves, *[fit_curves(points, np.full(len(points), 9.0))] * 2])
    assert np.abs(correction(wild, points)).max() == BOUND


def test_one_wild_row_hardly_moves_the_curve(tmp_path: Path) -> None:
    points, _, y = learned(write(tmp_path / "rows.csv", typical))
    wild = y.copy()
    wild[7] += 3.0
    moved = correction(fit_curves(points, wild), points)
    assert np.median(np.abs(moved - y)) < 0.02


def test_where_times_scatter_the_relative_error_is_least_not_that_of_the_logarithm(tmp_path: Path) -> None:
    """Four rows of ten take t, six 6 t: the median is 6 t, off by 2.0 on average, t is off by 0.5."""
    points, _, y = learned(write(tmp_path / "rows.csv", typical))
    y = np.where(np.random.default_rng(1).permutation(np.arange(len(y)) % 10) < 4, 0.0, np.log(6.0))
    one = (Term("kind", *SIZE, 3.0, 1e-3),)
    told = correction(fit_curves(points, y, one), points, one)
    assert np.abs(np.expm1(told - y)).mean() < 0.6 and np.ptp(told) < 0.1


def test_folds_leave_out_whole_groups(tmp_path: Path) -> None:
    points, _, _ = learned(write(tmp_path / "rows.csv", typical))
    everything = np.arange(len(points))
    for folds in (size_folds, rank_folds, device_folds):
        assert np.array_equal(np.sort(np.concatenate(list(folds(points)))), everything)
    octaves = [set(np.rint(points.coordinates["size"][rows])) for rows in size_folds(points)]
    assert not octaves[0] & octaves[1]
    for rows in rank_folds(points):
        kept = np.setdiff1d(everything, rows)
        same = points.named("device")[kept] == points.named("device")[rows[0]]
        assert points.numbers["ranks"][rows[0]] not in points.numbers["ranks"][kept][same]


def test_copies_under_another_name_are_held_out_too(tmp_path: Path) -> None:
    """The same times to the last digit for another device are no measurement of it."""
    points, measured, _ = learned(write(tmp_path / "rows.csv", typical, ("a100", "h100", "h200")))
    held = next(rows for rows in rank_folds(points) if str(points.named("device")[rows[0]]).endswith("h100-sxm/node"))
    rest, _ = without(points, measured, held)
    ranks, device = points.numbers["ranks"][rest], points.named("device")[rest]
    alike = ranks == points.numbers["ranks"][held[0]]
    assert {name.split("/")[-2] for name in device[alike]} == {"a100-sxm-80gb"}
    assert {name.split("/")[-2] for name in device[~alike]} == {"a100-sxm-80gb", "h100-sxm", "h200-sxm"}


def test_few_rows_are_spread_and_left_out_of_the_score(tmp_path: Path) -> None:
    points, _, _ = learned(write(tmp_path / "rows.csv", typical))
    few, rest = few_of(points, np.arange(len(points)))
    assert len(few) == FEW_COUNT
    assert not set(few) & set(rest)
    assert len(few) + len(rest) == len(points)
    assert set(points.numbers["ranks"][few]) == {2.0, 4.0, 8.0}


def test_what_is_held_out_is_predicted_and_scored(tmp_path: Path) -> None:
    points, measured, _ = learned(write(tmp_path / "rows.csv", typical, ("a100", "h100", "h200")))
    found = evaluate(points, measured)
    rows = {row["split"]: row for row in error_rows(points, measured, found) if row["by"] == "all"}
    assert rows["sizes"]["ours_mean"] < 0.05 < rows["sizes"]["alpha_beta_mean"]
    assert rows["24 rows"]["ours_median"] < 0.12 < rows["24 rows"]["law_median"]
    assert all(0.5 <= coverage(points, measured, held) <= 1.0 for held in found.values())
    widths = interval_widths(points, measured, found)
    kind = points.named("kind")[0]
    ordered = [widths[tier][kind] for tier in ("measured", "adapted", "device", "transfer")]
    assert ordered == sorted(ordered)
    assert set(widths) == set(TIERS)


def test_whole_microseconds_are_scored_beyond_half_of_one(tmp_path: Path) -> None:
    points, measured, _ = learned(write(tmp_path / "rows.csv", typical))
    assert (resolution_of(points, measured) == 0.0).all()
    assert (resolution_of(points, np.rint(measured * 1e6) / 1e6) == 0.5e-6).all()


def test_flagged_rows_are_not_learned_from(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no collective with a measured time"):
        learned(write(tmp_path / "rows.csv", typical, flag=16))


@pytest.fixture(scope="module")
def parameters(tmp_path_factory: pytest.TempPathFactory) -> CollectiveParameters:
    path = write(tmp_path_factory.mktemp("rows") / "rows.csv", typical)
    return refit(measured_collectives([path]), {"created": "2026-11-21", "data": []})


def test_parameters_come_back_as_they_were(parameters: CollectiveParameters, tmp_path: Path) -> None:
    save_collectives(parameters, tmp_path / "fitted")
    again = load_collectives(tmp_path / "fitted.json")
    assert again.learned.curves.known == parameters.learned.curves.known
    for name, values in parameters.learned.curves.values.items():
        np.testing.assert_allclose(again.learned.curves.values[name], values, rtol=1e-6, atol=1e-6)
    assert again.widths == parameters.widths
    assert again.learned.network == parameters.learned.network
    assert again.learned.launches == parameters.learned.launches
    assert again.card["schema"] == SCHEMA


def test_damaged_parameters_are_refused(parameters: CollectiveParameters, tmp_path: Path) -> None:
    save_collectives(parameters, tmp_path / "fitted")
    tensors, card = paths(tmp_path / "fitted")
    card.write_text(card.read_text().replace('"kind by size": [', '"kind by size": ["more", '))
    with pytest.raises(InputError, match="damaged.*collectives.refit"):
        load_collectives(tmp_path / "fitted")
    tensors.write_bytes(tensors.read_bytes()[:-8])
    with pytest.raises(InputError, match="checksum"):
        load_collectives(tmp_path / "fitted")


def test_tiers_say_what_is_known(parameters: CollectiveParameters, tmp_path: Path) -> None:
    rows = [
        "gpu,framework,version,kernel,op,topology,dtype,num_gpus,gpus_per_node,bytes",
        "a100,nccl,2.27,nccl,all_reduce,node,int8,8,8,4096",
        "a100,nccl,9.9,nccl,all_reduce,node,int8,8,8,4096",
        "h800,nccl,2.27,nccl,all_reduce,node,int8,8,8,4096",
        "h800,nccl,2.27,nccl,all_gather,node,int8,8,8,4096",
    ]
    path = tmp_path / "wanted.csv"
    path.write_text("\n".join(rows) + "\n")
    read = read_collectives(path)
    found = predict_collectives(read.table(FAMILY), read.rows, parameters)
    assert np.asarray(found["tier"]).tolist() == ["measured", "device", "transfer", LAW]
    assert "transfer: nothing of this device" in np.asarray(found["reason"])[2]
    lower, time, upper = (np.asarray(found[name]) for name in ("lower_us", "predicted_us", "upper_us"))
    assert (lower < time).all()
    assert (time < upper).all()
    assert (np.diff(upper[:3] / time[:3]) >= 0.0).all()


def test_a_topology_that_is_not_stated_is_the_one_measured_most(
    parameters: CollectiveParameters, tmp_path: Path
) -> None:
    """With the device's own times, aloud; where nothing of a device was measured, nothing is taken for it."""
    rows = ["gpu,framework,version,kernel,op,dtype,num_gpus,gpus_per_node,bytes"]
    rows += [f"{device},nccl,2.27,nccl,all_reduce,int8,8,8,4096" for device in ("a100", "h800")]
    bare, stated = tmp_path / "bare.csv", tmp_path / "stated.csv"
    bare.write_text("\n".join(rows) + "\n")
    stated.write_text("\n".join([f"{rows[0]},topology", *(f"{row},node" for row in rows[1:])]) + "\n")

    def answered(path: Path) -> dict[str, list]:
        read = read_collectives(path)
        found = predict_collectives(read.table(FAMILY), read.rows, parameters)
        return {name: np.asarray(found[name]).tolist() for name in ("predicted_us", "tier", "reason")}

    found, expected = answered(bare), answered(stated)
    assert found["predicted_us"][0] == expected["predicted_us"][0]
    assert found["tier"] == expected["tier"] == ["measured", "transfer"]
    assert "topology not stated: node, of which most of nccl was measured on the device" in found["reason"][0]
    assert not any("topology not stated" in reason for reason in (found["reason"][1], *expected["reason"]))


def test_names_that_nobody_measured_are_told(parameters: CollectiveParameters, tmp_path: Path) -> None:
    rows = [
        "gpu,framework,version,kernel,op,dtype,num_gpus,gpus_per_node,bytes,topology",
        "a100,nccl,2.27,nccl,all_reduce,int8,8,8,4096,nodes",
        "a100,ncll,2.27,nccl,all_reduce,int8,8,8,4096,node",
        "a100,nccl,2.27,nccl,all_reduec,int8,8,8,4096,node",
        "a100,nccl,2.27,nccl,all_reduce,int8,8,8,4096,node",
    ]
    path = tmp_path / "wanted.csv"
    path.write_text("\n".join(rows) + "\n")
    read = read_collectives(path)
    found = predict_collectives(read.table(FAMILY), read.rows, parameters)
    topology, framework, op, known = np.asarray(found["reason"]).tolist()
    assert topology.endswith("; topology 'nodes' was not measured on the device (measured: node)")
    assert framework.endswith("; framework 'ncll' was not measured: did you mean nccl?")
    assert "broadcast, reduce; it is 'all_reduec': did you mean all_reduce" in op
    assert "was not measured:" not in known and "topology" not in known


def test_adapting_to_few_rows_of_a_new_device_beats_the_transfer(
    parameters: CollectiveParameters, tmp_path: Path
) -> None:
    whole, _, y = learned(write(tmp_path / "new.csv", lambda *_: 2.0, ("h200",)))
    few = tmp_path / "few.csv"
    lines = (tmp_path / "new.csv").read_text().splitlines()
    few.write_text("\n".join([lines[0], *lines[1::3]]) + "\n")
    adapted = adapt(parameters, measured_collectives([few]))
    before, after = (np.abs(correction(each.learned.curves, whole) - y) for each in (parameters, adapted))
    assert np.median(after) < 0.1 < np.median(before)
    assert {TIERS[place] for place in tiers_of(whole, adapted)} == {"adapted"}
