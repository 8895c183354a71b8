import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Float

from hwspecs.errors import InputError
from jaxperf.core.numerics import ceil_div
from jaxperf.sweeps import Axis, Sweep, axis, blocks, zip_axes

pytestmark = pytest.mark.usefixtures("ways")


class Machine(eqx.Module):
    cores: Float[Array, "*batch"]
    rate: Float[Array, "*batch"]


MACHINES = [(108, 1.5e12), (132, 2.0e12), (304, 2.5e12), (64, 0.7e12)]
TOLERANCE = 1e-12 if jax.config.jax_enable_x64 else 1e-5


def machine_axis(count: int) -> Axis:
    machines = [Machine(jnp.asarray(float(cores)), jnp.asarray(rate)) for cores, rate in MACHINES[:count]]
    return axis("machine", machines, [f"machine-{position}" for position in range(count)])


def step(machine: Machine, batch: Array, length: Array, tile: Array) -> dict[str, Array]:
    """A wave-quantized time: exact ceilings, a count, a boolean and a metric that uses only some axes."""
    tiles = ceil_div(batch, tile) * ceil_div(length, tile)
    waves = ceil_div(tiles, machine.cores)
    time = waves * machine.cores * tile * tile * 2.0 / machine.rate
    return {
        "time": jnp.where(waves > 50.0, jnp.asarray(jnp.nan, time.dtype), time),
        "waves": waves,
        "count": {"tiles": tiles.astype(jnp.int32), "many": tiles > machine.cores},
        "area": tile * tile,
    }


def python_step(machine: int, batch: int, length: int, tile: int) -> dict[str, float]:
    """`step` with Python's exact integers."""
    cores, rate = MACHINES[machine]
    tiles = -(-batch // tile) * -(-length // tile)
    waves = -(-tiles // cores)
    time = waves * cores * tile * tile * 2.0 / rate
    return {
        "time": math.nan if waves > 50 else time,
        "waves": waves,
        "count.tiles": tiles,
        "count.many": tiles > cores,
        "area": tile * tile,
    }


def assert_same(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Counts bit for bit, times to the precision of the format; NaN in the same places."""
    if ours.dtype.kind in "biu":
        np.testing.assert_array_equal(ours, theirs)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE, atol=0.0)


def step_axes(machines: int, batches: list[int], lengths: list[int], tiles: list[int]) -> list[Axis]:
    return [machine_axis(machines), axis("batch", batches), axis("length", lengths), axis("tile", tiles)]


BATCHES = [1, 64, 128, 129, 1000]
LENGTHS = [128, 384, 8192, 100_000]
TILES = [32, 64, 128]


def expected(machines, batches, lengths, tiles):
    points = itertools.product(range(machines), batches, lengths, tiles)
    rows = [python_step(*point) for point in points]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 4),
    st.lists(st.integers(1, 4096), min_size=1, max_size=5, unique=True),
    st.lists(st.integers(1, 60_000), min_size=1, max_size=4, unique=True),
    st.lists(st.sampled_from([16, 32, 48, 64, 128]), min_size=1, max_size=3, unique=True),
    st.integers(1, 400),
)
def test_sweep_equals_a_python_loop(machines, batches, lengths, tiles, points_per_block):
    sweep = Sweep(step, step_axes(machines, batches, lengths, tiles), points_per_block=points_per_block)
    result = sweep.dense()
    for name, values in expected(machines, batches, lengths, tiles).items():
        assert_same(result[name].reshape(-1), values.astype(result[name].dtype))


def test_scalar_call_vmap_and_columns_agree_with_the_grid():
    sweep = Sweep(step, step_axes(4, BATCHES, LENGTHS, TILES))
    grid = {name: values.reshape(-1) for name, values in sweep.dense().metrics.items()}
    points = list(itertools.product(range(4), BATCHES, LENGTHS, TILES))
    columns = [jnp.asarray(np.array(column, float)) for column in zip(*points, strict=True)]
    machines = machine_axis(4).arguments["machine"]
    rows = jax.tree.map(lambda leaf: jnp.asarray(leaf)[np.array([point[0] for point in points])], machines)
    dense = jax.jit(jax.vmap(step))(rows, *columns[1:])
    for path, name in ((("time",), "time"), (("waves",), "waves"), (("count", "tiles"), "count.tiles")):
        values = dense
        for key in path:
            values = values[key]
        assert_same(grid[name], np.asarray(values))
    np.testing.assert_array_equal(grid["waves"], np.asarray(dense["waves"]))
    for position in range(0, len(points), 7):
        one = step(jax.tree.map(lambda leaf, at=position: leaf[at], rows), *(col[position] for col in columns[1:]))
        assert float(one["waves"]) == grid["waves"][position]
        assert_same(grid["time"][position], np.asarray(one["time"]))


@pytest.mark.parametrize("points_per_block", [1, 2, 7, 12, 50, 10**6])
def test_block_shape_changes_nothing(points_per_block):
    reference = Sweep(step, step_axes(3, BATCHES, LENGTHS, TILES)).dense()
    sweep = Sweep(step, step_axes(3, BATCHES, LENGTHS, TILES), points_per_block=points_per_block)
    for name, values in sweep.dense().metrics.items():
        (assert_same if name == "time" else np.testing.assert_array_equal)(values, reference[name])


def test_one_trace_whatever_the_number_of_blocks():
    traces = []

    def counted(a, b):
        traces.append(1)
        return {"sum": a + b}

    sweep = Sweep(counted, [axis("a", range(13)), axis("b", range(7))], points_per_block=10)
    assert sweep.plan.blocks > 10
    sweep.dense()
    sweep.dense()
    assert len(traces) == 1


def test_one_trace_of_a_number_without_a_type_of_its_own():
    sweep = Sweep(lambda a: {"z": jnp.where(a < 7.0, 0, 4)}, [axis("a", range(10))], points_per_block=2)
    assert sweep.dense()["z"].tolist() == [0] * 7 + [4] * 3


def test_blocks_can_be_skipped_and_come_in_order():
    sweep = Sweep(lambda a, b: {"sum": a * 10.0 + b}, [axis("a", range(5)), axis("b", range(3))], points_per_block=3)
    results = list(sweep.blocks(skip={1, 3}))
    assert [result.index for result in results] == [0, 2, 4]
    assert results[1].metrics["sum"].tolist() == [[20.0, 21.0, 22.0]]
    assert results[1].slices == (slice(2, 3), slice(0, 3))
    assert results[1].columns["sum"].shape == (3,)


def test_nothing_is_being_computed_once_a_sweep_was_stopped(monkeypatch):
    """Else a program that ends at once ends while a thread writes into what it frees."""
    monkeypatch.setattr(blocks, "FEW_POINTS", 0)
    slow = lambda x, z: {"y": jnp.sin(jnp.cos(jnp.sin(jnp.exp(jnp.sin(x + z)))))}  # noqa: E731
    sides = [axis(name, np.linspace(0.0, 1.0, 2_000)) for name in "xz"]
    sweep = Sweep(slow, sides, points_per_block=1_000_000)
    call, made = sweep._evaluate.call, []
    monkeypatch.setattr(sweep._evaluate, "call", lambda *given: made.append(call(*given)) or made[-1])

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep.dense(progress=stop)
    assert len(made) == 2 and all(each.is_ready() for each in made[-1])


def test_progress_counts_points():
    seen = []
    sweep = Sweep(lambda a: {"b": a}, [axis("a", range(10))], points_per_block=4)
    sweep.dense(progress=lambda done, total: seen.append((done, total)))
    assert seen == [(4, 10), (8, 10), (10, 10)]


def test_eight_axes_and_size_one_axes():
    sizes = (2, 1, 3, 1, 2, 2, 3, 2)
    axes = [axis(name, range(1, size + 1)) for name, size in zip("abcdefgh", sizes, strict=True)]

    def total(a, b, c, d, e, f, g, h):
        return {"total": a + 2 * b + 3 * c + 5 * d + 7 * e + 11 * f + 13 * g + 17 * h}

    result = Sweep(total, axes, points_per_block=17).dense()["total"]
    weights = (1, 2, 3, 5, 7, 11, 13, 17)
    loop = [sum(w * (i + 1) for w, i in zip(weights, index, strict=True)) for index in np.ndindex(sizes)]
    assert result.shape == sizes
    np.testing.assert_array_equal(result.reshape(-1), loop)


def test_an_output_that_uses_no_axis_fills_the_product():
    result = Sweep(
        lambda a, b: {"constant": 3.0, "flag": True, "a": a, "n": 7},
        [
            axis("x", [1, 2], argument="a"),
            axis("y", [1, 2, 3], argument="b"),
        ],
    ).dense()
    assert result["constant"].tolist() == [[3.0] * 3] * 2
    assert result["flag"].dtype == bool and result["n"].dtype.kind == "i"
    assert result["a"].tolist() == [[1.0] * 3, [2.0] * 3]
    assert list(result.metrics) == ["constant", "flag", "a", "n"]


def test_nested_outputs_keep_their_order_and_dotted_names():
    class Cost(eqx.Module):
        time: jax.Array
        energy: jax.Array

    def fn(x):
        return {"z": x, "cost": Cost(x, {"total": 2 * x, "idle": x}), "parts": [x, x]}

    names = list(Sweep(fn, [axis("x", [1.0])]).metrics)
    assert names == ["z", "cost.time", "cost.energy.total", "cost.energy.idle", "parts.0", "parts.1"]
    assert list(Sweep(lambda x: x, [axis("x", [1.0])]).metrics) == ["value"]


def test_closed_over_arrays_are_arguments_not_constants():
    table = jnp.arange(1000.0)
    sweep = Sweep(lambda i: {"picked": table[i]}, [axis("i", range(0, 1000, 100), dtype=np.int32)])
    assert [constant.shape for constant in sweep.point.constants] == [(1000,)]
    assert sweep.dense()["picked"].tolist() == list(range(0, 1000, 100))


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda x: {"v": jnp.ones(3) * x}, r"shape \(3,\)"),
        (lambda x: {"v": "memory"}, "is a str"),
        (lambda x: {"v": jax.lax.complex(x, x)}, "complex"),
        (lambda x: {}, "no metric"),
        (lambda x: {"a.b": x, "a": {"b": x}}, "two metrics named 'a.b'"),
        (lambda x: {"x": x}, "rename"),
    ],
)
def test_outputs_that_are_not_metrics(fn, message):
    with pytest.raises(InputError, match=message):
        Sweep(fn, [axis("x", [1.0, 2.0])])


def test_results_are_labeled():
    layout = zip_axes("layout", axis("tensor", [1, 2]), axis("pipeline", [2, 1]))

    def fn(machine, tensor, pipeline):
        return {"time": machine.rate * tensor / pipeline}

    result = Sweep(fn, [machine_axis(3), layout]).dense()
    data = result.to_xarray(units={"time": "s"})
    assert data["time"].dims == ("machine", "layout") and data["time"].attrs["units"] == "s"
    assert data["tensor"].dims == ("layout",)
    assert float(data["time"].sel(machine="machine-1").isel(layout=1)) == pytest.approx(MACHINES[1][1] * 2)
    rows = result.rows(np.arange(6))
    assert list(rows) == ["machine", "tensor", "pipeline", "time"]
    assert rows["machine"].tolist() == [f"machine-{position}" for position in (0, 0, 1, 1, 2, 2)]
    assert rows["tensor"].tolist() == [1, 2] * 3
    np.testing.assert_array_equal(rows["time"], result["time"].reshape(-1))
    best = result.best("time", 2)
    assert best["machine"].tolist() == ["machine-0", "machine-1"] and best["pipeline"].tolist() == [2, 2]
    assert result.best("time", largest=True)["machine"].tolist() == ["machine-2"]
