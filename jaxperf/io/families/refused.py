"""Architectures known by name and refused with a reason, so that nobody gets a wrong count for them."""

from __future__ import annotations

_RECURRENCE = "its recurrence is not among the token mixers described here"

REFUSED = {
    "RetNetForCausalLM": _RECURRENCE,
    "RWKV6ForCausalLM": "flash-linear-attention's own RWKV-6 has other projections than the published Rwkv6ForCausalLM",
    "Phi3SmallForCausalLM": "its block-sparse attention is not among the token mixers described here",
    "phi3small": "its block-sparse attention is not among the token mixers described here",
}
