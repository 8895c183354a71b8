"""Our graphs against those that NeuSight traced: the same kernels, apart from what is listed here with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from jaxperf.io.workloads import load_workload
from tests.models.neusight_graphs import kernels_of, read_kernels

LAYERS = {"bert_large": 24, "gpt2_large": 36, "gpt3_xl": 24, "gpt3_27": 32, "opt_13": 24, "switchxl4": 1}
GRAPHS = [
    *(f"bert_large-{rest}" for rest in ("inf-512-8", "inf-512-16", "train-512-2", "train-512-8")),
    *(f"gpt2_large-{rest}" for rest in ("inf-1024-4", "inf-1024-8", "train-1024-1", "train-1024-4")),
    *(f"{name}-{rest}" for name in ("gpt3_27", "gpt3_xl", "opt_13") for rest in ("inf-2048-2", "inf-2048-8")),
    *(f"{name}-{rest}" for name in ("gpt3_27", "gpt3_xl", "opt_13") for rest in ("train-2048-1", "train-2048-2")),
    *(f"switchxl4-{rest}" for rest in ("inf-512-1", "inf-512-2", "train-512-1", "train-512-2")),
]
# What PyTorch launches too and the files leave out: kernels of nodes that they call "misc" or plain memory.
LEFT_OUT = {
    "forward": {
        *("fill", "sub", "arange", "copy", "cumsum", "lt", "le", "gt", "abs", "log", "min", "neg", "where"),
        *("max", "mean", "rsqrt", "uniform", "argmax", "one hot", "nonzero", "logsumexp", "dropout"),
    },
    "backward": {
        *("bias gradient", "norm weight gradient", "dropout", "where", "max", "logsumexp"),
        "sum",  # of the gradients of a tensor that several nodes read, and over axes that were broadcast
        *("divu", "powu", "mulu", "mul"),  # of the mean and the reciprocal root, which are memory there
    },
    "accumulate": {"add"},  # of position and token-type tables, which have no operation there
}

Corrections = dict[str, tuple[Mapping[tuple[object, ...], int], Mapping[tuple[object, ...], int]]]


def corrections(model: str, batch: int, seq: int) -> Corrections:
    """By pass: kernels of the files that PyTorch does not launch, and those it launches instead."""
    pooler = ("relu", batch * 1024, batch), ("tanh", batch * 1024, batch)
    match model:
        case "bert_large":  # the pooler has a tanh, and the mask no gradient
            back = {pooler[0]: 1, ("mulu", batch * seq, batch): 1}
            return {"forward": ({pooler[0]: 1}, {pooler[1]: 1}), "backward": (back, {pooler[1]: 1})}
        case "opt_13":  # the output head has no bias, and position numbers no gradient
            return {"accumulate": ({("add", 50272, 1): 1}, {}), "backward": ({("mul", batch * seq, batch): 2}, {})}
        case "switchxl4":
            return switch_corrections(batch, seq)
    return {"accumulate": ({("add", 50257, 1): 1}, {})}


def switch_corrections(batch: int, seq: int) -> Corrections:
    """Eleven products of four dimensions are taken for linear layers, linear layers for ones with biases, and numbers
    of positions, masks, noise and routing for tensors with gradients."""
    heads, rows, tokens = batch * 32, batch * 32 * seq, batch * seq
    forward = {("gemm", rows, seq, 128): 6, ("gemm", rows, 128, seq): 5}
    instead = {("bmm", heads, seq, seq, 128): 6, ("bmm", heads, seq, 128, seq): 5}
    first = {("gemm", rows, 128, seq): 6, ("gemm", seq, 128, rows): 6}
    second = {("gemm", rows, seq, 128): 5, ("gemm", 128, seq, rows): 5}
    back = {("bmm", heads, seq, 128, seq): 6 + 5, ("bmm", heads, 128, seq, seq): 6, ("bmm", heads, seq, seq, 128): 5}
    positions = Counter({("mulu", seq * seq, seq): 3, ("divu", seq * seq, seq): 4})
    masks = Counter({(word, batch * seq * seq, tokens): count for word, count in (("mul", 2), ("mulu", 1))})
    masks[("mulu", tokens, batch)] = 2
    routing = {("mul", 4 * tokens, tokens): 48, ("mul", 1024 * tokens, tokens): 24, ("mul", 4 * batch, batch): 2}
    products = {("add", 128, 1): 5, ("add", seq, 1): 6, ("add", 128 * seq, 1): 11}
    biases = {("add", 1024, 1): 192, ("add", 4096, 1): 216, ("add", 16384, 1): 120, ("add", 4, 1): 24}
    tables = {("add", 32128, 1): 1, ("add", 32128 * 32, 1): 2}  # of 32 buckets, not of the vocabulary
    return {
        "forward": (forward, instead),
        "backward": (Counter(first) + Counter(second) + positions + masks + Counter(routing), back),
        "accumulate": (products | biases | tables, {("add", 32 * 32, 1): 2}),
    }


@pytest.mark.parametrize("name", GRAPHS)
def test_same_kernels_as_traced(data_directory: Path, name: str) -> None:
    path = data_directory / "neusight" / "opgraph" / f"{name}.csv"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    model, mode, seq, batch = name.split("-")
    theirs = read_kernels(path, LAYERS[model])
    ours = kernels_of(load_workload(model, mode, int(seq), int(batch)))
    corrected = corrections(model, int(batch), int(seq))
    for part in LEFT_OUT:
        wrong, instead = corrected.get(part, ({}, {})) if theirs[part] else ({}, {})
        assert not Counter(wrong) - theirs[part], f"{part}: a correction of what is not there"
        expected = theirs[part] - Counter(wrong) + Counter(instead)
        assert not expected - ours[part], f"{part}: kernels we leave out"
        assert {key[0] for key in ours[part] - expected} <= LEFT_OUT[part], part
