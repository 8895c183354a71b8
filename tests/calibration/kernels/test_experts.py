"""Expert layers against counting by hand: who gets how many rows, in which tiles, and what that moves."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.datasets.routing import routing
from calibration.datasets.text import as_text
from calibration.kernels import expert_load, expert_tiles, experts
from calibration.kernels.formats import format_columns
from calibration.kernels.inputs import Prepared, prepare
from tests.calibration.tables import blank_table

LAYER = {"tokens": 64.0, "hidden": 4096.0, "inter": 1536.0, "topk": 8.0, "experts": 128.0, "tp": 1.0, "ep": 1.0}


def load(**other: float) -> expert_load.Load:
    shape = {**LAYER, "balanced": 1.0, **other}
    return expert_load.load({name: jnp.asarray(value, float) for name, value in shape.items()})


def tiles(given_load: expert_load.Load, height: float) -> float:
    return float(experts.tiles(given_load, jnp.asarray(height)))


def one(shape: dict[str, float], device: str = "h100-sxm", distribution: str = "balanced", **names: str) -> Prepared:
    columns = {name: np.full(1, value) for name, value in shape.items()}
    table = blank_table("moe", columns, np.full(1, device, dtype=object))
    text = {"distribution": np.full(1, distribution, dtype=object)}
    return prepare(dataclasses.replace(table, text=text, **{k: np.full(1, v, dtype=object) for k, v in names.items()}))


@pytest.mark.parametrize(
    ("tokens", "ranks", "rows", "touched", "in_16", "in_64"),
    [
        (64, 1, 512, 128, 128, 128),  # four rows an expert
        (64, 4, 128, 32, 32, 32),
        (2, 1, 16, 16, 16, 16),  # fewer tokens than the stride of 16: all their experts differ
        (2, 8, 2, 2, 2, 2),
        (1024, 1, 8192, 128, 512, 128),  # 64 rows an expert
        (1040, 1, 8320, 128, 640, 256),  # 65
        (1024, 128, 64, 1, 4, 1),
    ],
)
def test_balanced_routing_gives_every_expert_the_same(
    tokens: float, ranks: float, rows: float, touched: float, in_16: float, in_64: float
) -> None:
    found = load(tokens=tokens, ep=ranks)
    assert (float(found.rows), float(found.touched)) == (rows, touched)
    assert (tiles(found, 16.0), tiles(found, 64.0)) == (in_16, in_64)


def test_copies_of_other_ranks_experts_are_the_first_experts_where_nobody_skips_them() -> None:
    """Every token of 64 chooses one expert of a rank's 16 (the stride is 16): 4 rows each, and 64 x 7 of others."""
    found = load(ep=8.0, remote_first=1.0)
    assert (float(found.tokens), float(found.rows), float(found.touched)) == (64.0, 512.0, 16.0)
    assert tiles(found, 64.0) == 16.0 + 7.0
    half = load(ep=16.0, remote_first=1.0)  # 8 of the stride's 16 experts: half of the tokens
    assert (float(half.tokens), float(half.rows)) == (32.0, 256.0)


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.integers(1, 16384),
    ranks=st.sampled_from([1.0, 2.0, 8.0, 64.0, 128.0]),
    skew=st.sampled_from([1.01, 1.2]),
)
def test_of_a_power_law_the_busiest_rank_is_measured(tokens: int, ranks: float, skew: float) -> None:
    found = load(tokens=float(tokens), ep=ranks, balanced=0.0, skew=skew)
    rows, touched, local = float(found.rows), float(found.touched), 128.0 / ranks
    assert max(tokens * 8.0 / ranks, 1.0) * (1 - 1e-5) <= rows <= tokens * min(8.0, local) * (1 + 1e-5)
    assert 1.0 <= touched <= min(local, rows) * (1 + 1e-5)
    assert tiles(found, 64.0) >= touched * (1 - 0.1)
    if ranks == 1.0:
        assert rows == pytest.approx(8.0 * tokens, rel=1e-5)


def replayed(tokens: int, ranks: int, way: str, skew: float = 1.2, times: int = 60) -> np.ndarray:
    """Rows and touched experts of the measured rank, by playing the collector's steps: draw, scale, round, repair."""
    random, experts_, copies = np.random.default_rng(0), int(LAYER["experts"]), tokens * int(LAYER["topk"])
    low, high = (1.0, 0.8 * tokens) if copies > experts_ else (0.01, 2.0)
    found = []
    for _ in range(times):
        ends = low ** (1 - skew), high ** (1 - skew)
        drawn = (ends[0] + (ends[1] - ends[0]) * random.random(experts_)) ** (1 / (1 - skew))
        loads = np.round(drawn / drawn.sum() * copies)
        loads = loads if way == "repaired_from_most" else np.minimum(loads, tokens)
        order = np.argsort(-loads, kind="stable")
        order = order if way == "repaired_from_most" else order[::-1]
        for place in range(int(max(copies - loads.sum(), 0))):
            loads[order[place % experts_]] += 1
        of_ranks = loads.reshape(ranks, -1)
        busiest = of_ranks[np.argmax(of_ranks.sum(axis=1))]
        found.append([busiest.sum(), (busiest > 0).sum()])
    return np.mean(found, axis=0)


@pytest.mark.parametrize("way", ["repaired_from_most", "repaired_from_least"])
@pytest.mark.parametrize(("tokens", "ranks"), [(1, 2), (1, 8), (2, 2), (4, 2), (4, 8), (8, 8), (16, 2), (64, 8)])
def test_earlier_collectors_gather_what_rounding_left_over_on_one_rank(tokens: int, ranks: int, way: str) -> None:
    found = load(tokens=float(tokens), ep=float(ranks), balanced=0.0, skew=1.2, **{way: 1.0})
    rows, touched = replayed(tokens, ranks, way)
    assert float(found.rows) == pytest.approx(rows, rel=0.15)
    assert float(found.touched) == pytest.approx(touched, rel=0.3)


def test_a_token_that_chose_an_expert_twice_goes_to_the_measured_rank() -> None:
    """Two of eight experts a token: the most loaded is chosen more often than there are tokens; nothing is lost."""
    few = {"experts": 8.0, "topk": 2.0, "tokens": 4096.0, "balanced": 0.0, "skew": 1.2}
    bounded, unbounded = (load(**few, ep=4.0, **{way: 1.0}) for way in ("repaired_from_least", "repaired_from_most"))
    assert float(unbounded.rows) > 1.1 * float(bounded.rows)
    assert float(load(**few, repaired_from_most=1.0).rows) == pytest.approx(8192.0, rel=0.03)
    assert float(load(**few | {"tokens": 1.0}, repaired_from_most=1.0).touched) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("tokens", "ways", "dtype_bytes", "expected"),
    [
        (128.0, "tiles_by_experts", 2.0, (16.0, 32.0, 64.0)),
        (129.0, "tiles_by_experts", 2.0, (64.0, 64.0, 32.0)),
        (16.0, "tiles_by_experts", 1.0, (64.0, 128.0, 128.0)),
        (32.0, "tiles_by_tokens", 2.0, (16.0, 64.0, 128.0)),
        (513.0, "tiles_by_tokens", 2.0, (128.0, 128.0, 64.0)),
        (64.0, "tiles_by_copies", 2.0, (16.0, 128.0, 64.0)),  # 4 copies an expert
        (1024.0, "tiles_by_copies", 2.0, (64.0, 128.0, 64.0)),  # 64, more than 0.9 of 64
        (1024.0, "untuned", 2.0, (128.0, 16.0, 64.0)),
        (16.0, "untuned", 1.0, (128.0, 16.0, 128.0)),
        (1024.0, "none", 2.0, (64.0, 128.0, 64.0)),
        (1040.0, "none", 2.0, (128.0, 128.0, 64.0)),
    ],
)
def test_tiles_are_those_of_the_engine(
    tokens: float, ways: str, dtype_bytes: float, expected: tuple[float, float, float]
) -> None:
    shape = {
        name: jnp.asarray(v, float) for name, v in ({**LAYER, "tokens": tokens, "balanced": 1.0, ways: 1.0}).items()
    }
    found = expert_tiles.tile(shape, expert_load.load(shape), jnp.asarray(dtype_bytes))
    assert (float(found.rows), float(found.columns), float(found.depth)) == expected


@pytest.mark.parametrize(
    ("version", "device", "width", "experts_", "tuned"),
    [
        ("0.14.0", "h200-sxm", 14336.0, 8.0, True),
        ("0.14.0", "h100-sxm", 14336.0, 8.0, False),  # no such file for the H100
        ("0.14.0", "h200-sxm", 14336.0, 4.0, False),  # nor for half of the experts
        ("0.13.0", "h200-sxm", 14336.0, 8.0, False),  # whose files nobody read
        ("0.14.0", "h200-sxm", 512.0, 512.0, True),
        ("0.14.0", "h200-sxm", 514.0, 512.0, False),
    ],
)
def test_layers_that_the_engine_has_tuned_get_a_librarys_tiles(
    version: str, device: str, width: float, experts_: float, tuned: bool
) -> None:
    layer = LAYER | {"experts": 2.0 * experts_, "ep": 2.0, "inter": 4.0 * width, "tp": 4.0, "tokens": 4096.0}
    table = blank_table("moe", {k: np.full(1, v) for k, v in layer.items()}, np.full(1, device, dtype=object))
    names = {"framework": "vllm", "version": version, "kernel": "vllm_fused_moe", "dtype": "bf16"}
    table = dataclasses.replace(table, **{k: np.full(1, v, dtype=object) for k, v in names.items()})
    ways = {name: each[0] for name, each in routing(table, as_text(np.full(1, "hopper", dtype=object))).items()}
    shape = {name: jnp.asarray(v, float) for name, v in (layer | ways).items()}
    found = expert_tiles.tile(shape, expert_load.load(shape), jnp.asarray(2.0))
    assert (float(found.columns), float(found.depth)) == ((128.0, 64.0) if tuned else (64.0, 32.0))


def test_weights_of_touched_experts_are_moved_once() -> None:
    """One token: 8 experts of 3 x 4096 x 1536 weights, and some activations."""
    moved = one(LAYER | {"tokens": 1.0}).demand.moved[0]
    weights = 8 * 3 * 4096 * 1536 * 2
    assert weights < moved < weights * 1.01


def test_layers_without_a_gate_have_two_thirds_of_the_weights() -> None:
    gated, plain = (
        one(LAYER | {"tokens": 1.0}, kernel=k) for k in ("moe_torch_flow_cutlass", "moe_torch_flow_nongated")
    )
    assert plain.demand.moved[0] / gated.demand.moved[0] == pytest.approx(2 / 3, rel=1e-2)


def test_sglang_multiplies_mxfp4_weights_in_sixteen_bits() -> None:
    one_token = LAYER | {"tokens": 1.0}
    wide, unpacked, packed = (
        one(one_token, kernel=kernel, dtype=dtype, framework="sglang")
        for kernel, dtype in (
            ("sglang_fused_moe_triton", "bf16"),
            ("sglang_fused_moe_triton", "w4a16_mxfp4"),
            ("sglang_marlin_moe", "w4a16_mxfp4"),
        )
    )
    assert unpacked.demand.moved[0] == wide.demand.moved[0]
    assert packed.demand.moved[0] < 0.3 * wide.demand.moved[0]
    assert unpacked.core[0] == unpacked.demand.compute[0]
    assert packed.core[0] > packed.demand.compute[0]


def test_half_of_a_partitioned_cache_is_for_what_any_core_reads() -> None:
    """The same bytes over 25 MiB on the H100 and over 96 MB on the L40S (datasheets)."""
    halved, whole = (one(LAYER | {"tokens": 1.0}, device) for device in ("h100-sxm", "l40s"))
    assert halved.footprint[0] - math.log(float(halved.demand.moved[0]) / (25 * 2**20)) == pytest.approx(0.0, abs=1e-4)
    assert whole.footprint[0] < halved.footprint[0] - math.log(3.0)


def test_what_is_handed_on_is_read_from_memory_only_where_it_does_not_fit() -> None:
    share = [float(experts._missed(jnp.asarray(size))) for size in (0.1, 1.0, 10.0)]
    assert share[0] < 1e-3 and share[1] == pytest.approx(0.5) and share[2] > 0.999


@pytest.mark.parametrize(
    ("framework", "version", "first"), [("sglang", "0.5.10", 1.0), ("sglang", "0.5.14", 0.0), ("vllm", "0.5.10", 0.0)]
)
def test_routing_is_told_by_names(framework: str, version: str, first: float) -> None:
    table = blank_table("moe", {k: np.full(3, v) for k, v in LAYER.items()}, np.full(3, "l40s", dtype=object))
    text = {"distribution": np.array(["balanced", "power_law_1.2", ""], dtype=object)}
    names = {"framework": framework, "version": version}
    table = dataclasses.replace(table, text=text, **{k: np.full(3, v, dtype=object) for k, v in names.items()})
    found = routing(table, as_text(np.full(3, "ada", dtype=object)))
    assert found["balanced"].tolist() == [1.0, 0.0, 0.0]
    assert found["skew"].tolist() == [0.0, 1.2, 0.0]
    assert found["remote_first"].tolist() == [first] * 3


@pytest.mark.parametrize(
    ("version", "kernel", "architecture", "ways"),
    [
        ("1.0.0", "moe_torch_flow", "ampere-ga100", {"repaired_from_most"}),
        ("1.0.0", "moe_torch_flow_cutlass", "ada", set()),
        ("0.14.0", "vllm_fused_moe", "hopper", {"repaired_from_least"}),
        ("0.5.14", "sglang_flashinfer_cutlass_moe", "hopper", {"untuned"}),
        ("0.5.14", "sglang_flashinfer_cutlass_moe", "blackwell", set()),
    ],
)
def test_collectors_and_untuned_libraries_are_told_by_names(
    version: str, kernel: str, architecture: str, ways: set[str]
) -> None:
    table = blank_table("moe", {k: np.full(1, v) for k, v in LAYER.items()}, np.full(1, "l40s", dtype=object))
    names = {"version": version, "kernel": kernel}
    table = dataclasses.replace(table, **{k: np.full(1, v, dtype=object) for k, v in names.items()})
    found = routing(table, as_text(np.full(1, architecture, dtype=object)))
    assert {each for each in ("repaired_from_most", "repaired_from_least", "untuned") if found[each][0] > 0} == ways


@pytest.mark.parametrize("routing_of", [{}, {"balanced": 1.0}, {"skew": 1.2}, {"skew": 1.01, "remote_first": 1.0}])
@pytest.mark.parametrize("tiles_of", ["none", "tiles_by_experts", "tiles_by_copies"])
def test_a_work_that_was_settled_is_the_work(tiles_of: str, routing_of: dict[str, float]) -> None:
    shape = {name: jnp.asarray(v, float) for name, v in (LAYER | {"ep": 4.0, tiles_of: 1.0} | routing_of).items()}
    formats, _ = format_columns(
        blank_table("moe", {k: np.ones(1) for k in LAYER}, np.array(["h100-sxm"], dtype=object))
    )
    f = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), formats)
    own = jax.tree.leaves(experts.work(shape, f))
    settled = experts.settled(shape, f)
    assert jax.tree.leaves(experts.work(shape | settled, f)) == own == [settled[name] for name in experts.SETTLED]
    assert experts.work(shape | settled | {"tile_depth": jnp.asarray(7.0)}, f).tile.depth == 7.0
