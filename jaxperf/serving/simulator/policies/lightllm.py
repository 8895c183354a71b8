"""LightLLM: admission by the largest memory the running requests will need at any later time (Vidur's `lightllm`)."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float64

from jaxperf.serving.simulator.policies.base import Plan, Policy, View, add, count
from jaxperf.serving.simulator.state import Settings


def plan(settings: Settings, view: View) -> Plan:
    """Every `waiting_steps` decode steps, and whenever nothing runs, admit whole prompts while the peak of memory to
    come stays below the cache and the tokens fit the batch; else decode everything."""
    opened = (view.running == count(view.fresh)) | (view.waited >= settings.waiting_steps)
    tokens = add(view.slots.chunk) + view.prompt
    fits = peak(view) < settings.blocks.astype(jnp.float64)
    room = (tokens <= settings.batch_tokens) & (view.running < settings.cap) & fits
    decodes = view.decoding & ~view.formed
    return Plan(
        admit=view.arrived & opened & room,
        tokens=view.prompt,
        blocks=view.prompt,
        evict=jnp.bool_(False),
        victims=view.decoding,
        wants=decodes.astype(jnp.int32),
        needs=jnp.where(decodes, view.growth, 0),
        longest=jnp.where(opened, settings.waiting_steps, settings.waiting_steps - view.waited),
        tried=opened,
    )


def peak(view: View) -> Float64[Array, ""]:
    """Most tokens that will be held at once if the head of the queue is admitted: max_i (r_i n_i + h_i).

    r_i: tokens request i has still to make after its next; n_i: requests with at least as many left, which are there
    when i ends; h_i: tokens they hold now. A request that has not run counts as if its prompt were done.
    """
    slots = view.slots
    held = jnp.append(jnp.where(view.fresh, slots.prompt + 1, slots.processed), view.prompt + 1)
    there = jnp.append(view.decoding | view.fresh, True)
    left = jnp.maximum(jnp.append(slots.total, view.total) - held - 1, 0).astype(jnp.float64)
    later = there[None, :] & (left[None, :] >= left[:, None])
    holding = jnp.sum(jnp.where(later, held.astype(jnp.float64)[None, :], 0.0), axis=1)
    return jnp.max(jnp.where(there, left * jnp.sum(later, axis=1, dtype=jnp.float64) + holding, 0.0))


LIGHTLLM = Policy(plan)
