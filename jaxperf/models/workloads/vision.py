"""The vision transformer (arXiv:2010.11929), and with a second class token DeiT (arXiv:2012.12877)."""

from __future__ import annotations

from hwspecs.errors import InputError
from jaxperf.models.config import Encoder, ModelConfig
from jaxperf.models.workloads.activations import ACTIVATIONS
from jaxperf.models.workloads.attention import Given
from jaxperf.models.workloads.kernels import HOST
from jaxperf.models.workloads.layers import run_layers
from jaxperf.models.workloads.operations import add, joined, layer_norm, linear, part, view
from jaxperf.models.workloads.spatial import convolution
from jaxperf.models.workloads.styles import style_of
from jaxperf.models.workloads.tape import Tape, Tensor

CLASSIFIERS = ("ViTForImageClassification", "DeiTForImageClassificationWithTeacher")
VISION = (*CLASSIFIERS, "ViTModel")


def vision(tape: Tape, config: ModelConfig, batch: int, seq: int) -> Tensor:
    """The output of the head for `batch` images; `seq` is not used, the side is the model's own."""
    tower = config.encoders[0]
    tokens, patch, side = _patches(config, tower)
    pixels = tape.input("pixels", batch, 3, patch * side, patch * side)
    with tape.scope("embeddings"):
        x = convolution(tape, pixels, tower.hidden, patch, "patches", stride=patch, bias=True)
        x = view(tape, x, batch, side * side, tower.hidden, name="flatten")
        first = _table(tape, "class_tokens", tokens, tower.hidden, batch)
        x = joined(tape, (first, x), (batch, tower.positions, tower.hidden))
        x = add(tape, x, _table(tape, "positions", tower.positions, tower.hidden, 1))
    x = run_layers(tape, x, tower.layers, Given(style_of(config.architecture)))
    return _head(tape, layer_norm(tape, x, "norm"), config, tokens)


def _table(tape: Tape, name: str, rows: int, width: int, batch: int) -> Tensor:
    """Trained rows, seen once for each image."""
    return tape.record(name, "view", (), (batch, rows, width), [HOST], [HOST], parameters=(rows * width,))


def _head(tape: Tape, x: Tensor, config: ModelConfig, tokens: int) -> Tensor:
    """A classifier for each class token, or a dense layer and a tanh on the first."""
    width = int(x.shape[-1])
    firsts = [part(tape, x, x.shape[0], width) for _ in range(tokens)]
    if config.architecture not in CLASSIFIERS:
        return ACTIVATIONS["tanh"](tape, linear(tape, firsts[0], width, "pooler"))
    classes = config.other_parameters // (tokens * (width + 1))  # weights and a bias of each class
    outputs = [linear(tape, first, classes, "classifier") for first in firsts]
    return outputs[0] if tokens == 1 else add(tape, outputs[0], outputs[1])


def _patches(config: ModelConfig, tower: Encoder) -> tuple[int, int, int]:
    """Class tokens, side of a patch [pixels] and patches along a side, from the counts the description has."""
    tokens = tower.other_parameters // tower.hidden
    weights = tower.input_parameters // tower.hidden  # 3 x patch^2 weights and a bias for each hidden element
    patch, side = round(((weights - 1) / 3) ** 0.5), round((tower.positions - tokens) ** 0.5)
    if (3 * patch * patch + 1) * tower.hidden != tower.input_parameters or side * side + tokens != tower.positions:
        raise InputError(f"{config.name} has no workload graph: its patches are not square ones of 3 channels.")
    return tokens, patch, side
