"""Networks of NAS-Bench-201 and FBNet: what is read, what is counted, and what runs of a cell."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.edge import fbnet, nas_bench_201
from calibration.edge.nas_bench_201 import CONV_3, EDGES, LAST, NONE, OPERATIONS, SKIP
from calibration.edge.spaces import SPACES, space_of
from hwspecs.errors import InputError

CELLS = st.tuples(*[st.integers(0, len(OPERATIONS) - 1)] * len(EDGES))
NETWORKS = st.tuples(*[st.integers(0, fbnet.SKIP)] * len(fbnet.LAYERS))


def written(cell: tuple[int, ...]) -> str:
    """As NAS-Bench-201 writes a cell."""
    names = {edge: OPERATIONS[each] for edge, each in zip(EDGES, cell, strict=True)}
    return "+".join(
        "|" + "".join(f"{names[start, end]}~{start}|" for start in range(end)) for end in range(1, LAST + 1)
    )


def ways() -> list[list[int]]:
    """The edges of every way from the cell's input to its output."""
    found = []
    for between in itertools.chain.from_iterable(itertools.combinations((1, 2), count) for count in range(3)):
        nodes = (0, *between, LAST)
        found.append([EDGES.index(step) for step in itertools.pairwise(nodes)])
    return found


def test_multiplications_are_those_that_the_benchmark_states() -> None:
    """220.11969 and 7.78305 million, the most and the fewest on CIFAR-10 (the benchmark's own table of FLOPs)."""
    most, fewest = nas_bench_201.work(np.array([[CONV_3] * 6, [SKIP] * 6]))[:, 0]
    assert (most, fewest) == (220_119_690, 7_783_050)


@given(CELLS)
def test_a_cell_is_read_as_it_is_written(cell: tuple[int, ...]) -> None:
    assert nas_bench_201.parse(written(cell)) == cell
    assert space_of(written(cell)) == "nasbench201"


@given(CELLS)
def test_what_is_used_lies_on_a_way_through_the_cell(cell: tuple[int, ...]) -> None:
    whole = [way for way in ways() if all(cell[edge] != NONE for edge in way)]
    used = {edge for way in whole for edge in way}
    longest = max((sum(cell[edge] > SKIP for edge in way) for way in whole), default=0)
    found = nas_bench_201.features(np.array([cell]))[0]
    live = [sum(cell[edge] == each for edge in used) for each in range(SKIP, len(OPERATIONS))]
    there = [sum(each == other for other in cell) for each in range(SKIP, len(OPERATIONS))]
    assert found[:10].tolist() == [*live, *there, len(used), longest]


@given(NETWORKS)
def test_a_network_of_fbnet_is_read_by_names_and_by_numbers(network: tuple[int, ...]) -> None:
    for text in ("|".join(fbnet.NAMES[each] for each in network), "".join(map(str, network))):
        assert space_of(text) == "fbnet" and fbnet.parse(text) == network


def test_layers_of_fbnet_halve_the_picture_three_times() -> None:
    assert fbnet.LAYERS[:, 3].tolist() == [32] * 5 + [16] * 4 + [8] * 8 + [4] * 5
    assert fbnet.LAYERS[0, 0] == 16 and fbnet.LAYERS[1:, 0].tolist() == fbnet.LAYERS[:-1, 1].tolist()


@given(NETWORKS)
@settings(max_examples=30)
def test_work_of_fbnet_is_that_of_its_convolutions_one_by_one(network: tuple[int, ...]) -> None:
    """A convolution of c to o channels, kernel k and g groups on s x s outputs: s^2 k^2 c o / g."""
    macs = values = kernels = 0.0

    def convolution(c: float, o: float, k: int, g: float, into: float, out: float) -> None:
        nonlocal macs, values, kernels
        macs += out**2 * k**2 * c * o / g
        values += c * into**2 + o * out**2
        kernels += 1

    convolution(3, 16, 3, 1, 32, 32)
    for (c, o, into, out), block in zip(fbnet.LAYERS, network, strict=True):
        if block == fbnet.SKIP:
            if c != o or into != out:
                convolution(c, o, 1, 1, into, out)
            continue
        k, e, g = fbnet.BLOCKS[block]
        convolution(c, c * e, 1, g, into, into)
        convolution(c * e, c * e, k, c * e, into, out)
        convolution(c * e, o, 1, g, out, out)
    convolution(352, 1504, 1, 1, 4, 4)
    values += 1504 * 16  # pooling reads what it passes
    macs += 1504 * 100
    assert fbnet.work(np.array([network]))[0] == pytest.approx([macs, values, kernels + 2])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no network"),
        ("resnet50", "is no network"),
        ("|nor_conv_3x3~0|+|none~0|none~1|", "is no cell of NAS-Bench-201"),
        (written((1,) * 6).replace("skip_connect", "skip_conect", 1), "Did you mean skip_connect"),
        ("|".join(["k3_e1"] * 21), "names 21 layers"),
        ("|".join(["k3_e2"] * 22), "'k3_e2' is no block of FBNet"),
        ("9" * 22, "'9' is no block"),
    ],
)
def test_what_is_no_network_is_said(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        SPACES[space_of(text)].parse(text)
