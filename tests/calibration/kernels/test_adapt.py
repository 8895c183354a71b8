"""A few rows of a device move its predictions, narrow its intervals, and leave all other rows as they were."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

from calibration.intervals import Spread
from calibration.kernels import gaussian_process, local
from calibration.kernels.adapt import adapt, adapt_family
from calibration.kernels.family import FittedFamily
from calibration.kernels.fit import Settings, counts, new_correction, new_law
from calibration.kernels.gaussian_process import LAYER, Places, prior
from calibration.kernels.inputs import Prepared, prepare
from calibration.kernels.levels import NO_NAMES
from calibration.kernels.local import BESIDE, DRAWN, LEARNED_ON, VIEW, learning_sets, left_out, placed, stated
from calibration.kernels.model import KernelModel
from calibration.kernels.neighbours import NEAREST
from calibration.kernels.parameters import Parameters, load_parameters, save_parameters
from calibration.kernels.predict import predict_table
from calibration.kernels.priors import priors_of
from calibration.stored import save_arrays
from hwspecs.errors import InputError
from jaxperf.core.parameter_files import load_arrays
from tests.calibration.tables import as_read, blank_table, gemm_table, with_latency

NAME = "mi300x"
SPREAD = Spread(measured=(0.02, 0.06), transfer=(0.3, 0.8))


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what does not depend on how well the rows are learned."""
    monkeypatch.setattr(gaussian_process, "STEPS", 20)


quick = pytest.mark.usefixtures("few_steps")


@pytest.fixture(scope="module")
def fitted() -> FittedFamily:
    """The law at its priors, of a family with three devices."""
    data = prepare(gemm_table(100))
    names = NO_NAMES.extended(data.spelled)
    priors = priors_of("gemm").scalars
    law = new_law({name: mean for name, (mean, _) in priors.items()}, counts(names), data.habits.shape[1])
    model = KernelModel(law, new_correction(data.features, counts(names), Settings(widths=(4,))))
    return FittedFamily("gemm", data.names, names, model, SPREAD)


@pytest.fixture(scope="module")
def slow() -> Prepared:
    """Four times the roofline and a launch, with a scatter of three percent."""
    table = gemm_table(120, devices=(NAME,), slow=2.6)
    scatter = np.exp(0.03 * np.random.default_rng(4).standard_normal(120))
    return prepare(with_latency(table, 1.5 * table.measured * scatter))


@pytest.fixture(scope="module")
def adapted(fitted: FittedFamily, slow: Prepared) -> FittedFamily:
    return adapt_family(fitted, slow.take(np.arange(30)))


def errors(fitted: FittedFamily, data: Prepared) -> np.ndarray:
    return np.abs(np.expm1(stated(fitted, data)[0] - np.log(data.table.measured)))


def named(data: Prepared, **text: str) -> Prepared:
    """The same kernels in other software."""
    columns = {name: np.full(len(data.table), value, dtype=object) for name, value in text.items()}
    return prepare(dataclasses.replace(data.table, **columns))


def test_few_rows_move_and_narrow(fitted: FittedFamily, adapted: FittedFamily, slow: Prepared) -> None:
    rest = slow.take(np.arange(30, 120))
    assert np.median(errors(adapted, rest)) < 0.06 < 0.5 * np.median(errors(fitted, rest))
    log_time, width = stated(adapted, rest)
    inside = np.abs(log_time - np.log(rest.table.measured)) <= width
    assert 0.8 < inside.mean() < 0.99
    assert np.median(width) < 0.3 * np.median(stated(fitted, rest)[1])


def test_a_few_spoiled_rows_are_hardly_followed(fitted: FittedFamily, slow: Prepared) -> None:
    """Two of thirty kernels take five times as long, and no feature tells which."""
    few, rest = slow.take(np.arange(30)), slow.take(np.arange(30, 120))
    spoiled = few.table.measured * np.where(np.arange(30) % 15 == 0, 5.0, 1.0)
    moved = adapt_family(fitted, prepare(with_latency(few.table, spoiled)))
    assert np.median(errors(moved, rest)) < 0.1
    assert errors(moved, rest).mean() < 0.15


def test_what_is_left_out_is_as_far_off_as_shapes_never_measured(
    fitted: FittedFamily, adapted: FittedFamily, slow: Prepared
) -> None:
    told = np.median(np.abs(np.expm1(left_out(adapted, NAME))))
    assert np.median(errors(adapted, slow.take(np.arange(30)))) < told
    assert told == pytest.approx(np.median(errors(adapted, slow.take(np.arange(30, 120)))), rel=0.5)
    alone = slow.take(np.arange(1))  # nothing is left that helps
    (error,) = left_out(adapt_family(fitted, alone), NAME)
    assert error == pytest.approx(np.log(alone.table.measured[0]) - stated(fitted, alone)[0][0], rel=1e-5)


def test_other_devices_are_left_as_they_were(fitted: FittedFamily, adapted: FittedFamily) -> None:
    others = prepare(gemm_table(50))
    for before, after in zip(stated(fitted, others), stated(adapted, others), strict=True):
        np.testing.assert_array_equal(before, after)


def test_a_device_of_another_kind_is_followed_however_far(fitted: FittedFamily) -> None:
    """Thirty times the law is far beyond what the bounded correction of the fit can say (e^2)."""
    table = gemm_table(120, devices=("tpu-v6e",))
    law = jax.vmap(fitted.model.law)(prepare(table).inputs(fitted.names))
    slow = prepare(with_latency(table, 30.0 * np.exp(np.asarray(law))))
    few, rest = slow.take(np.arange(30)), slow.take(np.arange(30, 120))
    assert np.median(errors(fitted, rest)) > 0.9
    assert np.median(errors(adapt_family(fitted, few), rest)) < 0.05


def test_other_software_is_moved_only_where_a_library_names_it(adapted: FittedFamily, slow: Prepared) -> None:
    other = named(slow.take(np.arange(30, 60)), kernel="ampere_sgemm_128x64")
    start = stated(dataclasses.replace(adapted, local={}), other)[0]
    np.testing.assert_array_equal(stated(adapted, other)[0], start)
    chosen = dataclasses.replace(adapted, family="gemm_vector")
    near, narrow = stated(adapted, slow.take(np.arange(30, 60)))
    log_time, width = stated(chosen, other)
    assert 0.1 < np.median((log_time - start) / (near - start)) < 0.98
    assert np.median(width) > 1.5 * np.median(narrow)


@quick
def test_a_measured_cell_is_moved_by_its_own_rows_alone(fitted: FittedFamily) -> None:
    """A new framework on a measured device says nothing of what was measured there."""
    old = prepare(gemm_table(30, devices=("h100-sxm",), seed=5))
    new = named(old, framework="new")
    new = prepare(with_latency(new.table, 2.0 * new.table.measured))
    moved = adapt_family(fitted, new)
    np.testing.assert_array_equal(stated(fitted, old)[0], stated(moved, old)[0])
    assert np.median(errors(moved, new)) < 0.05 < np.median(errors(fitted, new))


@quick
def test_rows_of_a_second_table_replace_those_of_their_cell(adapted: FittedFamily, slow: Prepared) -> None:
    faster = prepare(with_latency(slow.table, 0.5 * slow.table.measured)).take(np.arange(30, 50))
    other = named(slow.take(np.arange(50, 80)), framework="sglang")
    both = adapt_family(adapt_family(adapted, other), faster)
    rows = both.local[NAME].places.names
    assert len(rows) == 50 and len(both.local[NAME].names.known["cell"]) == 2
    assert np.median(errors(both, faster)) < 0.06
    assert np.median(errors(both, other)) < 0.06


def test_files_of_an_earlier_adaptation_say_what_to_do(adapted: FittedFamily, tmp_path: Path) -> None:
    (device, local), *_ = adapted.local.items()
    features = np.asarray(local.places.features)[:, :-VIEW]
    older = dataclasses.replace(
        local, places=Places(features, local.places.names), covariance=prior(features.shape[1], 1.0)
    )
    save_parameters(Parameters({"gemm": dataclasses.replace(adapted, local={device: older})}, {}), tmp_path / "p")
    with pytest.raises(InputError, match=rf"p\.json' were adapted to {device} by an earlier jaxperf.*--adapt"):
        load_parameters(tmp_path / "p")


def test_an_adaptation_that_knew_no_layers_says_what_it_said(
    adapted: FittedFamily, slow: Prepared, tmp_path: Path
) -> None:
    save_parameters(Parameters({"gemm": adapted}, {}), tmp_path / "p")
    tensors, card = load_arrays(tmp_path / "p", "kernels", 2, "")
    place = f"gemm/{NAME}"
    for name in ("layers", "scatter", "slope"):
        del tensors[f"{place}/covariance.{name}"]
    for name in ("constant", "smooth"):
        tensors[f"{place}/covariance.{name}"] = tensors[f"{place}/covariance.{name}"][:LAYER]
    tensors[f"{place}/places.names"] = tensors[f"{place}/places.names"][:, :LAYER]
    save_arrays(tmp_path / "p", tensors, card, 2)
    local, rest = load_parameters(tmp_path / "p").families["gemm"].local[NAME], slow.take(np.arange(30, 60))
    places = placed(adapted, local.names, rest)
    mean, deviation = local.process.predicted(places)
    own, cross = (np.array(local.covariance(each, local.places)) for each in (local.places, places))
    own += np.diag(local.covariance.noise_variance(local.places))
    np.testing.assert_allclose(mean, cross @ np.linalg.solve(own, local.residual), atol=1e-4)
    assert (deviation > 0.0).all() and np.median(errors(dataclasses.replace(adapted, local={NAME: local}), rest)) < 0.1


def test_an_adaptation_that_knew_no_slope_scatters_alike(adapted: FittedFamily, tmp_path: Path) -> None:
    own = adapted.local[NAME]
    features = own.places.features.shape[1]
    many = dataclasses.replace(own, covariance=prior(features, 0.1, stacks=1))
    save_parameters(Parameters({"gemm": dataclasses.replace(adapted, local={NAME: many})}, {}), tmp_path / "p")
    tensors, card = load_arrays(tmp_path / "p", "kernels", 2, "")
    del tensors[f"gemm/{NAME}/covariance.slope"]
    save_arrays(tmp_path / "p", tensors, card, 2)
    found = load_parameters(tmp_path / "p").families["gemm"].local[NAME].covariance
    np.testing.assert_array_equal(found.slope, np.zeros(features))


def test_no_row_adapts_nothing(fitted: FittedFamily) -> None:
    assert adapt_family(fitted, prepare(gemm_table(10)).take(np.arange(0))) is fitted


@quick
def test_one_row_is_enough_to_move(fitted: FittedFamily, slow: Prepared) -> None:
    once = adapt_family(fitted, slow.take(np.arange(1)))
    log_time, width = stated(once, slow)
    assert np.isfinite(log_time).all() and (width > 0.0).all()
    assert np.median(errors(once, slow)) < np.median(errors(fitted, slow))


def test_many_rows_are_learned_on_in_sets_drawn_and_side_by_side(fitted: FittedFamily) -> None:
    data = prepare(gemm_table(2 * LEARNED_ON, devices=(NAME,)))
    places = placed(fitted, NO_NAMES.extended(data.spelled), data)
    start = prior(places.features.shape[1], 0.1)
    few, many = (learning_sets(start, places[:rows]) for rows in (LEARNED_ON, 2 * LEARNED_ON))
    assert [len(each) for each in few] == [LEARNED_ON]
    assert [len(each) for each in many] == [NEAREST] * (DRAWN + BESIDE)
    spread = [np.asarray(places.features)[each].std(axis=0).mean() for each in many]
    assert max(spread[DRAWN:]) < min(spread[:DRAWN])


@quick
def test_intervals_of_many_rows_hold_what_scatters_widely(fitted: FittedFamily) -> None:
    """Neighbours that were moved towards the row that judges them would tell 75 to 80 % of rows for 90."""
    table = gemm_table(1200, devices=(NAME,), slow=2.6)
    scatter = np.exp(0.03 * np.random.default_rng(4).standard_t(3.0, 1200))
    data = prepare(with_latency(table, 1.5 * table.measured * scatter))
    rest = data.take(np.arange(400, 1200))
    log_time, width = stated(adapt_family(fitted, data.take(np.arange(400))), rest)
    assert 0.86 < np.mean(np.abs(log_time - np.log(rest.table.measured)) <= width) < 0.95


@quick
def test_every_row_is_kept_and_answered(fitted: FittedFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than are learned on together; of few sets, each of which takes its time."""
    monkeypatch.setattr(local, "DRAWN", 2)
    monkeypatch.setattr(local, "BESIDE", 4)
    data = prepare(gemm_table(2 * LEARNED_ON + 8, devices=(NAME,)))
    many = adapt_family(fitted, data)
    assert len(many.local[NAME].residual) == 2 * LEARNED_ON + 8
    assert np.median(errors(many, data)) < 0.01


@quick
def test_the_command_says_what_it_adapted_and_survives_the_disk(
    fitted: FittedFamily, slow: Prepared, tmp_path: Path
) -> None:
    table = slow.take(np.arange(30)).table
    parameters = adapt(Parameters({"gemm": fitted}, {}), [as_read(table)])
    save_parameters(parameters, tmp_path / "p")
    again = load_parameters(tmp_path / "p")
    wanted = dataclasses.replace(slow.take(np.arange(30, 60)).table, latency=None)
    first, second = predict_table(wanted, parameters), predict_table(wanted, again)
    for name, column in first.items():
        np.testing.assert_array_equal(column, second[name])
    log_time, width = stated(parameters.families["gemm"], slow.take(np.arange(30, 60)))
    np.testing.assert_allclose(first["predicted_us"], 1e6 * np.exp(log_time), rtol=1e-5)
    np.testing.assert_allclose(np.log(first["upper_us"] / first["predicted_us"]), width, rtol=1e-5)
    assert set(first["tier"]) == {"adapted"}
    assert not any("never measured" in reason for reason in first["reason"])
    assert parameters.card["adapted"]["gemm"] == list(parameters.families["gemm"].local[NAME].names.known["cell"])


@quick
@pytest.mark.parametrize("latency", [np.nan, -1.0, 0.0, np.inf])
def test_a_row_without_a_time_adapts_nothing(fitted: FittedFamily, slow: Prepared, latency: float) -> None:
    """Other software of the device, of which nothing was measured, is not called adapted."""
    few = slow.take(np.arange(4)).table
    kernel = np.array(["linear"] * 2 + ["other"] * 2, dtype=object)
    table = dataclasses.replace(few, kernel=kernel, latency=np.r_[few.measured[:2], latency, latency])
    parameters = adapt(Parameters({"gemm": fitted}, {}), [as_read(table)])
    assert parameters.card["adapted"]["gemm"] == [f"{NAME}/vllm/1.0/linear/bf16//"]
    nothing = adapt(Parameters({"gemm": fitted}, {}), [as_read(table.take(np.arange(2, 4)))])
    assert nothing.families["gemm"] is fitted and nothing.card["adapted"] == {}


@pytest.mark.parametrize(
    ("array", "wrong", "said"),
    [
        ("residual", None, "'gemm/mi300x/residual'"),
        ("residual", np.full(30, np.nan), "residual holds values that are no finite numbers"),
        ("residual", np.zeros((30, 1)), r"residual has shape \(30, 1\), not \(30,\)"),
        ("covariance.noise", np.array(np.inf), "noise holds values that are no finite numbers"),
        ("places.features", np.zeros((29, 2)), "features has shape"),
    ],
)
def test_a_wrong_array_of_an_adapted_device_is_told(
    adapted: FittedFamily, tmp_path: Path, array: str, wrong: np.ndarray | None, said: str
) -> None:
    save_parameters(Parameters({"gemm": adapted}, {}), tmp_path / "p")
    tensors, card = load_arrays(tmp_path / "p", "kernels", 2, "")
    place = f"gemm/{NAME}/{array}"
    del tensors[place]
    save_arrays(tmp_path / "p", tensors if wrong is None else tensors | {place: wrong}, card, 2)
    with pytest.raises(InputError, match=f"damaged .*{said}"):
        load_parameters(tmp_path / "p")


@quick
def test_batches_on_matrix_units_are_read_from_single_products_until_some_are_measured(
    fitted: FittedFamily, tmp_path: Path
) -> None:
    """The shipped names of vLLM's GEMMs on an H100 are measured; a batch of them is not, and is told so."""
    sizes = {"m": 512.0, "n": 4096.0, "k": 128.0, "batch": 32.0}
    shape = {
        name: np.full(12, value) * 2.0 ** (np.arange(12) % 3 if name == "m" else 0) for name, value in sizes.items()
    }
    table = blank_table("bmm", shape, np.full(12, "h100-sxm", dtype=object))
    parameters = Parameters(
        {"gemm": adapt_family(fitted, prepare(gemm_table(30, devices=("h100-sxm",), slow=4.0)))}, {}
    )
    found = predict_table(table, parameters)
    assert set(found["tier"]) == {"transfer"}
    assert all(each.startswith("bmm_matrix never measured: predicted as gemm") for each in found["reason"])
    law = jax.vmap(fitted.model.law)(prepare(table).inputs(fitted.names))
    np.testing.assert_allclose(found["predicted_us"], 1e6 * np.exp(law), rtol=1e-5)
    assert np.log(found["upper_us"] / found["predicted_us"]).min() >= SPREAD.transfer[1] - 1e-6

    measured = with_latency(table, 3e-6 * found["predicted_us"])
    own = adapt(parameters, [as_read(measured)])
    assert set(own.families) == {"gemm", "bmm_matrix"} and own.families["gemm"] is parameters.families["gemm"]
    save_parameters(own, tmp_path / "own")
    own = load_parameters(tmp_path / "own")
    again = predict_table(table, own)
    assert set(again["tier"]) == {"adapted"}
    np.testing.assert_allclose(again["predicted_us"], 3.0 * found["predicted_us"], rtol=0.1)


@quick
def test_rows_that_state_no_format_are_adapted_to_and_leave_others_alone(fitted: FittedFamily, slow: Prepared) -> None:
    """Whoever measures for himself may leave the column out: his rows are adapted, whether the format is stated then or
    not; of other devices a row without it is one of the assumed format, as before."""
    few = slow.take(np.arange(30)).table
    silent = dataclasses.replace(few, dtype=np.full(30, "", object))
    elsewhere = dataclasses.replace(silent, device=np.full(30, "h100-sxm", object))
    shipped = Parameters({"gemm": fitted}, {})
    mine = adapt(shipped, [as_read(silent)])
    own, stated, others = (predict_table(each, mine) for each in (silent, few, elsewhere))
    assert set(own["tier"]) == set(stated["tier"]) == {"adapted"}
    np.testing.assert_array_equal(own["predicted_us"], stated["predicted_us"])
    assert np.median(np.abs(1e-6 * own["predicted_us"] / few.measured - 1)) < 0.1
    before = predict_table(elsewhere, shipped)
    assert all((others[name] == before[name]).all() for name in ("predicted_us", "upper_us", "tier"))
