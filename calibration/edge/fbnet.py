"""FBNet (Wu et al., CVPR 2019) for 32 x 32 images: 22 layers, each one of eight inverted residual blocks or a skip.

Stages, channels and strides are those of HW-NAS-Bench (Li et al., ICLR 2021) for CIFAR-100.
"""

from __future__ import annotations

import numpy as np

from hwspecs.errors import InputError, did_you_mean

# Kernel, expansion and groups of the blocks, as they are numbered there; "skip" is the ninth.
BLOCKS = ((3, 1, 1), (3, 1, 2), (3, 3, 1), (3, 6, 1), (5, 1, 1), (5, 1, 2), (5, 3, 1), (5, 6, 1))
NAMES = (*(f"k{k}_e{e}" + (f"_g{g}" if g > 1 else "") for k, e, g in BLOCKS), "skip")
SKIP = len(BLOCKS)
STAGES = (
    (1, 16, 1),
    (4, 24, 1),
    (4, 32, 2),
    (4, 64, 2),
    (4, 112, 1),
    (4, 184, 2),
    (1, 352, 1),
)  # layers, channels, stride
STEM, SIDE, HEADER, CLASSES = 16, 32, 1504, 100
WRITTEN = f"22 of {', '.join(NAMES)} between bars"


def _layers() -> np.ndarray:
    """Channels in and out, and side of the picture in and out, of every layer [22, 4]."""
    found, channels, side = [], STEM, SIDE
    for count, out, stride in STAGES:
        for place in range(count):
            after = side if place else round(side / stride)
            found.append((channels, out, side, after))
            channels, side = out, after
    return np.array(found, float)


LAYERS = _layers()


def parse(text: str) -> tuple[int, ...]:
    """The block of each layer, as a place in `NAMES`. `text`: their names between bars, or their numbers in a row.

    **Raises:** `InputError` for a string that is no network.
    """
    text = text.strip()
    names = (
        [NAMES[int(each)] if each.isdigit() and each != "9" else each for each in text]
        if text.isdigit()
        else (text.strip("|").split("|"))
    )
    for name in names:
        if name not in NAMES:
            raise InputError(f"'{name}' is no block of FBNet.{did_you_mean(name, NAMES)} Known: {', '.join(NAMES)}.")
    if len(names) != len(LAYERS):
        raise InputError(f"'{text}' names {len(names)} layers; a network of FBNet has {len(LAYERS)}.")
    return tuple(map(NAMES.index, names))


def _counted() -> np.ndarray:
    """Multiply-accumulates in 1 x 1 convolutions, in depthwise ones of 3 x 3 and of 5 x 5, and values that go in and
    out, of every block in every layer [22, 9, 4]; of a skip that changes its channels or side a 1 x 1 convolution."""
    found = np.zeros((len(LAYERS), len(NAMES), 4))
    for layer, (channels, out, side, after) in enumerate(LAYERS):
        for block, (kernel, expansion, groups) in enumerate(BLOCKS):
            wide = channels * expansion
            pointwise = (wide * channels * side**2 + wide * out * after**2) / groups
            moved = (channels + 2.0 * wide) * side**2 + (2.0 * wide + out) * after**2
            found[layer, block, 0] = pointwise
            found[layer, block, 1 if kernel == 3 else 2] = wide * kernel**2 * after**2
            found[layer, block, 3] = moved
        if channels != out or side != after:
            found[layer, SKIP, [0, 3]] = channels * out * after**2, channels * side**2 + out * after**2
    return found


COUNTED = _counted()


def features(networks: np.ndarray) -> np.ndarray:
    """What the latency of networks is linear in [N, F]: multiplications by kind and values moved, blocks that are no
    skips, how often each block stands in the network, and which stands in which layer.

    **Arguments:** `networks` [N, 22]: as `parse` gives them.
    """
    there = np.eye(len(NAMES))[networks]  # [N, layer, block]
    work = np.einsum("nlb,lbk->nk", there, COUNTED)
    blocks = there[:, :, :SKIP]
    return np.column_stack([work, blocks.sum((1, 2)), blocks.sum(1), blocks.reshape(len(networks), -1)])


def work(networks: np.ndarray) -> np.ndarray:
    """Multiply-accumulates, values read and written, and kernels of the networks [N, 3], with stem, header, pooling and
    classifier: what the latency goes with where a device is bound by its arithmetic, its memory, or the start of each
    kernel."""
    side, channels = LAYERS[-1, 3], LAYERS[-1, 1]
    macs = 27.0 * STEM * SIDE**2 + channels * HEADER * side**2 + HEADER * CLASSES
    values = (3.0 + STEM) * SIDE**2 + (channels + 2.0 * HEADER) * side**2
    counted = COUNTED[np.arange(len(LAYERS)), networks]  # [N, layer, kind]
    kernels = (counted[:, :, :3] > 0.0).sum((1, 2)) + (networks != SKIP).sum(1)  # a block has two of 1 x 1
    return np.column_stack([macs + counted[:, :, :3].sum((1, 2)), values + counted[:, :, 3].sum(1), 4.0 + kernels])
