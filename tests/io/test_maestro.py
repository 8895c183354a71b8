"""MAESTRO's mappings: its two validations, hand-counted schedules, a walk over sets of words, and every mistake."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.io.maestro import load_machine, read_layers
from jaxperf.io.maestro_case import layer_nest
from jaxperf.loopnest.data_centric import (
    Cluster,
    Dataflow,
    Move,
    Phase,
    Wires,
    dataflow_mapping,
    schedule_time,
    traffic,
)
from jaxperf.loopnest.data_centric import phases as phases_of
from jaxperf.loopnest.shapes import convolution
from tests.io.maestro_files import EYERISS_MACHINE, MAERI_MACHINE, eyeriss, layer, maeri

FREE = Wires(10**9, 0)


def machine(text: str, folder: Path) -> dict[str, int]:
    path = folder / "machine.m"
    path.write_text(text)
    return load_machine(path)


@pytest.mark.parametrize(
    ("text", "hardware", "file", "exact", "largest"),
    [
        (maeri(), MAERI_MACHINE, "maestro_maeri_vgg16.json", 13, 0.0),
        (eyeriss(), EYERISS_MACHINE, "maestro_eyeriss_alexnet.json", 4, 0.015),  # the contract allows 0.05
    ],
)
def test_the_published_validations(
    text: str, hardware: str, file: str, exact: int, largest: float, tmp_path: Path, data_directory: Path
) -> None:
    path = data_directory / "accelerator" / file
    if not path.exists():
        pytest.skip(f"{path} is absent")
    stated = {row["Layer Number"]: float(row["Runtime (Cycles)"]) for row in json.loads(path.read_text())}
    units = machine(hardware, tmp_path)
    wires = Wires(units["NoC_BW"], units["NoC_NumHops"])
    nests = {each.name: layer_nest(each, units["NumPEs"], "test") for each in read_layers(text, "test")}
    errors = {
        name: abs(schedule_time(nests[name].flow, wires) / cycles - 1.0)
        for name, cycles in stated.items()
        if name in nests
    }
    assert errors and max(errors.values()) <= largest
    assert sum(error == 0.0 for error in errors.values()) >= exact - (len(nests) - len(errors))


def test_the_nest_of_a_layer_by_hand() -> None:
    """Without padding conv1 of VGG-16 has 64 x 3 x 9 x 222^2 operations; 28 filters of 9 units make 3 rounds of 64."""
    nest = layer_nest(read_layers(maeri(), "test")[0], 256, "test")
    assert math.prod(nest.flow.bounds) == 64 * 3 * 9 * 222**2
    mapping, covered = dataflow_mapping(nest.flow)
    assert float(mapping.temporal.prod()) == 222**2 * 3 * 3
    bounds = dict(zip(nest.names.dimensions, zip(nest.flow.bounds, covered, strict=True), strict=True))
    assert {name for name, (one, other) in bounds.items() if one != other} == {"M"} and bounds["M"] == (64, 84)


def one_dimensional(clusters: tuple[Cluster, ...], width: int = 8, kernel: int = 3, filters: int = 4) -> Dataflow:
    problem, _ = convolution(1.0, float(filters), 1.0, float(width), (1.0, float(kernel)))
    whole = [tuple(int(each) for each in numbers) for numbers in (problem.bounds, problem.coefficients)]
    return Dataflow(whole[0], problem.operands, whole[1], clusters)


M, Q, S = 3, 5, 7  # positions of the loops of a convolution


def test_a_schedule_by_hand() -> None:
    """Four filters on two units, eight outputs in time: two rounds of eight steps of three operations.

    The first step brings 2 x 3 weights and 3 inputs: 9 words, 3 cycles at 4 words a cycle and one hop. A later output
    brings one input; the second round weights and the first window again.
    """
    flow = one_dimensional((Cluster((Move(M, 1, True), Move(Q, 1, False)), 2),))
    assert schedule_time(flow, FREE) == 2 * 8 * 3
    assert schedule_time(flow, Wires(4, 1)) == (3 + 3) + 15 * 3
    assert schedule_time(flow, Wires(1, 1)) == (3 + 9) + 7 * 3 + 9 + 7 * 3


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_without_wires_the_schedule_is_the_nest(spread: int, rounds: int, size: int, kernel: int) -> None:
    """Where every size divides its bound, it takes the product of the temporal loops."""
    moves = (Move(M, 1, True), Move(Q, size, False))
    flow = one_dimensional((Cluster(moves, spread),), size * rounds, kernel, spread * rounds)
    mapping, covered = dataflow_mapping(flow)
    assert covered == flow.bounds
    assert schedule_time(flow, FREE) == float(mapping.temporal.prod()) == math.prod(covered) // spread


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4))
def test_entering_words_are_those_that_were_not_there(width: int, size: int, kernel: int, filters: int) -> None:
    """One unit that slides over outputs, filters outside: sets of indices, step by step."""
    cluster = Cluster((Move(M, filters, True), Move(Q, size, False)), 1)
    flow = one_dimensional((cluster,), width, kernel, filters)
    before: set[int] = set()
    total = 0
    for start in range(0, width, size):
        window = {q + s for q in range(start, min(start + size, width)) for s in range(kernel)}
        total += len(window - before)
        before = window
    counted = 0
    for case in itertools.product(*(phases_of(m, flow.bounds[m.dimension], 1) for m in cluster.moves)):
        held = list(flow.bounds)
        for move, phase in zip(cluster.moves, case, strict=True):
            held[move.dimension] = phase.size
        counted += traffic(flow, cluster, case, flow.bounds, held)[0] * math.prod(phase.often for phase in case)
    assert counted == total + filters * kernel


@given(st.integers(1, 60), st.integers(1, 8), st.integers(1, 9), st.booleans())
def test_phases_cover_every_index_once(covered: int, size: int, children: int, spatial: bool) -> None:
    found = phases_of(Move(0, size, spatial), covered, children)
    assert [phase.first for phase in found] == [True] + [False] * (len(found) - 1)
    places = sum(phase.often * phase.active for phase in found)
    assert places == -(-covered // size)
    if not spatial:
        assert sum(phase.often * phase.size for phase in found) == covered


def test_a_matrix_product_and_a_constant() -> None:
    text = """Constant Width 8; // of a cluster
Network N { Layer L { Type: GEMM Dimensions { M: 6, N: 4, K: 8 }
Dataflow { SpatialMap(1,1) M; TemporalMap(1,1) N; Cluster(Width, P); SpatialMap(1,1) K; } } }"""
    nest = layer_nest(read_layers(text, "test")[0], 16, "test")
    assert schedule_time(nest.flow, FREE) == 3 * 4
    assert [float(each) for each in nest.problem.bounds] == [1.0, 6.0, 4.0, 8.0]


def test_products_of_several_pairs_of_matrices_run_one_after_the_other() -> None:
    """One pair takes what a product takes, over narrow wires too; three take three times as long."""
    text = """Network N { Layer L { Type: BMM Dimensions { B: 3, M: 6, N: 4, K: 8 }
Dataflow { TemporalMap(1,1) B; SpatialMap(1,1) M; TemporalMap(1,1) N; TemporalMap(8,8) K; } } }"""
    single = text.replace("BMM", "GEMM").replace("B: 3, ", "").replace("TemporalMap(1,1) B; ", "")
    three, pair, product = (
        layer_nest(read_layers(each, "test")[0], 2, "test").flow
        for each in (text, text.replace("B: 3", "B: 1"), single)
    )
    assert schedule_time(three, FREE) == 3 * schedule_time(product, FREE) == 3 * 3 * 4 * 8
    assert schedule_time(pair, Wires(2, 1)) == schedule_time(product, Wires(2, 1)) > schedule_time(product, FREE)


def test_a_depthwise_layer_has_a_filter_for_each_channel() -> None:
    text = layer("A", "K: 1, C: 6, R: 3, S: 3, Y: 10, X: 8", 2, "SC1 TY3,1 TX3,1").replace("CONV", "DSCONV")
    nest = layer_nest(read_layers(f"Network N {{\n{text}}}\n", "test")[0], 4, "test")
    bounds = dict(zip(nest.names.dimensions, nest.flow.bounds, strict=True))
    assert bounds == {"N": 1, "G": 6, "C": 1, "M": 1, "P": 4, "Q": 3, "R": 3, "S": 3}
    assert schedule_time(nest.flow, FREE) == 2 * 4 * 3 * 9  # two rounds of four channels


@pytest.mark.parametrize(
    ("covered", "children", "last"),
    [
        (8, 1, Phase(1, False, 2, 1)),  # two of three indices are left for the one child
        (8, 2, Phase(1, False, 2, 1)),
        (8, 3, Phase(1, True, 3, 3)),  # beside children that are full
        (9, 1, Phase(1, False, 3, 1)),
    ],
)
def test_the_last_spatial_step_covers_the_rest(covered: int, children: int, last: Phase) -> None:
    assert phases_of(Move(0, 3, spatial=True), covered, children)[-1] == last


SIMPLE = "K: 4, C: 2, R: 3, S: 3, Y: 8, X: 8"
BAD = [
    (
        layer("A", SIMPLE, 1, "SK1").replace("CONV", "POOL"),
        "line 2: A: Type 'POOL' is not one of CONV, DSCONV, GEMM, BMM",
    ),
    (layer("A", SIMPLE + ", Z: 3", 1, "SK1"), "'Z' is no dimension"),
    (layer("A", "K: 4, C: 2, R: 3, S: 3, Y: 8", 1, "SK1"), "dimension X is missing"),
    (layer("A", "K: 4, C: 2, R: 9, S: 3, Y: 8, X: 8", 1, "SK1"), "no window of R 9 fits"),
    (layer("A", SIMPLE, 1, "TK1"), "each cluster needs one SpatialMap"),
    (layer("A", SIMPLE, 1, "SK1 SC1"), "each cluster needs one SpatialMap"),
    (layer("A", SIMPLE, 1, "SK1 |64 SC1"), "its clusters need 64 PEs; the machine has 16"),
    (
        layer("A", SIMPLE, 1, "SK1 TX4,1"),
        "2 of X' move by 1; a step must begin where the last ended. An offset counts outputs",
    ),
    (layer("A", SIMPLE, 1, "SK2,1"), "2 of K move by 1; a step must begin"),
    (layer("A", SIMPLE, 1, "SK1 TX'1 TX3,1"), "X' is moved twice"),
    (layer("A", SIMPLE, 1, "SK1").replace("SpatialMap", "SpacialMap"), "Did you mean SpatialMap"),
    (layer("A", SIMPLE, 1, "SK1").replace("(1,1)", "(0,1)"), '"0" must be an integer from 1'),
    (layer("A", SIMPLE.replace("K: 4", "K: " + "9" * 5000), 1, "SK1"), "of 15 digits at most"),
    (layer("A", SIMPLE + ", K: 5", 1, "SK1"), "K is given twice"),
    (layer("A", SIMPLE, 1, "SK1").replace("Y: 1 }", "Z: 1 }"), "'Z' stands where one of X, Y must"),
    (layer("A", SIMPLE, 1, "SK1").replace("Dataflow", "Dataflow { } Dataflow"), "A has two Dataflows"),
    (layer("A", SIMPLE, 1, "SK1").replace("(1,1)", "(Kt,1)"), "'Kt' is no constant"),
    (layer("A", SIMPLE, 1, "SK1").replace("SpatialMap(1,1) K;\n}", ""), "where one of"),
    (layer("A", SIMPLE, 1, "SK1")[:60], "the file ends"),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_mistakes_are_named_with_their_line(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        for each in read_layers(f"Network N {{\n{text}}}\n", "case.m"):
            layer_nest(each, 16, "case.m")
    assert said in str(error.value) and "case.m: line" in str(error.value)


def test_a_file_of_something_else() -> None:
    with pytest.raises(InputError, match="has no Network"):
        read_layers("// nothing\n", "case.m")
    with pytest.raises(InputError, match="case.m: line 2: '%'"):
        read_layers("Network N {\n% matlab", "case.m")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("NumPEs: 16\n", "NoC_BW is missing"),
        ("NumPes: 16\n", "line 1: 'NumPes' is no field"),
        ("NumPEs: 16\nNoC_BW: 0\n", 'line 2: NoC_BW: "0" must be an integer from 1'),
        ("NumPEs: \u00b2\n", "must be an integer from 1"),
        ("NumPEs: " + "9" * 400, "of 15 digits at most"),
        ("NumPEs: 16\nNumPEs: 8\n", "line 2: NumPEs is given twice"),
    ],
)
def test_mistakes_of_a_machine(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        machine(text, tmp_path)
    assert said in str(error.value)
