"""Encoders that are a whole model: which function builds a class."""

from __future__ import annotations

from hwspecs.errors import InputError
from jaxperf.models.config import ModelConfig
from jaxperf.models.workloads.bert import HEADS, bert
from jaxperf.models.workloads.layers import check_layer
from jaxperf.models.workloads.tape import Tape, Tensor
from jaxperf.models.workloads.vision import VISION, vision


def encoder(tape: Tape, config: ModelConfig, batch: int, seq: int) -> Tensor:
    """The output of an encoder's head for `batch` texts of `seq` tokens, or `batch` images.

    Raises `InputError` naming the classes that have a workload graph.
    """
    if config.architecture not in (*HEADS, *VISION) or len(config.encoders) != 1:
        known = ", ".join((*HEADS, *VISION))
        raise InputError(f"{config.name} ({config.architecture}) has no workload graph; of encoders, {known} have.")
    for layer in config.encoders[0].layers:
        check_layer(layer, f"{config.name} ({config.architecture})")
    return (bert if config.architecture in HEADS else vision)(tape, config, batch, seq)
