"""ResNet-50 on the Eyeriss-like machine: Timeloop's own figures for the first layer, and the layers of the graph."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from hwspecs.errors import InputError
from jaxperf.io.map_constraints import load_constraints, open_constraints, with_meshes
from jaxperf.io.map_network import Layer, network_layers
from jaxperf.io.timeloop.random import STORAGE, eyeriss_like
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.constraints import check_constraints
from jaxperf.loopnest.mapper import Found, find_mapping
from jaxperf.loopnest.mapspace import build_space
from jaxperf.models.graph import Graph, Node, Op

KEPT = ((True, True, True),) * len(STORAGE)


@pytest.fixture(autouse=True, scope="module")
def wide() -> Iterator[None]:
    """Bounds and exact scores are made in 64 bits, whatever the suite runs in."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def layers() -> list[Layer]:
    return network_layers("resnet-50", 224).layers


@pytest.fixture(scope="module")
def conv1(layers: list[Layer]) -> Found:
    limits = load_constraints("eyeriss_like")
    check_constraints(limits, STORAGE, layers[0].loops, "test")
    space = build_space(layers[0].problem, layers[0].loops, STORAGE, KEPT, limits)
    return find_mapping(layers[0].problem, with_meshes(machine(), STORAGE, limits), space)


def machine() -> Architecture:
    shipped = eyeriss_like()
    return Architecture(tuple(Level(**shipped.levels[name]) for name in STORAGE), **shipped.units)


@pytest.mark.long
def test_the_first_layer_has_the_energy_that_timeloop_finds_for_its_best_mapping(conv1: Found) -> None:
    assert conv1.cost is not None
    assert float(conv1.cost.cycles) == 702_464.0
    assert round(float(conv1.cost.energy) * 1e6, 2) == 300.91  # timeloop-model, HEAD
    assert round(float(conv1.cost.edp), 1) == 211.4


@pytest.mark.long
def test_no_search_of_timeloop_is_better(conv1: Found, data_directory: Path) -> None:
    path = data_directory / "accelerator" / "search_bars.json"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    bars = [each["EDP"] for each in json.loads(path.read_text()).values() if isinstance(each, dict) and "EDP" in each]
    others = [each for each in bars if each is not None and each > 212.0]
    assert len(others) >= 4 and conv1.score < min(others)


def test_the_layers_are_those_of_the_paper(layers: list[Layer]) -> None:
    """53 convolutions and the classifier of 3.8e9 multiply-adds, table 1 of arXiv:1512.03385; with the strides in the
    3 x 3 convolutions, as torchvision has them, 4.09e9."""
    assert sum(len(layer.names) for layer in layers) == 54
    macs = sum(len(layer.names) * float(layer.problem.bounds.prod()) for layer in layers)
    assert macs == pytest.approx(4.09e9, rel=1e-3)
    first = dict(zip(layers[0].loops.dimensions, map(float, layers[0].problem.bounds), strict=True))
    assert first == {"N": 1, "G": 1, "C": 3, "M": 64, "P": 112, "Q": 112, "R": 7, "S": 7}


def test_the_products_of_attention_are_layers_and_what_is_left_out_is_counted() -> None:
    """BERT-base at 512 tokens: 12 heads of 64, 12 layers, both products of attention."""
    known = network_layers("bert-base", 512)
    shapes = [
        (len(layer.names), dict(zip(layer.loops.dimensions, map(float, layer.problem.bounds), strict=True)))
        for layer in known.layers
    ]
    one = {"P": 1, "Q": 1, "R": 1, "S": 1}
    assert (12, {"N": 512, "G": 12, "C": 64, "M": 512, **one}) in shapes
    assert (12, {"N": 512, "G": 12, "C": 512, "M": 64, **one}) in shapes
    assert known.left_out["softmax"] == 12 and "none" not in known.left_out
    assert "softmax 12" in known.notes[0]
    assert network_layers("resnet-50", 224).left_out == {"elementwise": 120}


@pytest.mark.parametrize("batch", [1, 10])
def test_grouped_convolutions_have_their_groups_whatever_the_batch(batch: int) -> None:
    """MobileNetV2 takes 300 M multiply-accumulates an image (Sandler et al., CVPR 2018)."""
    layers = network_layers("mobilenet-v2", 224, batch).layers
    shapes = {layer.names[0]: (len(layer.names), tuple(map(float, layer.problem.bounds))) for layer in layers}
    assert shapes["stage0.block0.depthwise.conv"] == (1, (batch, 32, 1, 1, 112, 112, 3, 3))
    macs = sum(count * math.prod(bounds) for count, bounds in shapes.values())
    assert macs == 300_774_272 * batch


def test_a_convolution_whose_groups_cannot_be_told_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    op = Op("convolution", {"batch": 4, "input_channels": 2, "output_channels": 3, "input_size": 8, "kernel_size": 3})
    for stored, groups in ((54.0, 1.0), (57.0, 1.0), (54.0 * 2, 2.0), (57.0 * 2, 2.0), (55.0, None)):
        graph = Graph("net", (Node("conv", forward=(op,), parameter_bytes=4.0 * stored),))
        monkeypatch.setattr("jaxperf.io.map_network.load_workload", lambda *asked, graph=graph: graph)
        if groups is None:
            with pytest.raises(InputError, match="net: conv is a convolution whose groups its parameters do not tell"):
                network_layers("net", 8, 2)
            continue
        (layer,) = network_layers("net", 8, 2).layers
        assert (float(layer.problem.bounds[0]), float(layer.problem.bounds[1])) == (4.0 / groups, groups)


def test_a_machine_alone_implies_a_row_of_units() -> None:
    limits = open_constraints(machine(), STORAGE)
    assert {name: limit.mesh_x for name, limit in limits.items() if limit.mesh_x > 1.0} == {"shared_glb": 168.0}
