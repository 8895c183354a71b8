"""vLLM v0: prefill first. A batch is whole prompts or decodes, never both (Kwon et al., SOSP 2023; Vidur's `vllm`)."""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.serving.simulator.policies.base import Plan, Policy, View, count, decodes_fit, whole_prompt_blocks
from jaxperf.serving.simulator.state import Settings


def plan(settings: Settings, view: View) -> Plan:
    """Admit in order while blocks - ceil(prompt / block) >= watermark, requests * longest prompt <= batch tokens and
    running < cap; without admissions decode everything, evicting the latest arrival while a decode finds no block."""
    need = whole_prompt_blocks(settings, view)
    longest = jnp.maximum(jnp.max(view.slots.chunk), view.prompt)
    padded = (count(view.fresh) + 1).astype(jnp.float64) * longest.astype(jnp.float64)  # may pass 2^31
    room = (view.free - need >= settings.watermark) & (view.running < settings.cap)
    admit = view.arrived & room & (padded <= settings.batch_tokens.astype(jnp.float64)) & ~view.evicted
    decodes = view.decoding & ~view.formed
    return Plan(
        admit=admit,
        tokens=view.prompt,
        blocks=need,
        evict=~view.formed & ~decodes_fit(view),
        victims=view.decoding,
        wants=decodes.astype(jnp.int32),
        needs=jnp.where(decodes, view.growth, 0),
    )


VLLM_V0 = Policy(plan, spare=1)
