"""One layer of a stack: norms, token mixer, cross-attention, feed-forward block and residual sums."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from hwspecs.errors import InputError
from jaxperf.models.config import Layer, ModelConfig
from jaxperf.models.feedforward import FeedForward, Mlp, Moe
from jaxperf.models.mixers import Attention, Mixer, Mla
from jaxperf.models.workloads.activations import ACTIVATIONS
from jaxperf.models.workloads.attention import BIAS, Given, attention, check_attention
from jaxperf.models.workloads.latent import check_latent, latent_attention
from jaxperf.models.workloads.moe import experts, router_losses
from jaxperf.models.workloads.operations import add, dropout, layer_norm, linear, multiply, rms_norm
from jaxperf.models.workloads.recurrent import RECURRENT, recurrent
from jaxperf.models.workloads.styles import Style
from jaxperf.models.workloads.tape import Tape, Tensor

Body = Callable[[Tensor], Tensor]

LONGEST_PATTERN = 8  # layers; Gemma 3 repeats six


def check_layer(layer: Layer, where: str) -> None:
    """Raises `InputError` naming the part of a layer that has no workload graph."""
    for mixer in (layer.mixer, layer.beside):
        _check_mixer(mixer, where)
    if layer.shared or layer.other_parameters or layer.projections:
        raise InputError(f"{where}: layers with shared weights or other parameters have no workload graph yet.")
    alone = layer.mixer is None or layer.ffn is None
    allowed = (3,) if layer.cross is not None else (1, 2) if layer.parallel or alone else (2, 4)
    if layer.norms not in allowed:
        known = " or ".join(map(str, allowed))
        raise InputError(f"{where}: a layer with {layer.norms} norms has no workload graph; such a layer has {known}.")


def _check_mixer(mixer: Mixer | None, where: str) -> None:
    match mixer:
        case None:
            pass
        case Attention():
            check_attention(mixer, where)
        case Mla():
            check_latent(mixer, where)
        case _ if not isinstance(mixer, RECURRENT):
            known = ", ".join(kind.__name__ for kind in (Attention, Mla, *RECURRENT))
            raise InputError(
                f"{where}: the token mixer {type(mixer).__name__} has no workload graph; those of {known}."
            )


def patterns(layers: Sequence[Layer]) -> list[tuple[tuple[Layer, ...], int]]:
    """The layers as patterns that are repeated in a row, each the one that reaches furthest from its place.

    Where a relative-position table is stored makes no difference: the stack computes its bias once.
    """
    left, found = [_plain(layer) for layer in layers], []
    while left:
        known = [(length, _times(left, length)) for length in range(1, min(LONGEST_PATTERN, len(left)) + 1)]
        repeated = [(length, times) for length, times in known if times > 1]
        length, times = max(repeated, key=lambda each: (each[0] * each[1], -each[0]), default=(1, 1))
        found.append((tuple(left[:length]), times))
        left = left[length * times :]
    return found


def _plain(layer: Layer) -> Layer:
    if not isinstance(layer.mixer, Attention) or not layer.mixer.relative_buckets:
        return layer
    return dataclasses.replace(layer, mixer=dataclasses.replace(layer.mixer, relative_buckets=0))


def _times(layers: list[Layer], length: int) -> int:
    """How often the first `length` layers follow each other."""
    times = 1
    while layers[times * length : (times + 1) * length] == layers[:length]:
        times += 1
    return times


def run_layer(tape: Tape, x: Tensor, layer: Layer, given: Given, memory: Tensor | None, scores: list[Tensor]) -> Tensor:
    """[batch, seq, hidden] to the same; `memory` is the encoder's output that cross-attention reads."""
    mixer, ffn = layer.mixer, layer.ffn
    if layer.parallel:
        assert mixer is not None and ffn is not None  # by the layer itself
        return _parallel(tape, x, layer, mixer, ffn, given, scores)
    block = _norm_after if given.style.norm_after else _norm_before
    if mixer is not None:
        name = "mixer" if isinstance(mixer, RECURRENT) else "attention"
        x = block(tape, x, layer, given, name, lambda y: _mixers(tape, y, layer, mixer, given))
    if layer.cross is not None:
        cross, outer = layer.cross, Given(given.style, given.cross_mask, BIAS, None, given.layer_norms)
        x = block(tape, x, layer, given, "cross_attention", lambda y: attention(tape, y, cross, outer, memory))
    if ffn is None:
        return x
    return block(tape, x, layer, given, "mlp", lambda y: feed_forward(tape, y, ffn, given.style, scores))


def run_layers(tape: Tape, x: Tensor, layers: Sequence[Layer], given: Given, memory: Tensor | None = None) -> Tensor:
    """All layers of a stack, and the losses of their routers where these have some."""
    routed = []
    for index, (pattern, times) in enumerate(patterns(layers)):
        scores: list[Tensor] = []
        with tape.block(x, times, f"layers{index}") as inner:
            for place, layer in enumerate(pattern):
                with tape.scope(f"layer{place}"):
                    inner = run_layer(tape, inner, layer, given, memory, scores)
            x = inner
        routed += [(each, times) for each in scores]
    if routed:
        router_losses(tape, routed)
    return x


def _mixers(tape: Tape, x: Tensor, layer: Layer, mixer: Mixer, given: Given) -> Tensor:
    """The token mixer, and the sum with a second one that reads the same (Falcon-H1)."""
    first = mixed(tape, x, mixer, given)
    return first if layer.beside is None else add(tape, first, mixed(tape, x, layer.beside, given), "branches")


def mixed(tape: Tape, x: Tensor, mixer: Mixer, given: Given) -> Tensor:
    """The token mixer."""
    if isinstance(mixer, Mla):
        return latent_attention(tape, x, mixer, given)
    if isinstance(mixer, RECURRENT):
        return recurrent(tape, x, mixer, given)
    assert isinstance(mixer, Attention)  # by check_layer
    return attention(tape, x, mixer, given)


def _norm_before(tape: Tape, x: Tensor, layer: Layer, given: Given, name: str, body: Body) -> Tensor:
    """x + body(norm(x)), with a second norm after the body where the layer has four (Gemma 2)."""
    with tape.scope(name):
        inner = body(norm(tape, x, layer, f"{name}_norm"))
        if layer.norms == (4 if layer.mixer is not None and layer.ffn is not None else 2):
            inner = norm(tape, inner, layer, f"{name}_post_norm")
        return add(tape, x, _dropped(tape, inner, given.style), "residual")


def _norm_after(tape: Tape, x: Tensor, layer: Layer, given: Given, name: str, body: Body) -> Tensor:
    """norm(x + body(x)), the order of the original transformer (arXiv:1706.03762)."""
    with tape.scope(name):
        summed = add(tape, _dropped(tape, body(x), given.style), x, "residual")
        return norm(tape, summed, layer, f"{name}_norm")


def _parallel(
    tape: Tape, x: Tensor, layer: Layer, mixer: Mixer, ffn: FeedForward, given: Given, scores: list[Tensor]
) -> Tensor:
    """x + attention(norm(x)) + mlp(norm(x)) (GPT-J, Falcon, Command R), with one norm or one for each."""
    seen = norm(tape, x, layer, "norm")
    with tape.scope("attention"):
        attended = mixed(tape, seen, mixer, given)
    fed = seen if layer.norms == 1 else norm(tape, x, layer, "mlp_norm")
    with tape.scope("mlp"):
        out = feed_forward(tape, fed, ffn, given.style, scores)
    return add(tape, x, add(tape, attended, out), "residual")


def _dropped(tape: Tape, x: Tensor, style: Style) -> Tensor:
    return dropout(tape, x) if style.dropout else x


def norm(tape: Tape, x: Tensor, of: Layer | ModelConfig, name: str) -> Tensor:
    """LayerNorm where the norms have biases, else RMSNorm."""
    if of.norm_bias:
        return layer_norm(tape, x, name, weight=of.norm_weight)
    return rms_norm(tape, x, name, of.norm_weight)


def feed_forward(tape: Tape, x: Tensor, ffn: FeedForward, style: Style, scores: list[Tensor]) -> Tensor:
    """down(act(up x)), down(act(gate x) up x) (arXiv:2002.05202), or experts."""
    if isinstance(ffn, Moe):
        return experts(tape, x, ffn, style, scores)
    assert isinstance(ffn, Mlp)
    if ffn.gated:
        gate = ACTIVATIONS[style.gate](tape, linear(tape, x, ffn.intermediate, "gate", ffn.bias))
        inner = multiply(tape, gate, linear(tape, x, ffn.intermediate, "up", ffn.bias))
    else:
        inner = ACTIVATIONS[style.activation](tape, linear(tape, x, ffn.intermediate, "up", ffn.bias))
    if style.inner_dropout:
        inner = dropout(tape, inner)
    return linear(tape, inner, x.shape[-1], "down", ffn.bias)
