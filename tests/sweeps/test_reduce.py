import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hwspecs.errors import InputError
from jaxperf.sweeps import COUNTED, Count, Pareto, Sweep, TopK, axis, pareto_mask, reduce_sweep

VALUES = st.one_of(st.integers(-4, 4).map(float), st.sampled_from([np.nan, np.inf, -np.inf, 0.5]))


def brute_force(points, directions):
    signed = points * np.where(np.array(directions) == "max", -1.0, 1.0)
    keep = np.zeros(len(points), bool)
    for i, row in enumerate(signed):
        if np.isnan(row).any():
            continue
        with np.errstate(invalid="ignore"):
            keep[i] = not any((other <= row).all() and (other < row).any() for other in signed)
    return keep


@st.composite
def clouds(draw):
    columns = draw(st.integers(1, 4))
    points = draw(hnp.arrays(float, st.tuples(st.integers(0, 40), st.just(columns)), elements=VALUES))
    return points, draw(st.lists(st.sampled_from(["min", "max"]), min_size=columns, max_size=columns))


@settings(deadline=None)
@given(clouds())
def test_pareto_mask_equals_brute_force(cloud):
    points, directions = cloud
    np.testing.assert_array_equal(pareto_mask(points, directions), brute_force(points, directions))


@pytest.mark.parametrize("columns", [2, 3])
def test_pareto_mask_on_continuous_points(columns):
    points = np.random.default_rng(0).normal(size=(700, columns))
    np.testing.assert_array_equal(pareto_mask(points, ["min"] * columns), brute_force(points, ["min"] * columns))


@st.composite
def pieces(draw, columns):
    points = draw(hnp.arrays(float, st.tuples(st.integers(1, 60), st.just(columns)), elements=VALUES))
    cuts = sorted(draw(st.lists(st.integers(0, len(points)), max_size=4)))
    allowed = draw(hnp.arrays(bool, len(points)))
    spans = list(zip([0, *cuts], [*cuts, len(points)], strict=True))
    return points, allowed, draw(st.permutations(spans))


def fed(reducer, points, allowed, spans):
    kept = None
    for start, stop in spans:
        columns = {f"m{i}": points[start:stop, i] for i in range(points.shape[1])} | {"ok": allowed[start:stop]}
        kept = reducer.update(kept, start, columns)
    return kept


@settings(deadline=None)
@given(pieces(2), st.booleans())
def test_pareto_by_pieces_in_any_order_equals_brute_force(piece, masked):
    points, allowed, spans = piece
    kept = fed(Pareto({"m0": "min", "m1": "max"}, where="ok" if masked else None), points, allowed, spans)
    seen = np.where(allowed[:, None] | (not masked), points, np.nan)
    np.testing.assert_array_equal(np.sort(kept.indices), np.flatnonzero(brute_force(seen, ["min", "max"])))
    np.testing.assert_array_equal(kept.metrics["m1"], points[kept.indices, 1])


@settings(deadline=None)
@given(pieces(1), st.integers(1, 70), st.booleans(), st.booleans())
def test_topk_by_pieces_in_any_order_equals_sorting(piece, k, largest, masked):
    points, allowed, spans = piece
    kept = fed(TopK("m0", k, largest=largest, where="ok" if masked else None), points, allowed, spans)
    values = points[:, 0]
    rows = [i for i in range(len(values)) if not np.isnan(values[i]) and (allowed[i] or not masked)]
    rows.sort(key=lambda i: (-values[i] if largest else values[i], i))
    assert kept.indices.tolist() == rows[:k]


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.lists(st.integers(0, 60), max_size=4), st.randoms())
def test_count_by_pieces_in_any_order_equals_counting(values, cuts, random):
    cuts = sorted(min(cut, len(values)) for cut in cuts)
    spans = list(zip([0, *cuts], [*cuts, len(values)], strict=True))
    random.shuffle(spans)
    kept = None
    for start, stop in spans:
        kept = Count("m").update(kept, start, {"m": np.array(values[start:stop], np.int32)})
    assert kept.metrics["m"].tolist() == sorted(set(values))
    assert kept.metrics[COUNTED].tolist() == [values.count(value) for value in sorted(set(values))]
    assert kept.indices.tolist() == [values.index(value) for value in sorted(set(values))]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, bool])
def test_extreme_integers_keep_their_order(dtype):
    info = None if dtype is bool else np.iinfo(dtype)
    values = np.array([False, True] if info is None else [info.min, 1, info.max], dtype)
    kept = TopK("m", 9).update(None, 0, {"m": values})
    assert kept.indices.tolist() == list(range(len(values)))[::-1]


def test_reduce_sweep_finds_the_labels_of_the_winners():
    sweep = Sweep(
        lambda a, b: {"cost": a * b, "gain": a + 2 * b, "fits": a < 7.0, "reason": 4 * (a >= 7.0).astype(jnp.int32)},
        [axis("x", range(1, 9), argument="a"), axis("y", range(1, 6), argument="b")],
        points_per_block=7,
    )
    seen = []
    best, front = reduce_sweep(
        sweep,
        [TopK("gain", 3, where="fits"), Pareto({"cost": "min", "gain": "max"})],
        progress=lambda done, total: seen.append(done),
    )
    assert sweep.rows(best)["x"].tolist() == [6, 5, 4] and sweep.rows(best)["y"].tolist() == [5, 5, 5]
    dense = sweep.dense()
    points = np.stack([dense["cost"].reshape(-1), dense["gain"].reshape(-1)], axis=1)
    assert sorted(front.indices) == np.flatnonzero(brute_force(points, ["min", "max"])).tolist()
    assert seen[-1] == 40
    for allowed in ({"where": "fits"}, {"unless": "reason"}):
        assert dense.select(TopK("gain", 3, **allowed)).indices.tolist() == best.indices.tolist()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TopK("cost", 0), "at least one"),
        (lambda: Pareto({}), "at least one objective"),
        (lambda: Pareto({"cost": "least"}), "'min' or 'max'"),
        (lambda: pareto_mask(np.ones((2, 2)), ["min"]), "one column per direction"),
        (lambda: TopK("cots", 1).check(["cost", "gain"]), "Did you mean cost"),
        (lambda: TopK("cost", 1, where="fit").check(["cost"]), "no metric 'fit'"),
        (lambda: Pareto({"cost": "min"}, unless="reasn").check(["cost", "reason"]), "Did you mean reason"),
        (lambda: Count("reasn").check(["cost", "reason"]), "Did you mean reason"),
        (lambda: Pareto({"tpot": "min"}).check(["cost"]), "no metric 'tpot'"),
    ],
)
def test_mistakes_are_one_sentence(make, message):
    with pytest.raises(InputError, match=message):
        make()
