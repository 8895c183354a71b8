"""Denoisers of latent videos: Wan 2.1, text to video, attention over all patches of all frames (arXiv:2503.20314).

One token is one patch of the latent video, so that the graph depends on their number alone; `video_tokens` has it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.checks import check_count
from jaxperf.models.graph import Graph
from jaxperf.models.workloads.activations import ACTIVATIONS
from jaxperf.models.workloads.attention import by_head, rotated
from jaxperf.models.workloads.context import WHOLE, Division, divided_attention, whole_attention
from jaxperf.models.workloads.diffusion import modulated, time_embedding
from jaxperf.models.workloads.kernels import HOST
from jaxperf.models.workloads.masks import rotary_tables
from jaxperf.models.workloads.operations import add, contiguous, layer_norm, linear, multiply, rms_norm, split, view
from jaxperf.models.workloads.tape import Tape, Tensor

# What the denoiser sees of a video: a latent for the first frame and for every four after it, each 8 x 8 pixels, of
# which 2 x 2 make a patch (section 4.2; wan/configs of Wan-Video/Wan2.1).
FRAMES, SIDE, PATCH = 4, 8, 2
LATENTS = 16 * PATCH * PATCH  # elements of a patch
TEXT_TOKENS, TEXT_WIDTH = 512, 4096  # of umT5-XXL, padded
FREQUENCIES = 256

Tables = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Denoiser:
    """Width of the residual stream, units of the dense block, heads, and layers."""

    width: int
    units: int
    heads: int
    layers: int


DENOISERS: Mapping[str, Denoiser] = MappingProxyType(
    {"wan-2.1-1.3b": Denoiser(1536, 8960, 12, 30), "wan-2.1-14b": Denoiser(5120, 13824, 40, 40)}
)


def video_tokens(frames: int, height: int, width: int) -> int:
    """Tokens of a video [frames, pixels, pixels]: 75,600 for 81 x 720 x 1280.

    **Raises:** `InputError` for a size that is no multiple, with the nearest that are.
    """
    pixels = SIDE * PATCH
    latents = _parts("frames", frames, 1, FRAMES, "latent")
    return latents * _parts("height", height, pixels, pixels) * _parts("width", width, pixels, pixels)


def _parts(name: str, size: int, least: int, step: int, part: str = "patch") -> int:
    """How many parts a size has: the first of `least`, each further one of `step`."""
    count, rest = divmod(size - least, step)
    if rest or count < 0:
        low = least + max(count, 0) * step
        raise InputError(
            f"A video's {name} cannot be {size}: it is {least} and {step} for each further {part}, such as {low} or "
            f"{low + step}."
        )
    return count + 1


def denoiser(name: str, tape: Tape, batch: int, seq: int, division: Division = WHOLE) -> Tensor:
    """One step of `batch` videos of `seq` tokens, as one of the devices that share them works it through.

    The embeddings of text and time, and the keys and values of the text, are worked out by every device.
    """
    sizes = DENOISERS[name]
    own, width = division.own(name, sizes.heads, seq), sizes.width
    text = _text(tape, tape.input("text", batch, TEXT_TOKENS, TEXT_WIDTH), width)
    moment = time_embedding(tape, batch, FREQUENCIES, width)
    with tape.scope("time"):
        signal = linear(tape, ACTIVATIONS["silu"](tape, moment), 6 * width, "projection")
    patches = contiguous(tape, tape.input("latents", batch, LATENTS, own), batch, own, LATENTS, name="to_tokens")
    x = linear(tape, patches, width, "patches")
    rotary = rotary_tables(tape, own, width // sizes.heads)
    with tape.block(x, sizes.layers, "blocks") as inner:
        x = _block(tape, inner, text, signal, rotary, sizes, division)
    with tape.scope("head"):
        shift, scale = _modulation(tape, view(tape, moment, batch, 2, width, name="expand"), 2)
        x = linear(tape, modulated(tape, x, shift, scale), LATENTS, "linear")
    return contiguous(tape, x, batch, LATENTS, own, name="to_latents")


def _text(tape: Tape, text: Tensor, width: int) -> Tensor:
    with tape.scope("text_embedding"):
        return linear(tape, ACTIVATIONS["gelu"](tape, linear(tape, text, width, "first")), width, "second")


def _block(
    tape: Tape, x: Tensor, text: Tensor, signal: Tensor, rotary: Tables, sizes: Denoiser, division: Division
) -> Tensor:
    """Self-attention and a dense block, both shifted, scaled and gated by the step's signal; the text between them."""
    shift0, scale0, gate0, shift1, scale1, gate1 = _modulation(tape, signal, 6)
    with tape.scope("self"):
        seen = modulated(tape, x, shift0, scale0)
        q, k, v = _projections(tape, seen, seen)
        q, k = (_rotated(tape, each, rotary, sizes.heads) for each in (q, k))
        mixed = linear(tape, divided_attention(tape, q, k, v, sizes.heads, division), sizes.width, "output")
        x = add(tape, x, multiply(tape, mixed, gate0))
    with tape.scope("cross"):
        mixed = whole_attention(tape, *_projections(tape, layer_norm(tape, x, "norm"), text), sizes.heads)
        x = add(tape, x, linear(tape, mixed, sizes.width, "output"))
    with tape.scope("mlp"):
        inner = ACTIVATIONS["gelu"](tape, linear(tape, modulated(tape, x, shift1, scale1), sizes.units, "up"))
        return add(tape, x, multiply(tape, linear(tape, inner, sizes.width, "down"), gate1))


def _projections(tape: Tape, x: Tensor, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries of x, keys and values of the source; queries and keys are normed over all heads."""
    width = x.shape[-1]
    q = rms_norm(tape, linear(tape, x, width, "query"), "query_norm")
    k = rms_norm(tape, linear(tape, source, width, "key"), "key_norm")
    return q, k, linear(tape, source, width, "value")


def _rotated(tape: Tape, x: Tensor, rotary: Tables, heads: int) -> Tensor:
    """Positions in time, height and width turn a third of a head's elements each, by one table."""
    return view(tape, rotated(tape, by_head(tape, x, heads), rotary), *x.shape, name="merged")


def _modulation(tape: Tape, signal: Tensor, parts: int) -> tuple[Tensor, ...]:
    """`parts` vectors [batch, 1, width]: the signal's, of as many in a row, and trained ones of the block."""
    batch, width = signal.shape[0], signal.elements / signal.shape[0]
    own = tape.record("modulation", "view", (), (1, width), [HOST], [HOST], parameters=(width,))
    pieces = split(tape, view(tape, add(tape, signal, own), batch, width), (width / parts,) * parts)
    return tuple(view(tape, piece, batch, 1, width / parts) for piece in pieces)


def rank_graph(model: str, seq: int, batch: int, dtype: str, division: Division) -> Graph:
    """One denoising step as one of the devices of a division works it through; undivided that of `workload`.

    **Arguments:** `model`: one of `DENOISERS`; `seq`: tokens of a video over all devices.
    **Raises:** `InputError` for another model, and what does not divide, with what does.
    """
    for what, count in (("seq", seq), ("batch", batch), ("ranks", division.ranks)):
        check_count(what, count)
    if model not in DENOISERS:
        hint = did_you_mean(model, DENOISERS)
        raise InputError(f"Context ranks divide {', '.join(DENOISERS)} in inference, not {model!r}.{hint}")
    tape = Tape(f"{model}-inf-{seq}-{batch}", False, dtype)
    denoiser(model, tape, batch, seq, division)
    return tape.graph()


VIDEO: Mapping[str, Callable[[Tape, int, int], Tensor]] = MappingProxyType(
    {name: functools.partial(denoiser, name) for name in DENOISERS}
)
