"""Multi-head latent attention as an eager class trains it: keys and values unfolded from the latent
(DeepSeek V2, arXiv:2405.04434, section 2.1)."""

from __future__ import annotations

from hwspecs.errors import InputError
from jaxperf.models.mixers import Mla
from jaxperf.models.workloads.attention import Given, attended, by_head, gated, merged, rotated
from jaxperf.models.workloads.operations import joined, linear, rms_norm, split, view
from jaxperf.models.workloads.tape import Tape, Tensor


def check_latent(mixer: Mla, where: str) -> None:
    """Raises `InputError` that begins with `where` for what is not built yet."""
    if mixer.indexer:
        raise InputError(f"{where}: Mla.indexer has no workload graph yet; the layers of DeepSeek V2 and V3 have one.")


def latent_attention(tape: Tape, x: Tensor, mixer: Mla, given: Given) -> Tensor:
    """[batch, seq, hidden] to the same."""
    batch, seq, hidden = x.shape
    plain, turning, heads = mixer.nope_dim, mixer.rope_dim, mixer.heads
    q = by_head(tape, _queries(tape, x, mixer), heads)
    q_plain, q_turned = split(tape, q, (plain, turning))
    latent, shared = split(
        tape, linear(tape, x, mixer.kv_rank + turning, "kv_down", mixer.bias), (mixer.kv_rank, turning)
    )
    unfolded = linear(tape, rms_norm(tape, latent, "kv_norm"), heads * (plain + mixer.value_dim), "kv_up", bias=False)
    k_plain, v = split(tape, by_head(tape, unfolded, heads), (plain, mixer.value_dim))
    k_turned = view(tape, shared, batch, 1, seq, turning)
    if mixer.rotary and given.rotary is not None and turning:
        q_turned, k_turned = rotated(tape, q_turned, given.rotary), rotated(tape, k_turned, given.rotary)
    shape = (batch, heads, seq, plain + turning)
    q = joined(tape, (q_plain, q_turned), shape)
    k = joined(tape, (k_plain, view(tape, k_turned, batch, heads, seq, turning, name="expand")), shape)
    y = merged(tape, attended(tape, q, k, v, given), x)
    if mixer.gates:
        y = gated(tape, y, x, heads, whole=mixer.output_gate)
    return linear(tape, y, hidden, "output", mixer.bias)


def _queries(tape: Tape, x: Tensor, mixer: Mla) -> Tensor:
    """[batch, seq, heads x (nope_dim + rope_dim)], through the compressed query where there is one."""
    width = mixer.heads * (mixer.nope_dim + mixer.rope_dim)
    if mixer.q_rank is None:
        return linear(tape, x, width, "query", bias=False)
    compressed = rms_norm(tape, linear(tape, x, mixer.q_rank, "query_down", mixer.bias), "query_norm")
    return linear(tape, compressed, width, "query_up", bias=False)
