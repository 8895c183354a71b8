"""Rows of a device are near each other where the model says the same of them, and where one kernel ran."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration.intervals import Spread
from calibration.kernels import local
from calibration.kernels.beliefs import EXPERTS, USUAL
from calibration.kernels.blocks import BLOCK
from calibration.kernels.family import FittedFamily
from calibration.kernels.fit import Settings, counts, new_correction, new_law
from calibration.kernels.gaussian_process import LAYER, Places, prior
from calibration.kernels.inputs import prepare
from calibration.kernels.levels import NO_NAMES
from calibration.kernels.local import (
    SAME,
    TIME_SCALE,
    VIEW,
    VIEW_SCALE,
    _robust,
    apart,
    kernel_of,
    learn,
    placed,
    views,
)
from calibration.kernels.model import KernelModel
from calibration.kernels.priors import priors_of
from tests.calibration.tables import blank_table, gemm_table

STEP = 1e-5


@pytest.fixture(scope="module")
def fitted() -> FittedFamily:
    """The law at its priors with a correction that is a constant, which no device gets."""
    data = prepare(gemm_table(50))
    names = NO_NAMES.extended(data.spelled)
    means = {name: mean for name, (mean, _) in priors_of("gemm").scalars.items()}
    correction = new_correction(data.features, counts(names), Settings(widths=(4,)))
    constant = (jnp.zeros_like(correction.shared).at[-1].set(0.3), jnp.asarray(0.0))
    correction = eqx.tree_at(lambda tree: (tree.shared, tree.share), correction, constant)
    model = KernelModel(new_law(means, counts(names), data.habits.shape[1]), correction)
    return FittedFamily("gemm", data.names, names, model, Spread())


def test_a_view_is_the_time_what_it_goes_with_and_the_unused_correction(fitted: FittedFamily) -> None:
    data = prepare(gemm_table(BLOCK + 3, devices=("mi300x",), seed=1))
    x, law = data.inputs(fitted.names), fitted.model.law
    seen = views(fitted, data)
    assert seen.shape == (BLOCK + 3, VIEW)
    np.testing.assert_allclose(TIME_SCALE * seen[:, 0], jax.vmap(law)(x), rtol=1e-6)
    for place, name in enumerate(("compute", "memory", "floor"), start=1):
        either = [dataclasses.replace(law, **{name: getattr(law, name) + step}) for step in (STEP, -STEP)]
        above, below = (np.asarray(jax.vmap(each)(x)) for each in either)
        np.testing.assert_allclose(VIEW_SCALE * seen[:, place], (above - below) / (2.0 * STEP), atol=1e-6)
    assert VIEW_SCALE * seen[:, -1].max() == pytest.approx(2.0 * np.tanh(0.15), rel=1e-6)
    assert not np.asarray(jax.vmap(fitted.model.correction)(x)).any()


def test_a_row_without_demands_lies_somewhere(fitted: FittedFamily) -> None:
    size = np.array([256.0, np.nan])
    data = prepare(blank_table("gemm", dict.fromkeys(("m", "n", "k", "batch"), size), np.array(["mi300x"] * 2)))
    assert data.usable.tolist() == [True, False]
    assert np.isfinite(placed(fitted, NO_NAMES.extended(data.spelled), data).features).all()


def test_a_kernel_is_one_in_every_version_and_format(fitted: FittedFamily) -> None:
    table = gemm_table(4, devices=("mi300x",))
    data = prepare(
        dataclasses.replace(
            table,
            version=np.array(["1.0", "2.0", "2.0", "2.0"], dtype=object),
            dtype=np.array(["bf16", "fp8", "bf16", "bf16"], dtype=object),
            kernel=np.array(["flow/matmul/0", "flow/matmul/0", "flow/other", "flow/matmul/0"], dtype=object),
        )
    )
    index = placed(fitted, NO_NAMES.extended(data.spelled), data).names
    assert index[0, SAME.index("kernel")] == index[1, SAME.index("kernel")] == index[3, SAME.index("kernel")]
    assert index[0, SAME.index("kernel")] != index[2, SAME.index("kernel")]
    assert len(set(index[:, SAME.index("stack")].tolist())) == 4
    assert kernel_of("vllm/1.0/flow/matmul/0/bf16//") == "vllm/flow/matmul/0"


def test_of_many_rows_those_far_off_hardly_count() -> None:
    off, spread = np.array([0.0, 0.1, -0.2, 1.0, -10.0]), np.full(5, 0.1)
    few, many = (local._believed(off, spread, many=which) for which in (False, True))
    np.testing.assert_allclose(few, [0.0, 0.1, -0.2, 0.2, -0.2])
    np.testing.assert_allclose(many, [0.0, 0.1, -0.2 * 4.0 / 7.0, 4.0 / 103.0, -40.0 / 10003.0])  # (3 + 1) / (3 + t^2)


def test_names_added_later_leave_the_index_of_a_kernel(fitted: FittedFamily) -> None:
    data = prepare(gemm_table(4, devices=("mi300x",)))
    newer = prepare(dataclasses.replace(data.table, version=np.array(["2.0"] * 4, dtype=object)))
    names = NO_NAMES.extended(data.spelled)
    before, after = placed(fitted, names, data).names, placed(fitted, names.extended(newer.spelled), newer).names
    kernel = SAME.index("kernel")
    np.testing.assert_array_equal(before[:, kernel], after[:, kernel])
    assert (before[:, -1] != after[:, -1]).all()


def test_a_layer_is_what_a_model_has_and_how_its_tokens_are_routed(fitted: FittedFamily) -> None:
    """Not how many rows are asked of it; and each stack has its own."""
    sizes = {"m": [1.0, 64.0, 64.0, 64.0, 64.0], "n": [512.0, 512.0, 640.0, 512.0, 512.0]}
    shape = {name: np.array(column) for name, column in sizes.items()} | {"k": np.full(5, 256.0), "batch": np.ones(5)}
    table = blank_table("gemm", shape, np.full(5, "mi300x", dtype=object))
    routed = np.array(["even", "even", "even", "skewed", "even"], dtype=object)
    version = np.array(["1.0"] * 4 + ["2.0"], dtype=object)
    data = prepare(dataclasses.replace(table, version=version, text={"distribution": routed}))
    layer = placed(fitted, NO_NAMES.extended(data.spelled), data).names[:, LAYER]
    assert layer[0] == layer[1] and len(set(layer.tolist())) == 4
    again = placed(fitted, NO_NAMES.extended(data.spelled), data.take(np.array([3, 0]))).names[:, LAYER]
    assert again.tolist() == [layer[3], layer[0]]


def test_what_counts_as_far_apart_is_the_familys(fitted: FittedFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any row is learned from, a length is half as long in a coordinate that counts twice."""
    monkeypatch.setattr(local, "learned", lambda start, *_: start)
    data = prepare(gemm_table(3, devices=("mi300x",)))
    usual, experts = (
        np.asarray(learn(each, data, np.zeros(3), 0.1).process.covariance.lengths)
        for each in (fitted, dataclasses.replace(fitted, family="moe"))
    )
    ratio = dict(zip((*fitted.features, "time", "compute", "memory"), np.exp(usual - experts), strict=False))
    shared = {name: ratio[name] for name in EXPERTS.apart if name in ratio}
    assert shared == pytest.approx({name: EXPERTS.apart[name] for name in shared}, rel=1e-5)
    assert len(shared) == 4
    assert [ratio[name] for name in ("time", "compute", "log2 k")] == pytest.approx([1.0, 1.0, 1.0], rel=1e-5)


def test_of_experts_every_coordinate_that_is_weighed_is_one(fitted: FittedFamily) -> None:
    sizes = {"tokens": 64, "hidden": 4096, "inter": 1536, "topk": 8, "experts": 128, "tp": 1, "ep": 1}
    table = blank_table("moe", {name: np.full(1, size) for name, size in sizes.items()}, np.array(["mi300x"], object))
    weights = apart(dataclasses.replace(fitted, features=prepare(table).names), EXPERTS)
    assert sorted(weights[weights != 1.0]) == sorted(EXPERTS.apart.values())


def test_untuned_rows_are_told_apart_before_anything_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows of ten take three times as long as the others, which repeat."""
    monkeypatch.setattr(local, "learned", lambda start, *_: start)
    features = np.linspace(-3.0, 3.0, 30).reshape(10, 3)
    places = Places(features, np.zeros((10, len(SAME)), int))
    residual = np.where(np.arange(10) % 4 == 1, np.log(3.0), 0.0)
    usual, experts = (
        _robust(places, residual, prior(3, 0.01), each).predicted(places)[0].mean() for each in (USUAL, EXPERTS)
    )
    assert 0.0 < experts < 0.7 * usual
