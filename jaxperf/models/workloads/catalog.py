"""The graph of a model: from its description, or of one that is built in by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.checks import check_count
from jaxperf.models.config import ModelConfig
from jaxperf.models.fusion import fused
from jaxperf.models.graph import Graph
from jaxperf.models.workloads.convolutional import CONVOLUTIONAL
from jaxperf.models.workloads.diffusion import DIFFUSION
from jaxperf.models.workloads.encoders import encoder
from jaxperf.models.workloads.tape import Tape, Tensor
from jaxperf.models.workloads.transformer import decoder
from jaxperf.models.workloads.video import VIDEO

MODES = {"inf": "inf", "inference": "inf", "train": "train", "training": "train"}
VARIANTS = ("plain", "fusion")

# Models whose structure is code: (tape, batch, size) -> output. `size` is the side of an image or of a latent map, of
# `VIDEO` the tokens of a video.
BUILT_IN: Mapping[str, Callable[[Tape, int, int], Tensor]] = MappingProxyType({**CONVOLUTIONAL, **DIFFUSION, **VIDEO})


def workload(
    model: ModelConfig | str, mode: str, seq: int, batch: int, variant: str = "plain", dtype: str = "fp32"
) -> Graph:
    """The graph of one iteration.

    **Arguments:** `model`: a description, or a name of `BUILT_IN`; `mode`: "inf" (one forward pass over all tokens)
    or "train" (forward, backward, and accumulation into gradients, without loss and optimizer: see `training_step`);
    `seq`: tokens of a sequence or of a video (`video.video_tokens`); of the other built-in models the pixels or latents
    of a side; ViT has a side of its own; `batch`: sequences, images or videos; `variant`: "plain" (each operation a
    kernel) or "fusion" (`jaxperf.models.fusion`); `dtype` of all tensors: "fp32", "tf32", "bf16" or "fp16".
    **Raises:** `InputError` naming the argument, what is allowed and the nearest of it.
    """
    if variant not in VARIANTS:
        raise InputError(
            f"variant is {variant!r}; it must be plain or fusion: the parallel ones need the network between devices."
        )
    tape, _ = recorded(model, mode, seq, batch, dtype)
    graph = tape.graph()
    return fused(graph) if variant == "fusion" else graph


def recorded(model: ModelConfig | str, mode: str, seq: int, batch: int, dtype: str) -> tuple[Tape, Tensor]:
    """The tape of a model and its output."""
    check_count("seq", seq)
    check_count("batch", batch)
    if mode not in MODES:
        raise InputError(f"mode is {mode!r}; it must be one of {', '.join(MODES)}.{did_you_mean(mode, MODES)}")
    name = model if isinstance(model, str) else model.name
    tape = Tape(f"{name}-{MODES[mode]}-{seq}-{batch}", MODES[mode] == "train", dtype)
    if isinstance(model, str):
        return tape, _built_in(model)(tape, batch, seq)
    return tape, (decoder if model.layers else encoder)(tape, model, batch, seq)


def _built_in(name: str) -> Callable[[Tape, int, int], Tensor]:
    if name not in BUILT_IN:
        known = ", ".join(BUILT_IN)
        raise InputError(f"Unknown built-in model {name!r}; built in: {known}.{did_you_mean(name, BUILT_IN)}")
    return BUILT_IN[name]
