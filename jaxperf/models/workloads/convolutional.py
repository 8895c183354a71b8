"""Convolutional classifiers of 1000 classes: ResNet, VGG and MobileNet V2, layer by layer as torchvision has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from jaxperf.models.workloads.activations import ACTIVATIONS
from jaxperf.models.workloads.operations import add, dropout, linear, view
from jaxperf.models.workloads.spatial import average, batch_norm, convolution, pool
from jaxperf.models.workloads.tape import Tape, Tensor

CLASSES = 1000


def _conv_norm(
    tape: Tape, x: Tensor, channels: int, kernel: int, name: str, stride: int = 1, groups: int = 1, act: bool = True
) -> Tensor:
    """Convolution, batch norm and, with `act`, a ReLU."""
    with tape.scope(name):
        x = convolution(tape, x, channels, kernel, "conv", stride, padding=kernel // 2, groups=groups)
        x = batch_norm(tape, x, "norm")
        return ACTIVATIONS["relu"](tape, x) if act else x


def _classified(tape: Tape, x: Tensor) -> Tensor:
    """The mean over all positions, and one score for each class."""
    return linear(tape, average(tape, x), CLASSES, "classifier")


# --- ResNet (arXiv:1512.03385) ----------------------------------------------------------------------------------------


def resnet(depths: tuple[int, ...], bottleneck: bool, tape: Tape, batch: int, size: int) -> Tensor:
    """Four stages of residual blocks of 64, 128, 256 and 512 channels, four times as many out of a bottleneck."""
    x = tape.input("pixels", batch, 3, size, size)
    x = pool(tape, _conv_norm(tape, x, 64, 7, "stem", stride=2), 3, padding=1)
    block = _bottleneck if bottleneck else _basic
    for stage, depth in enumerate(depths):
        for index in range(depth):
            with tape.scope(f"stage{stage}", f"block{index}"):
                x = block(tape, x, 64 * 2**stage, 2 if stage and not index else 1)
    return _classified(tape, x)


def _basic(tape: Tape, x: Tensor, channels: int, stride: int) -> Tensor:
    inner = _conv_norm(tape, x, channels, 3, "first", stride)
    inner = _conv_norm(tape, inner, channels, 3, "second", act=False)
    return _residual(tape, x, inner, stride)


def _bottleneck(tape: Tape, x: Tensor, channels: int, stride: int) -> Tensor:
    """The 3 x 3 convolution has the stride (torchvision, "ResNet v1.5")."""
    inner = _conv_norm(tape, _conv_norm(tape, x, channels, 1, "reduce"), channels, 3, "middle", stride)
    return _residual(tape, x, _conv_norm(tape, inner, 4 * channels, 1, "expand", act=False), stride)


def _residual(tape: Tape, x: Tensor, inner: Tensor, stride: int) -> Tensor:
    if x.shape != inner.shape:
        x = _conv_norm(tape, x, int(inner.shape[1]), 1, "shortcut", stride, act=False)
    return ACTIVATIONS["relu"](tape, add(tape, inner, x))


# --- VGG-16 (arXiv:1409.1556, configuration D) ------------------------------------------------------------------------


def vgg16(tape: Tape, batch: int, size: int) -> Tensor:
    """13 convolutions of 3 x 3 with biases and without norms, three dense layers on 7 x 7 positions."""
    x = tape.input("pixels", batch, 3, size, size)
    for stage, (channels, depth) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))):
        with tape.scope(f"stage{stage}"):
            for index in range(depth):
                x = convolution(tape, x, channels, 3, f"conv{index}", padding=1, bias=True)
                x = ACTIVATIONS["relu"](tape, x)
            x = pool(tape, x, 2)
    x = view(tape, x, batch, x.elements // batch, name="flatten")
    for index in range(2):
        x = dropout(tape, ACTIVATIONS["relu"](tape, linear(tape, x, 4096, f"dense{index}")))
    return linear(tape, x, CLASSES, "classifier")


# --- MobileNet V2 (arXiv:1801.04381, table 2) -------------------------------------------------------------------------

# expansion, channels, blocks, stride of the first block
INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet_v2(tape: Tape, batch: int, size: int) -> Tensor:
    """Inverted residuals: expand by 1 x 1, filter each channel by 3 x 3, project by 1 x 1."""
    x = _conv_norm(tape, tape.input("pixels", batch, 3, size, size), 32, 3, "stem", stride=2)
    for stage, (expansion, channels, depth, stride) in enumerate(INVERTED):
        for index in range(depth):
            with tape.scope(f"stage{stage}", f"block{index}"):
                x = _inverted(tape, x, expansion, channels, 1 if index else stride)
    return _classified(tape, dropout(tape, _conv_norm(tape, x, 1280, 1, "last")))


def _inverted(tape: Tape, x: Tensor, expansion: int, channels: int, stride: int) -> Tensor:
    width = int(x.shape[1]) * expansion
    inner = x if expansion == 1 else _conv_norm(tape, x, width, 1, "expand")
    inner = _conv_norm(tape, inner, width, 3, "depthwise", stride, groups=width)
    inner = _conv_norm(tape, inner, channels, 1, "project", act=False)
    return add(tape, x, inner) if inner.shape == x.shape else inner


CONVOLUTIONAL: Mapping[str, Callable[[Tape, int, int], Tensor]] = MappingProxyType(
    {
        "resnet-18": partial(resnet, (2, 2, 2, 2), False),
        "resnet-50": partial(resnet, (3, 4, 6, 3), True),
        "resnet-101": partial(resnet, (3, 4, 23, 3), True),
        "vgg-16": vgg16,
        "mobilenet-v2": mobilenet_v2,
    }
)
