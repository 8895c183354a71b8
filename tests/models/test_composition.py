"""The composition of kernels to iterations against a simulation, step by step, of host and device."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxperf.models.composition import Composition, Iteration, iteration_time, shared_limit
from jaxperf.models.graph import Graph, Node, Op
from jaxperf.models.graph_steps import Laid, critical_path, lay_out

DEVICE_BOUND = {"launch": 0.0, "node": 0.0, "gap": 0.0, "overhead": 0.0}


def moved(size: float, count: float = 1.0) -> Op:
    """A kernel whose time in these tests is its bytes."""
    return Op("memory", {"bytes_in": size, "bytes_out": 0.0}, count=count)


def seconds(laid: Laid) -> jax.Array:
    return jnp.asarray([op.shape["bytes_in"] for op in laid.ops])


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    ops = st.lists(st.builds(moved, st.integers(1, 9).map(float), st.integers(1, 3).map(float)), max_size=3)
    nodes = []
    for index in range(draw(st.integers(1, 8))):
        repeats = nodes[-1].repeats if nodes and draw(st.booleans()) else float(draw(st.integers(1, 4)))
        before = (f"n{index - 1}",) if index else ()
        parts = [tuple(draw(ops)) for _ in range(3)]
        nodes.append(Node(f"n{index}", "", *parts, before=before, repeats=repeats))
    return Graph("g", tuple(nodes))


def simulated(graph: Graph, composition: Composition, backward: bool) -> float:
    """Host and device clocks, launch by launch, layer by layer."""
    host = device = 0.0
    nodes = graph.nodes[::-1] if backward else graph.nodes
    runs: list[list[Node]] = []
    for node in nodes:
        if runs and runs[-1][-1].repeats == node.repeats:
            runs[-1].append(node)
        else:
            runs.append([node])
    launch, gap = float(composition.launch), float(composition.gap)
    for run in runs:
        for node in run * int(run[0].repeats):
            host += float(composition.node)
            for op in node.backward + node.accumulate if backward else node.forward:
                for _ in range(int(op.count)):
                    host += launch
                    device = max(device, host) + op.shape["bytes_in"] + gap
    return max(host, device)


@settings(max_examples=40)
@given(graphs(), st.tuples(*[st.floats(0.0, 6.0)] * 3))
def test_agrees_with_a_simulation(graph: Graph, times: tuple[float, ...]):
    composition = Composition(*times, overhead=0.5)
    laid = lay_out(graph)
    found = compiled(laid, composition)
    assert float(found.forward) == pytest.approx(simulated(graph, composition, False), rel=1e-9)
    trained = any(node.backward or node.accumulate for node in graph.nodes)
    assert float(found.backward) == pytest.approx(simulated(graph, composition, True) if trained else 0.0, rel=1e-9)
    assert float(found.time) == pytest.approx(float(found.forward + found.backward) + 0.5)


def compiled(laid: Laid, composition: Composition) -> Iteration:
    """One compiled program for all graphs of a size: the kernels are padded too."""
    spare = 128 - len(laid.ops)
    steps = eqx.tree_at(lambda s: s.dense, laid.steps, jnp.pad(laid.steps.dense, (0, spare)))
    kernel = jnp.where(steps.kernel == len(laid.ops), 128, steps.kernel)
    steps = eqx.tree_at(lambda s: s.kernel, steps, kernel)
    edges = jnp.zeros((0, 1), jnp.int32)
    steps = eqx.tree_at(lambda s: s.before, steps, edges)
    times = jnp.concatenate([steps.times, jnp.zeros(1)])[steps.owner]
    steps = eqx.tree_at(lambda s: (s.times, s.owner), steps, (times, jnp.arange(len(times))))
    return _jitted(steps, jnp.pad(seconds(laid), (0, spare)), composition)


_jitted = jax.jit(iteration_time)


def chain() -> Graph:
    gemm = Op("gemm", {"m": 1.0, "n": 1.0, "k": 1.0})
    nodes = (
        Node("x", "input"),
        Node("a", forward=(gemm,), backward=(gemm, gemm), accumulate=(moved(2.0),), before=("x",), repeats=24.0),
        Node("b", forward=(moved(3.0),), backward=(moved(3.0),), before=("a",)),
    )
    return Graph("chain", nodes)


def test_in_graph_factors():
    laid = lay_out(chain())
    factors = {"dense": 2.0, "stream": 3.0, "backward_dense": 5.0, "backward_stream": 7.0, "accumulate": 0.5}
    found = iteration_time(laid.steps, jnp.asarray([1.0, 3.0, 2.0]), Composition(**DEVICE_BOUND, **factors))
    assert [op.family for op in laid.ops] == ["gemm", "memory", "memory"]
    assert float(found.forward) == pytest.approx(24 * 2.0 * 1.0 + 3.0 * 3.0)
    assert float(found.backward) == pytest.approx(24 * (2 * 2.0 * 5.0 + 0.5 * 3.0 * 7.0 * 2.0) + 3.0 * 7.0 * 3.0)
    assert float(found.kernel) == pytest.approx(float(found.forward + found.backward))


def test_a_slow_host_bounds_the_iteration():
    laid = lay_out(chain())
    times = jnp.asarray([1.0, 3.0, 2.0])
    found = iteration_time(laid.steps, times, Composition(launch=100.0, node=10.0, gap=0.0, overhead=0.0))
    assert float(found.forward) == pytest.approx(25 * 110.0 + 3.0)
    assert float(found.host) == pytest.approx(2 * 25 * 10.0 + 100.0 * (24 * 4 + 2))


def test_gradients_are_finite_and_those_of_the_kernels_that_bound():
    laid = lay_out(chain())

    def time(times: jax.Array) -> jax.Array:
        return iteration_time(laid.steps, times, Composition(**DEVICE_BOUND)).time

    assert np.allclose(jax.grad(time)(jnp.asarray([1.0, 3.0, 2.0])), [24 * 3, 2, 24])
    hidden = Composition(launch=100.0, node=10.0, gap=0.0, overhead=0.0)
    gradient = jax.grad(lambda c: iteration_time(laid.steps, jnp.asarray([1.0, 3.0, 2.0]), c).time)(hidden)
    assert all(np.isfinite(leaf) for leaf in jax.tree.leaves(gradient))


def test_layers_are_repeated_in_closed_form():
    """A graph of one layer with repeats is the graph that has the layer as often."""
    layer = [("q", 4.0), ("s", 1.0), ("o", 2.0)]
    short = tuple(
        Node(name, forward=(moved(size),), before=(layer[at - 1][0],) if at else (), repeats=5.0)
        for at, (name, size) in enumerate(layer)
    )
    long = tuple(Node(f"{name}{repeat}", forward=(moved(size),)) for repeat in range(5) for name, size in layer)
    composition = Composition(launch=1.5, node=1.0, gap=0.1, overhead=0.0)
    first, second = (lay_out(Graph("g", nodes)) for nodes in (short, long))
    times = [float(iteration_time(each.steps, seconds(each), composition).time) for each in (first, second)]
    assert times[0] == pytest.approx(times[1])


def test_critical_path_and_streams():
    diamond = Graph(
        "diamond",
        (
            Node("a", forward=(moved(1.0),)),
            Node("b", forward=(moved(5.0),), before=("a",)),
            Node("c", forward=(moved(4.0),), before=("a",)),
            Node("d", forward=(moved(2.0),), before=("b", "c")),
        ),
    )
    laid = lay_out(diamond)
    assert float(critical_path(laid.steps.before, jnp.asarray([1.0, 5.0, 4.0, 2.0]))) == pytest.approx(8.0)
    for streams, expected in ((1.0, 12.0), (1.25, 9.6), (4.0, 8.0)):
        composition = Composition(**DEVICE_BOUND, streams=streams)
        assert float(iteration_time(laid.steps, seconds(laid), composition).time) == pytest.approx(expected)


def test_one_program_for_devices_and_batches():
    """vmap over devices and kernels' times gives what single calls give."""
    laid = lay_out(chain())
    times = jnp.asarray([[1.0, 3.0, 2.0], [2.0, 1.0, 0.5]])
    composition = Composition(launch=0.7, node=0.2, gap=0.0, overhead=0.1)
    many = jax.vmap(iteration_time, in_axes=(None, 0, None))(laid.steps, times, composition)
    for row in range(2):
        one = iteration_time(laid.steps, times[row], composition)
        assert np.allclose([many.time[row], many.host[row]], [one.time, one.host])


def test_the_launch_that_isolated_times_contain_is_hidden():
    laid = lay_out(chain())
    times = jnp.asarray([10.0, 30.0, 2.0])
    composition = Composition(**DEVICE_BOUND, hidden=0.5, accumulate=1.0)
    found = iteration_time(laid.steps, times, composition, 8.0)
    assert float(found.forward) == pytest.approx(24 * 6.0 + 26.0)
    assert float(found.backward) == pytest.approx(24 * (2 * 6.0 + 0.1 * 2.0) + 26.0)  # a tenth is left at least


def limited(products: tuple[float, float], others: float, draw: float) -> np.ndarray:
    """Times of a product launched 24 x 3 times, (alone, at full clock), and of two streams that take `others` in all,
    where the iteration keeps the limit."""
    alone, free = products
    streams = [others / 2.0 / 2.0, others / 2.0 / 24.0]
    found = shared_limit(lay_out(chain()).steps, jnp.asarray([alone, *streams]), jnp.asarray([free, *streams]), draw)
    assert np.allclose(found[1:], streams)
    return np.asarray(found[0]) * 72.0


@settings(max_examples=30, deadline=None)
@given(st.floats(0.1, 3.0), st.floats(1.0, 4.0), st.floats(0.0, 200.0), st.floats(0.2, 0.95))
def test_the_iteration_keeps_the_limit_of_power_as_one_kernel_would(free, slower, others, draw):
    alone = free * slower
    found = limited((alone, free), others, draw)
    power = 72.0 * (alone**4 - free**4) ** 0.25
    others_free = others * max(1.0 - draw**4, 0.0) ** 0.25
    together = ((72.0 * free + others_free) ** 4 + (power + draw * others) ** 4) ** 0.25
    assert found == pytest.approx(max(together - others, 72.0 * free), rel=1e-5)
    assert found <= 72.0 * alone * (1.0 + 1e-9)


def test_without_other_kernels_or_a_limit_times_stay():
    assert limited((3.0, 1.0), 0.0, 0.5) == pytest.approx(72 * 3.0)
    assert limited((1.0, 1.0), 50.0, 0.5) == pytest.approx(72 * 1.0)
    assert limited((3.0, 1.0), 2000.0, 0.1) == pytest.approx(72 * 1.0, rel=0.02)  # their power is left to the products


def test_the_shared_limit_has_finite_gradients():
    steps, times = lay_out(chain()).steps, jnp.asarray([2.0, 3.0, 2.0])
    for free in (times, 0.5 * times):
        gradients = jax.grad(lambda t, c, u: jnp.sum(shared_limit(steps, t, c, u)), (0, 1, 2))(times, free, 0.7)
        assert all(bool(jnp.all(jnp.isfinite(each))) for each in gradients)
