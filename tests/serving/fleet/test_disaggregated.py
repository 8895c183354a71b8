"""Prefill and decode on pools of their own, against plain Python, and what must hold for any of them."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwspecs.errors import InputError
from jaxperf.api import load_device
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.models.layers import transformer
from jaxperf.models.parameters import kv_bytes_per_token
from jaxperf.serving.fleet.disaggregated import Disaggregated, simulate_disaggregated
from jaxperf.serving.fleet.routing import ROUTINGS
from jaxperf.serving.fleet.state import FollowUps, Load, Pool
from jaxperf.serving.fleet.transfer import Link, Transfer, network_link, node_link, wire_time
from jaxperf.serving.simulator.composed import deployment_for
from jaxperf.serving.simulator.policies import POLICIES
from jaxperf.serving.simulator.state import Settings, Status
from jaxperf.serving.simulator.trace import pad_traces
from tests.serving.fleet import fuzz as fleet_fuzz
from tests.serving.fleet import reference
from tests.serving.simulator import fuzz
from tests.serving.simulator.reference import Request

LANES = 100
LATENCY = 3 * fuzz.TICK


def drawn(seed: int = 0) -> tuple[list[tuple[dict, dict, SimpleNamespace]], Pool, Pool, Transfer, Load]:
    """Pools of two and three replicas with schedulers of their own, short of everything; ticks on the wire."""
    random = np.random.default_rng(seed)
    cases = []
    for _ in range(LANES):
        (first, trace), (second, _) = fuzz.draw(random, "sarathi_fixed"), fuzz.draw(random, "vllm_v1")
        trace.wire = random.integers(0, 60, len(trace.arrived)) * fuzz.TICK
        cases.append((first, second, trace))

    def pool(which: int, name: str, replicas: int) -> Pool:
        numbers = {key: jnp.asarray([case[which][key] for case in cases], jnp.int32) for key in cases[0][which]}
        router = ROUTINGS["least_outstanding"]
        lanes = jnp.full(LANES, replicas, jnp.int32)
        return Pool(Settings(**numbers), lanes, fuzz.table(), POLICIES[name], router, replicas, fleet_fuzz.SIZES)

    wire = np.stack([np.pad(trace.wire, (0, fuzz.REQUESTS - len(trace.wire))) for *_, trace in cases])
    transfer = Transfer(jnp.asarray(wire), jnp.full(LANES, LATENCY))
    load = Load(pad_traces([trace for *_, trace in cases], fuzz.REQUESTS))
    return cases, pool(0, "sarathi_fixed", 2), pool(1, "vllm_v1", 3), transfer, load


@pytest.mark.long
@pytest.mark.parametrize("first_from_decode", [False, True])
def test_two_pools_agree_with_plain_python(first_from_decode: bool) -> None:
    cases, prefill, decode, transfer, load = drawn()
    found = jax.tree.map(np.asarray, simulate_disaggregated(prefill, decode, transfer, load, first_from_decode))
    said = [disagreement(case, found, lane, first_from_decode) for lane, case in enumerate(cases)]
    assert [text for text in said if text] == []


def disagreement(case: tuple[dict, dict, SimpleNamespace], found: Disaggregated, lane: int, from_decode: bool) -> str:
    """What differs first, or an empty string."""
    first, second, trace = case
    columns = zip(trace.arrived.tolist(), trace.prompt.tolist(), trace.output.tolist(), strict=True)
    requests = [Request(i, arrived, p, p + d) for i, (arrived, p, d) in enumerate(columns)]
    pools = (("sarathi_fixed", "least_outstanding", 2, first), ("vllm_v1", "least_outstanding", 3, second))
    begun, decoded = reference.disaggregated(*pools, requests, trace.wire, LATENCY, fuzz.seconds, from_decode)
    record = jax.tree.map(lambda values: values[lane], found.requests)
    for i, before in enumerate(begun):
        after = decoded.get(i, before)
        told = after if from_decode else before
        mine = (record.scheduled[i], record.first_token[i], record.completed[i], record.restarts[i])
        restarts = before.restarts + (after.restarts if i in decoded else 0)
        theirs = (before.scheduled, told.first_token, after.completed, restarts)
        rejected = before.rejected or after.rejected
        if mine != theirs or (record.status[i] == Status.REJECTED) != rejected:
            return f"lane {lane}, request {i}: {mine}, reference {theirs}, rejected {rejected}"
    return ""


def test_every_request_ends_once_and_in_order() -> None:
    """Completed or rejected; what crosses is decoded by one replica, what does not by none."""
    _, prefill, decode, transfer, load = drawn(1)
    found = jax.tree.map(np.asarray, simulate_disaggregated(prefill, decode, transfer, load))
    real = np.arange(fuzz.REQUESTS) < np.asarray(load.requests.count)[:, None]
    status = found.requests.status
    assert (np.isin(status, (Status.COMPLETED, Status.REJECTED)) == real).all()
    crossed = np.isfinite(found.there)
    np.testing.assert_array_equal(crossed.sum(axis=1), (found.decode.routed >= 0).sum(axis=1))
    done = real & (status == Status.COMPLETED)
    assert (crossed[done] == (np.asarray(load.requests.output) > 1)[done]).all()
    both = done & crossed
    assert (found.requests.first_token[both] <= found.there[both]).all()
    assert (found.requests.completed[both] > found.there[both]).all()


def test_a_faster_link_brings_no_cache_later() -> None:
    """Whatever waits in front of it: the end of the wire grows with every time on it."""
    _, prefill, decode, transfer, load = drawn(2)
    slow, fast = (
        np.asarray(
            simulate_disaggregated(prefill, decode, Transfer(transfer.wire * share, transfer.latency), load).there
        )
        for share in (1.0, 0.5)
    )
    crossed = np.isfinite(slow)
    assert (crossed == np.isfinite(fast)).all() and (fast[crossed] <= slow[crossed]).all()
    assert (fast[crossed] < slow[crossed]).any()


def test_a_faster_link_is_never_later_with_the_second_token() -> None:
    """Of requests too far apart to meet: a shared batch may end either way."""
    _, prefill, decode, transfer, load = drawn(3)
    apart = np.where(np.isfinite(load.requests.arrived), 1000.0 * np.arange(fuzz.REQUESTS), np.inf)
    load = Load(dataclasses.replace(load.requests, arrived=jnp.asarray(apart)))
    ends = []
    for share in (1.0, 0.5):
        found = simulate_disaggregated(prefill, decode, Transfer(transfer.wire * share, transfer.latency), load)
        ends.append(np.where(found.requests.completed >= 0.0, found.requests.completed, np.inf))
    assert (ends[1] <= ends[0]).all() and (ends[1] < ends[0]).any()


def test_follow_ups_are_refused() -> None:
    _, prefill, decode, transfer, load = drawn()
    shape = load.requests.arrived.shape
    sessions = FollowUps(jnp.full(shape, -1, jnp.int32), jnp.zeros(shape))
    with pytest.raises(InputError, match="follow"):
        simulate_disaggregated(prefill, decode, transfer, Load(load.requests, sessions))


@pytest.mark.parametrize(("senders", "takers"), [(1, 1), (4, 2), (1, 8)])
def test_the_time_on_the_wire_is_bytes_over_bandwidth(senders: int, takers: int) -> None:
    """Llama-3-70B has 8 key-value heads, which up to 8 ranks divide: 2 x 80 x 8 x 128 x 2 bytes a token."""
    model, length = load_model("llama-3-70b"), 3000.0
    total = 2 * 80 * 8 * 128 * 2 * length
    assert kv_bytes_per_token(model, 2) * length == total
    receiver = deployment_for(model, load_device("h100-sxm"), takers)
    sending, taking = Link(as_float(50e9), as_float(0.0)), Link(as_float(20e9), as_float(0.0))
    found = wire_time(receiver, transformer(model), as_float(length), sending, taking, as_float(senders))
    assert float(found) == pytest.approx(total / min(senders * 50e9, takers * 20e9), rel=1e-12)


def test_links_are_those_of_the_device() -> None:
    deployment = deployment_for(load_model("llama-3-70b"), load_device("h100-sxm"), 8)
    link = deployment.efficiencies.link
    assert float(network_link(deployment).bandwidth) == pytest.approx(float(50e9 * link))
    assert float(node_link(deployment).bandwidth) == pytest.approx(float(450e9 * link))
