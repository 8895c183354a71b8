"""A fit finds a law it was given, is deterministic, and falls back where nothing was measured."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibration.kernels.calibrate
from calibration.intervals import Spread
from calibration.kernels.calibrate import calibrate_family
from calibration.kernels.demand import POINTS, demand
from calibration.kernels.family import FittedFamily
from calibration.kernels.fit import Settings, cell_weights, fit, log_times, sample
from calibration.kernels.hardware import load_hardware
from calibration.kernels.held_out import generation, held_of_fit, held_shapes
from calibration.kernels.inputs import Prepared, prepare
from calibration.kernels.model import BOUND, FOREIGN_BOUND, KernelModel
from calibration.kernels.parameters import Parameters
from calibration.kernels.predict import predict_table
from calibration.kernels.transfer import Transfer
from hwspecs.errors import InputError
from tests.calibration.tables import blank_table, gemm_table, with_latency

QUICK = Settings(steps=250, law_steps=200, law_rows=2000, batch=256, widths=(16, 16))


@pytest.fixture(scope="module")
def data() -> Prepared:
    return prepare(gemm_table(900))


@pytest.fixture(scope="module")
def fitted(data: Prepared) -> FittedFamily:
    return fit(data, QUICK)


def errors(fitted: FittedFamily, data: Prepared) -> np.ndarray:
    assert data.table.latency is not None
    return np.abs(np.expm1(log_times(fitted, data) - np.log(data.table.latency)))


def test_a_known_law_is_found(fitted: FittedFamily) -> None:
    unseen = prepare(gemm_table(300, seed=1))
    assert np.median(errors(fitted, unseen)) < 0.06
    roofline = np.abs(unseen.roofline / unseen.table.latency - 1.0)
    assert np.median(errors(fitted, unseen)) < 0.3 * np.median(roofline)


def test_fits_are_deterministic(data: Prepared, fitted: FittedFamily) -> None:
    again = fit(data, QUICK)
    for a, b in zip(jax.tree.leaves(again.model), jax.tree.leaves(fitted.model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_unknown_device_gets_the_law_alone(fitted: FittedFamily) -> None:
    model = fitted.model
    law_only = dataclasses.replace(model.correction, share=jnp.zeros(()))
    x = prepare(gemm_table(50, devices=("mi300x",))).inputs(fitted.names)
    assert float(jnp.max(jnp.abs(jax.vmap(law_only)(x)))) == 0.0


def test_a_network_is_not_run_where_no_share_of_it_is_left(
    fitted: FittedFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same answers with and without; devices that were measured keep it."""
    table = gemm_table(60, devices=("mi300x", "h100-sxm"))
    model = eqx.tree_at(lambda tree: tree.correction.share, fitted.model, jnp.zeros(()))
    none = dataclasses.replace(fitted, model=model)
    parameters = Parameters({"gemm": none}, {})
    without = predict_table(table, parameters)
    monkeypatch.setattr(KernelModel, "uncorrected", lambda model: model)
    both = predict_table(table, parameters)
    for name in ("predicted_us", "lower_us", "upper_us"):
        np.testing.assert_allclose(without[name], both[name], rtol=1e-5)
    law = jax.vmap(fitted.model.law)(prepare(table).inputs(fitted.names))
    corrected = np.abs(np.log(1e-6 * without["predicted_us"]) - law) > 1e-3
    assert not corrected[table.device == "mi300x"].any() and corrected[table.device == "h100-sxm"].any()


def test_an_unknown_device_gets_little_of_a_large_correction(fitted: FittedFamily) -> None:
    """Its sign and its size where it is small; never more than FOREIGN_BOUND."""
    shift = fitted.model.correction.shared.at[-1].add(3.0)
    large = eqx.tree_at(lambda tree: tree.shared, fitted.model.correction, shift)
    x = prepare(gemm_table(50, devices=("mi300x",))).inputs(fitted.names)
    whole, given = jax.vmap(large.whole)(x), jax.vmap(large)(x)
    assert float(jnp.max(whole)) > 0.5
    assert float(jnp.max(given)) <= FOREIGN_BOUND * (1 + 1e-6)
    np.testing.assert_allclose(given, FOREIGN_BOUND * np.tanh(np.asarray(whole) / FOREIGN_BOUND), rtol=1e-5)
    measured = prepare(gemm_table(50)).inputs(fitted.names)
    np.testing.assert_array_equal(jax.vmap(large)(measured), jax.vmap(large.whole)(measured))


def test_the_correction_is_bounded_and_dies_far_outside(fitted: FittedFamily) -> None:
    huge = {"m": np.full(4, 2.0**24), "n": np.full(4, 2.0**24), "k": np.full(4, 2.0**24), "batch": np.ones(4)}
    x = prepare(blank_table("gemm", huge, np.full(4, "h100-sxm", dtype=object))).inputs(fitted.names)
    assert float(jnp.max(jnp.abs(jax.vmap(fitted.model.correction)(x)))) < 0.05
    inside = prepare(gemm_table(200)).inputs(fitted.names)
    assert float(jnp.max(jnp.abs(jax.vmap(fitted.model.correction)(inside)))) <= BOUND


def test_heads_of_unknown_names_are_zero(fitted: FittedFamily) -> None:
    for head in (*fitted.model.correction.heads.values(), *fitted.model.law.offsets.values()):
        np.testing.assert_array_equal(head[-1], 0.0)


def test_intervals_cover_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of measured cells by the shapes held out; what the folds over generations give is taken over."""
    spread = Spread(formats={"fp8": (0.4, 1.0)}, transfer=(0.3, 0.9))
    unseen = Transfer(0.25, spread, [{"split": "unseen generation"}])
    monkeypatch.setattr(calibration.kernels.calibrate, "transfer", lambda *_: unseen)
    generator = np.random.default_rng(3)
    table = gemm_table(2000)
    noisy = with_latency(table, table.latency * np.exp(0.05 * generator.standard_normal(2000)))
    calibrated = calibrate_family(prepare(noisy), QUICK, lambda _: None)
    family = calibrated.family
    assert float(family.model.correction.share) == 0.25
    assert (family.spread.transfer, family.spread.formats) == (spread.transfer, spread.formats)
    assert [row["split"] for row in calibrated.card_rows] == ["unseen generation"] + ["unseen shapes"] * 3
    fresh = gemm_table(1000, seed=5)
    fresh = prepare(with_latency(fresh, fresh.latency * np.exp(0.05 * generator.standard_normal(1000))))
    width = family.spread.half_width(fresh.spelled, np.full(1000, True), np.zeros(1000))
    inside = np.abs(log_times(family, fresh) - np.log(fresh.table.latency)) <= width
    assert 0.82 < inside.mean() < 0.97


def test_every_family_has_finite_demands_on_every_kind_of_device() -> None:
    heads = {"heads": 8, "kv_heads": 2, "head_dim": 128, "window": 0}
    rows = {"rows": 64, "columns": 4096}
    image = {"input_channels": 64, "output_channels": 64, "input_size": 56, "kernel_size": 3, "stride": 1, "padding": 1}
    sizes = {
        "gemm": {"m": 64, "n": 512, "k": 512, "batch": 1},
        "bmm": {"m": 64, "n": 64, "k": 64, "batch": 8},
        "attention_prefill": {"batch": 2, "q_len": 512, "prefix": 0, **heads},
        "attention_decode": {"batch": 4, "kv_len": 900, **heads},
        "attention_mixed": {"prefill_q": 64, "prefill_kv": 0, "n_decode": 3, "kv_decode": 900, **heads},
        "mla_prefill": {"heads": 16, "batch": 2, "q_len": 256, "kv_len": 256},
        "mla_decode": {"heads": 16, "batch": 2, "q_len": 1, "kv_len": 2048},
        "mla_pre": {"heads": 16, "batch": 8, "q_len": 1, "kv_len": 0},
        "mla_post": {"heads": 16, "batch": 8, "q_len": 1, "kv_len": 0},
        "moe": {"tokens": 64, "hidden": 1024, "inter": 512, "topk": 2, "experts": 8, "tp": 1, "ep": 2},
        "quantize": {"m": 64, "k": 4096},
        **dict.fromkeys(("norm", "softmax", "embedding"), rows),
        **dict.fromkeys(("elementwise", "rope"), {"elements_in": 8192, "elements_out": 4096, "rows": 4}),
        "convolution": {"batch": 8, **image},
    }
    assert set(sizes) == set(POINTS)
    for family, shape in sizes.items():
        devices = np.array(["h100-sxm", "v100-pcie-32gb", "mi300x"], dtype=object)
        table = blank_table(family, {name: np.full(3, float(value)) for name, value in shape.items()}, devices)
        ready = prepare(table)
        assert ready.usable.all(), family
        assert (ready.roofline > 0).all(), family


def test_a_gemm_demands_its_flops_and_bytes() -> None:
    table = blank_table(
        "gemm", {"m": [256.0], "n": [1024.0], "k": [512.0], "batch": [1.0]}, np.array(["h100-sxm"], object)
    )
    found = demand(table, load_hardware(["h100-sxm"]), np.zeros(1, int))
    assert found.flops[0] == 2 * 256 * 1024 * 512
    assert found.moved[0] == 2 * (256 * 512 + 1024 * 512 + 256 * 1024)


def test_a_batch_of_a_gemm_is_more_rows_and_of_a_bmm_more_matrices() -> None:
    def moved(family: str, m: float, batch: float) -> float:
        shape = {"m": [m], "n": [512.0], "k": [256.0], "batch": [batch]}
        table = blank_table(family, shape, np.array(["h100-sxm"], object))
        return float(demand(table, load_hardware(["h100-sxm"]), np.zeros(1, int)).moved[0])

    assert moved("gemm", 64, 4) == moved("gemm", 256, 1) == 2 * (256 * 256 + 512 * 256 + 256 * 512)
    assert moved("bmm", 64, 4) == 4 * moved("bmm", 64, 1) == 4 * 2 * (64 * 256 + 512 * 256 + 64 * 512)


def test_samples_take_at_most_so_many_of_each_cell_and_weigh_them_alike() -> None:
    cells = np.array(["a"] * 100 + ["b"] * 4, dtype=object)
    taken = sample(cells, 10, seed=0)
    assert sorted(cells[taken]) == ["a"] * 10 + ["b"] * 4
    assert (np.diff(taken) > 0).all()
    weights = np.asarray(cell_weights(cells))
    np.testing.assert_allclose([weights[0], weights[-1]], [0.1, 0.5], rtol=1e-6)


def test_held_shapes_are_the_same_on_every_device() -> None:
    one, other = gemm_table(300, devices=("h100-sxm",)), gemm_table(300, devices=("l40s",))
    np.testing.assert_array_equal(held_shapes(one), held_shapes(other))
    assert 0 < held_shapes(one).mean() < 0.3


def test_a_fit_holds_out_no_shape_where_no_other_would_remain(data: Prepared) -> None:
    held = held_shapes(data.table)
    np.testing.assert_array_equal(held_of_fit(data.table), held)
    assert not held_of_fit(data.table.take(np.flatnonzero(held))).any()


def test_a_fit_to_no_row_is_one_sentence(data: Prepared) -> None:
    with pytest.raises(InputError, match="gemm: no row to fit: it takes rows with a known device and a latency"):
        fit(data.take(np.flatnonzero(np.zeros(len(data.table)))), QUICK)


@pytest.mark.parametrize("salt", [0, 1])
@pytest.mark.parametrize("name", ["rows", "columns"])
def test_a_tenth_of_every_size_is_held_out(name: str, salt: int) -> None:
    """A hash that leaves out the bits of one column holds out all shapes of some sizes and none of others."""
    sizes = np.array(np.meshgrid(np.arange(1.0, 301.0), 64.0 * np.arange(1.0, 301.0))).reshape(2, -1)
    shape = dict(zip(("rows", "columns"), sizes, strict=True))
    held = held_shapes(blank_table("norm", shape, np.full(sizes.shape[1], "h100-sxm", dtype=object)), salt)
    shares = [held[shape[name] == size].mean() for size in np.unique(shape[name])]
    assert 0.02 < min(shares) and max(shares) < 0.2
    assert held.mean() == pytest.approx(0.1, abs=0.005)


GENERATIONS = {
    "h100-sxm": "hopper",
    "h20": "hopper",
    "a40": "ampere",
    "a100-sxm-80gb": "ampere",
    "l4": "ada",
    "t4": "turing",
    "mi210": "cdna",
    "p4": "pascal",
}


@pytest.mark.parametrize(("device", "name"), GENERATIONS.items())
def test_generations_group_dies_of_one_family(device: str, name: str) -> None:
    assert generation(device) == name
