"""vLLM v0: prefill first. A batch is whole prompts or decodes, never both (Kwon et al., SOSP 2023; Vidur's `vllm`)."""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.serving.simulator.policies.base import (
    Plan,
    Policy,
    View,
    add,
    count,
    decodes_fit,
    spared,
    whole_prompt_blocks,
)
from jaxperf.serving.simulator.state import Settings


def plan(settings: Settings, view: View) -> Plan:
    """Admit in order while blocks - ceil(prompt / block) >= watermark, requests * longest prompt <= batch tokens and
    running < cap; without admissions decode everything, evicting the latest arrival while a decode finds no block.

    A request that is a decode when it comes joins a step of decodes, behind what those before it take.
    """
    need = whole_prompt_blocks(settings, view)
    tokens = view.prompt - view.present
    longest = jnp.maximum(jnp.max(view.slots.chunk), tokens)
    padded = (count(view.fresh) + 1).astype(jnp.float64) * longest.astype(jnp.float64)  # may pass 2^31
    free = view.free - jnp.where(view.whole, add(view.growth), 0)
    room = (free - need >= spared(settings, view)) & (view.running < settings.cap)
    fits = jnp.where(
        view.whole, ~view.formed & ~view.barred, ~view.joined & (padded <= settings.batch_tokens.astype(jnp.float64))
    )
    admit = view.arrived & room & fits & ~view.evicted
    decodes = view.decoding & ~view.formed
    return Plan(
        admit=admit,
        tokens=tokens,
        blocks=need,
        evict=~view.formed & ~decodes_fit(view),
        victims=view.decoding,
        wants=decodes.astype(jnp.int32),
        needs=jnp.where(decodes, view.growth, 0),
    )


VLLM_V0 = Policy(plan, spare=1)
