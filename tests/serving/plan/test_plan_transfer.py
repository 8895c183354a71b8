"""The cache of a prompt between two engines of a plan: as fleets send it, and the queue for the sender's link."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.core.device import load_device
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.models.layers import transformer
from jaxperf.models.memory import kv_cache_bytes
from jaxperf.serving.fleet.transfer import Transfer, arrivals, network_link, wire_time
from jaxperf.serving.plan.engines import EngineFacts, sending
from jaxperf.serving.queueing.lengths import lengths_as
from jaxperf.serving.queueing.pools import Sending, transfer_time
from jaxperf.serving.simulator.composed import deployment_for
from tests.devices import QUICK

PROMPT = 3000.0


def facts(ranks: int) -> EngineFacts:
    """What a transfer looks at of an engine of Llama 3 70B."""
    at = deployment_for(load_model("llama-3-70b"), load_device("h100-sxm"), ranks)
    cache = kv_cache_bytes(at, transformer(load_model("llama-3-70b")), as_float(1.0), as_float(PROMPT))
    return EngineFacts(None, None, cache, as_float(float(ranks)), network_link(at), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("senders", "takers"), [(1, 1), (8, 1), (1, 8), (8, 2)])
def test_a_plan_sends_a_cache_as_a_fleet_does(senders: int, takers: int) -> None:
    """Bytes over the slower side: many ranks that send do not help one that takes."""
    model = load_model("llama-3-70b")
    receiver = deployment_for(model, load_device("h100-sxm"), takers)
    link = network_link(receiver)
    found = sending(facts(senders), facts(takers))
    want = wire_time(receiver, transformer(model), as_float(PROMPT), link, link, as_float(senders))
    np.testing.assert_allclose(found.wire, want, rtol=1e-12)
    total = 2 * 80 * 8 * 128 * 2 * PROMPT
    np.testing.assert_allclose(found.wire, total / (min(senders, takers) * float(link.bandwidth)), rtol=1e-12)
    assert float(found.latency) == float(link.latency)


@pytest.mark.parametrize("spread", [0.0, 0.8])
@pytest.mark.parametrize("busy", [0.2, 0.6])
def test_caches_wait_for_the_link_as_they_do_one_after_the_other(busy: float, spread: float) -> None:
    """Prompts that end at random, against the first-come-first-served link of the simulated fleet."""
    random, count = np.random.default_rng(3), 60_000
    kind = {"kind": "lognormal", "mean": PROMPT, "cv": spread} if spread else {"kind": "fixed", "value": PROMPT}
    prompt, sent = lengths_as(kind), Sending(as_float(0.5), as_float(0.01))
    done = jnp.asarray(np.cumsum(random.exponential(0.5 / busy, count)))
    sigma = np.sqrt(np.log1p(spread**2))
    wire = jnp.asarray(0.5 * random.lognormal(-0.5 * sigma**2, sigma, count))
    send = jax.jit(arrivals, static_argnames="senders", compiler_options=QUICK)
    there = send(Transfer(wire, as_float(0.01)), done, jnp.zeros(count, jnp.int32), jnp.ones(count, bool), senders=1)
    np.testing.assert_allclose(transfer_time(sent, prompt, as_float(busy)), np.mean(there - done), rtol=0.05)
    alone = transfer_time(sent, prompt, as_float(0.0))
    assert float(alone) == 0.5 + 0.01 and np.isnan(transfer_time(sent, prompt, as_float(1.0)))
