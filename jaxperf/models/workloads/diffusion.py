"""Denoisers of latent diffusion: the UNet of Stable Diffusion 1 and DiT-XL/2. `size` is the side of the latent map."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from hwspecs.errors import InputError
from jaxperf.models.mixers import Attention
from jaxperf.models.workloads.activations import ACTIVATIONS
from jaxperf.models.workloads.attention import Given, attention
from jaxperf.models.workloads.kernels import stream
from jaxperf.models.workloads.operations import (
    add,
    contiguous,
    dropout,
    embedding,
    joined,
    layer_norm,
    linear,
    multiply,
    shifted,
    split,
    view,
)
from jaxperf.models.workloads.spatial import convolution, doubled, group_norm
from jaxperf.models.workloads.styles import Style
from jaxperf.models.workloads.tape import Tape, Tensor

GIVEN = Given(Style(mask="none"))
LATENT_CHANNELS = 4


def time_embedding(tape: Tape, batch: int, frequencies: int, width: int) -> Tensor:
    """Sines and cosines of the step through two dense layers with a SiLU between (arXiv:2006.11239)."""
    with tape.scope("time"):
        n = batch * frequencies
        waves = [stream("mul", n, n / 2, batch), stream("cos", n / 2, n / 2, batch), stream("sin", n / 2, n / 2, batch)]
        x = tape.record("waves", "fill", (), (batch, frequencies), waves, gradient=False)
        x = ACTIVATIONS["silu"](tape, linear(tape, x, width, "first"))
        return linear(tape, x, width, "second")


# --- Stable Diffusion 1 (arXiv:2112.10752; v1-inference.yaml of CompVis/stable-diffusion) -----------------------------

CHANNELS = (320, 640, 1280, 1280)
BLOCKS, GROUPS, HEADS = 2, 32, 8
TEXT_TOKENS, TEXT_WIDTH = 77, 768  # what CLIP ViT-L/14 hands on


def stable_diffusion(tape: Tape, batch: int, size: int) -> Tensor:
    """Four levels of two residual blocks down and three up, with attention on all but the lowest, and skips between."""
    if size % 8:
        raise InputError(f"The latent map of the UNet has a side of {size}; it must be a multiple of 8.")
    text = tape.input("text", batch, TEXT_TOKENS, TEXT_WIDTH)
    moment = time_embedding(tape, batch, CHANNELS[0], 4 * CHANNELS[0])
    x = tape.input("latents", batch, LATENT_CHANNELS, size, size)
    x = convolution(tape, x, CHANNELS[0], 3, "stem", padding=1, bias=True)
    skips = [x]
    for level, channels in enumerate(CHANNELS):
        with tape.scope(f"down{level}"):
            x = _down(tape, x, channels, moment, text, skips, level)
    with tape.scope("middle"):
        x = _residual(tape, x, CHANNELS[-1], moment, "block0")
        x = _residual(tape, _spatial_transformer(tape, x, text), CHANNELS[-1], moment, "block1")
    for level in reversed(range(len(CHANNELS))):
        with tape.scope(f"up{level}"):
            x = _up(tape, x, CHANNELS[level], moment, text, skips, level)
    x = ACTIVATIONS["silu"](tape, group_norm(tape, x, GROUPS, "norm"))
    return convolution(tape, x, LATENT_CHANNELS, 3, "output", padding=1, bias=True)


def _down(
    tape: Tape, x: Tensor, channels: int, moment: Tensor, text: Tensor, skips: list[Tensor], level: int
) -> Tensor:
    lowest = level == len(CHANNELS) - 1
    for index in range(BLOCKS):
        x = _residual(tape, x, channels, moment, f"block{index}")
        x = x if lowest else _spatial_transformer(tape, x, text)
        skips.append(x)
    if not lowest:
        x = convolution(tape, x, channels, 3, "downsample", stride=2, padding=1, bias=True)
        skips.append(x)
    return x


def _up(tape: Tape, x: Tensor, channels: int, moment: Tensor, text: Tensor, skips: list[Tensor], level: int) -> Tensor:
    for index in range(BLOCKS + 1):
        skip = skips.pop()
        shape = (x.shape[0], x.shape[1] + skip.shape[1], *x.shape[2:])
        x = _residual(tape, joined(tape, (x, skip), shape), channels, moment, f"block{index}")
        x = x if level == len(CHANNELS) - 1 else _spatial_transformer(tape, x, text)
    return convolution(tape, doubled(tape, x), channels, 3, "resize", padding=1, bias=True) if level else x


def _residual(tape: Tape, x: Tensor, channels: int, moment: Tensor, name: str) -> Tensor:
    """Two convolutions, each after a group norm and a SiLU, with the step's embedding added between them."""
    with tape.scope(name):
        inner = ACTIVATIONS["silu"](tape, group_norm(tape, x, GROUPS, "norm0"))
        inner = convolution(tape, inner, channels, 3, "conv0", padding=1, bias=True)
        shift = linear(tape, ACTIVATIONS["silu"](tape, moment), channels, "time")
        inner = add(tape, inner, view(tape, shift, x.shape[0], channels, 1, 1))
        inner = dropout(tape, ACTIVATIONS["silu"](tape, group_norm(tape, inner, GROUPS, "norm1")))
        inner = convolution(tape, inner, channels, 3, "conv1", padding=1, bias=True)
        if x.shape[1] != channels:
            x = convolution(tape, x, channels, 1, "shortcut", bias=True)
        return add(tape, x, inner)


def _spatial_transformer(tape: Tape, x: Tensor, text: Tensor) -> Tensor:
    """Positions as tokens: self-attention, attention to the text, and a gated block (GEGLU, arXiv:2002.05202)."""
    batch, channels, side, _ = x.shape
    width = int(channels)
    mixer = Attention(HEADS, HEADS, width // HEADS, rotary=False, output_bias=True, causal=False)
    with tape.scope("transformer"):
        inner = convolution(tape, group_norm(tape, x, GROUPS, "norm"), width, 1, "project_in", bias=True)
        y = contiguous(tape, inner, batch, side * side, width, name="to_tokens")
        with tape.scope("self"):
            y = add(tape, attention(tape, layer_norm(tape, y, "norm"), mixer, GIVEN), y)
        with tape.scope("cross"):
            y = add(tape, attention(tape, layer_norm(tape, y, "norm"), mixer, GIVEN, memory=text), y)
        y = add(tape, _gated(tape, layer_norm(tape, y, "norm"), 4 * width), y)
        y = contiguous(tape, y, batch, width, side, side, name="to_map")
        return add(tape, convolution(tape, y, width, 1, "project_out", bias=True), x)


def _gated(tape: Tape, x: Tensor, units: int) -> Tensor:
    with tape.scope("mlp"):
        up, gate = split(tape, linear(tape, x, 2 * units, "up"), (units, units))
        return linear(tape, multiply(tape, up, ACTIVATIONS["gelu"](tape, gate)), x.shape[-1], "down")


# --- DiT-XL/2 (arXiv:2212.09748, table 1 and section 3.2) -------------------------------------------------------------

DEPTH, WIDTH, PATCH, DIT_HEADS, CLASSES = 28, 1152, 2, 16, 1000


def dit_xl2(tape: Tape, batch: int, size: int) -> Tensor:
    """28 blocks with adaLN-Zero on patches of 2 x 2 latents; noise and covariance out."""
    if size % PATCH:
        raise InputError(f"The latent map of DiT-XL/2 has a side of {size}; it must be a multiple of {PATCH}.")
    x = tape.input("latents", batch, LATENT_CHANNELS, size, size)
    x = convolution(tape, x, WIDTH, PATCH, "patches", stride=PATCH, bias=True)
    tokens = (size // PATCH) ** 2
    x = contiguous(tape, x, batch, tokens, WIDTH, name="to_tokens")
    x = add(tape, x, tape.input("positions", 1, tokens, WIDTH))
    label = embedding(tape, tape.input("label", batch), CLASSES + 1, WIDTH, "labels")
    signal = ACTIVATIONS["silu"](tape, add(tape, time_embedding(tape, batch, 256, WIDTH), label))
    with tape.block(x, DEPTH, "blocks") as inner:
        x = _dit_block(tape, inner, signal)
    with tape.scope("final"):
        shift, scale = _modulation(tape, signal, 2)
        x = linear(tape, modulated(tape, x, shift, scale), 2 * LATENT_CHANNELS * PATCH * PATCH, "linear")
    return contiguous(tape, x, batch, 2 * LATENT_CHANNELS, size, size, name="to_map")


def _dit_block(tape: Tape, x: Tensor, signal: Tensor) -> Tensor:
    """Attention and a dense block, each on a norm that the signal shifts and scales, and gated by it."""
    mixer = Attention(
        DIT_HEADS, DIT_HEADS, WIDTH // DIT_HEADS, rotary=False, qkv_bias=True, output_bias=True, causal=False
    )
    shift0, scale0, gate0, shift1, scale1, gate1 = _modulation(tape, signal, 6)
    with tape.scope("attention"):
        joint = Given(Style(mask="none", joined=True))
        mixed = attention(tape, modulated(tape, x, shift0, scale0), mixer, joint)
        x = add(tape, x, multiply(tape, mixed, gate0))
    with tape.scope("mlp"):
        inner = linear(tape, modulated(tape, x, shift1, scale1), 4 * WIDTH, "up")
        inner = linear(tape, ACTIVATIONS["gelu"](tape, inner), WIDTH, "down")
        return add(tape, x, multiply(tape, inner, gate1))


def _modulation(tape: Tape, signal: Tensor, parts: int) -> tuple[Tensor, ...]:
    """`parts` vectors [batch, 1, width] for one block."""
    made = linear(tape, signal, parts * WIDTH, "modulation")
    pieces = split(tape, made, (WIDTH,) * parts)
    return tuple(view(tape, piece, piece.shape[0], 1, WIDTH) for piece in pieces)


def modulated(tape: Tape, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """norm(x) (1 + scale) + shift, the norm without weights."""
    normed = layer_norm(tape, x, "norm", weight=False)
    return add(tape, multiply(tape, normed, shifted(tape, scale)), shift)


DIFFUSION: Mapping[str, Callable[[Tape, int, int], Tensor]] = MappingProxyType(
    {"stable-diffusion-1-unet": stable_diffusion, "dit-xl-2": dit_xl2}
)
