"""Fit the curves of the correction: robust, partially pooled least squares in closed form, all levels together.

min over c of sum_r w_r |exp(X_r c - y_r) - 1| / NOISE + 1/2 sum over curves of |c|^2 / spread^2 + |D c|^2 / rough^2, y
the logarithm of measured over law, X the hat functions, D differences of neighbouring knots: the relative error of the
time itself, for where rows alike scatter by factors the least of it lies below their median; by reweighting, quadratic
below NOISE (a Huber loss).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import cg

from calibration.collectives.laws import RUNNERS
from calibration.collectives.names import NO_NAME
from calibration.collectives.points import Points
from calibration.collectives.terms import ALL, FEW_ROWS, TERMS, Term

LEVEL_KNOTS = 4.0  # a curve counts as so many independent draws of its level, because its knots move together
NOISE = 0.03  # residual that the curves are not asked to explain [log 1]
REWEIGHTED = 6
TOLERANCE = 1e-7  # of the conjugate gradients, relative
MOST_ITERATIONS = 3000
CELLS_OF_OCTAVE = 4.0  # rows alike within a quarter of an octave count as one, with the root of their number
NORMAL = 1.4826  # standard deviation over the median absolute deviation of normal residuals
SCALES = (0.1, 2.0)  # least and most that the prior of a few rows is scaled by
FARTHEST = 1.0  # residual beyond which a row counts as one that far off [log 1]
SHARED_WAY, GENERATION = "kind way", "generation"  # levels
BOUND = 3.0  # most the correction changes a time by: a factor of 20 [log 1]


@dataclass(frozen=True)
class Curves:
    """`known[term]`: names with a curve; `values[term]`: its knots [names + 1, knots], the last row zero: unknown."""

    known: Mapping[str, tuple[str, ...]]
    values: Mapping[str, np.ndarray]


def index_of(
    points: Points, known: Mapping[str, Sequence[str]], terms: Sequence[Term] = TERMS
) -> dict[str, np.ndarray]:
    """Place of each group's name among the known ones of each term, one after the last where it is not [G]."""
    found, foreign = {}, _of_one_other_generation(points, known)
    for term in terms:
        place = {name: at for at, name in enumerate(known[term.name])}
        own = np.array([place.get(name, len(place)) for name in points.names[term.level]], np.int64)
        found[term.name] = np.where(foreign, len(place), own) if term.level == SHARED_WAY else own
    return found


def _of_one_other_generation(points: Points, known: Mapping[str, Sequence[str]]) -> np.ndarray:
    """Which groups are of a library's kind that was measured in several ways, but of one generation alone, and not of
    theirs [G].

    Each generation has constants of its own in NCCL's model, so that by how much rings and trees are off there is that
    generation's: between nodes, where the A100 alone was measured, 20 % and -8 % of the law's time.
    """
    generations, ways = (known.get(f"{level} by size", ()) for level in (GENERATION, SHARED_WAY))
    of_kind = [Counter(name.rpartition("/")[0] for name in names) for names in (generations, ways)]
    lone = [
        kind.split("/")[1] == RUNNERS[0] and of_kind[0][kind] == 1 and of_kind[1][kind] > 1
        for kind in points.names["kind"]
    ]
    return np.array(lone, bool) & ~np.isin(points.names[GENERATION].astype(str), generations)


def position(term: Term, coordinate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Knot on the left and share of the way to the next, constant beyond the ends."""
    along = np.clip(coordinate - term.low, 0.0, term.knots - 1.0)
    left = np.minimum(along.astype(int), term.knots - 2)
    return left, along - left


def correction(curves: Curves, points: Points, terms: Sequence[Term] = ALL) -> np.ndarray:
    """log measured over law that the curves expect [R]."""
    index = index_of(points, curves.known, terms)
    total = np.zeros(len(points))
    for term in terms:
        left, share = position(term, points.coordinates[term.coordinate])
        row = index[term.name][points.group]
        table = curves.values[term.name]
        total += (1.0 - share) * table[row, left] + share * table[row, left + 1]
    return np.clip(total, -BOUND, BOUND)


def fit_curves(points: Points, y: np.ndarray, terms: Sequence[Term] = TERMS) -> Curves:
    """The curves of rows with log ratios `y` [R]; kinds share nothing, so each is solved alone."""
    kinds = points.named("kind")
    found = [_solved(points.take(rows), y[rows], terms) for rows in (kinds == kind for kind in np.unique(kinds))]
    return merged(found)


def flat_curves(points: Points, terms: Sequence[Term] = TERMS) -> Curves:
    """Curves of zero for every name of the points: what is known without a say in the correction."""
    known = _known(points, terms)
    return Curves(known, {term.name: np.zeros((len(known[term.name]) + 1, term.knots)) for term in terms})


def merged(parts: Sequence[Curves]) -> Curves:
    """The curves of all parts; those of one name are added."""
    known, values = {}, {}
    for term in ALL:
        total: dict[str, np.ndarray] = {}
        for part in parts:
            for name, curve in zip(part.known.get(term.name, ()), part.values.get(term.name, ()), strict=False):
                total[name] = total.get(name, 0.0) + curve
        known[term.name] = tuple(total)
        values[term.name] = np.array([*total.values(), np.zeros(term.knots)])
    return Curves(known, values)


def adapted_curves(curves: Curves, points: Points, y: np.ndarray) -> Curves:
    """The curves with those of `FEW_ROWS` moved to rows with log ratios `y` [R], all kinds of a system together.

    The prior is as wide as the rows say that the prediction without them is off (empirical Bayes): where it is good
    already, a few rows and their noise move it little.
    """
    left = y - correction(curves, points)
    expected = np.sqrt(sum(term.spread**2 for term in FEW_ROWS))
    scale = np.clip(NORMAL * np.median(np.abs(left)) / expected, *SCALES)
    terms = [replace(term, spread=scale * term.spread, rough=scale * term.rough) for term in FEW_ROWS]
    return merged([curves, _solved(points, left, terms)])


def _solved(points: Points, y: np.ndarray, terms: Sequence[Term]) -> Curves:
    """The curves of some terms, by conjugate gradients; each weighting starts from the solution before it."""
    known = _known(points, terms)
    rows, weight, target = thinned(points, y)
    part = points.take(rows)
    design = _design(part, known, terms)
    penalty = _penalty(known, terms)
    c, w = np.zeros(_start_of(known, terms)[-1]), weight / NOISE**2
    for _ in range(REWEIGHTED):
        weighted = sparse.csr_array(sparse.diags_array(w) @ design)
        system = sparse.csr_array(weighted.transpose() @ design + penalty)
        jacobi = sparse.diags_array(np.asarray(system.diagonal(), float) ** -1.0)
        goal = np.asarray(weighted.transpose() @ target)
        c, _ = cg(system, goal, x0=c, rtol=TOLERANCE, maxiter=MOST_ITERATIONS, M=jacobi)
        over = design @ c - target
        slope = np.exp(np.clip(over, -FARTHEST, FARTHEST))  # of exp(over) - 1
        w = weight * slope / NOISE / np.maximum(np.abs(over), NOISE)
    return _curves(c, known, terms)


def _known(points: Points, terms: Sequence[Term]) -> dict[str, tuple[str, ...]]:
    """The names that rows have, by term."""
    seen = np.unique(points.group)
    return {term.name: tuple(sorted(set(points.names[term.level][seen]) - {NO_NAME})) for term in terms}


def thinned(points: Points, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One row for those alike but for a quarter octave: that with the median ratio, the root of their number, its y."""
    keys = [np.rint(values * CELLS_OF_OCTAVE) for values in points.coordinates.values()]
    alike = np.stack([points.group.astype(float), *keys])
    _, which, count = np.unique(alike, axis=1, return_inverse=True, return_counts=True)
    order = np.lexsort((y, which.ravel()))
    middle = order[np.r_[0, np.cumsum(count)[:-1]] + count // 2]
    return middle, np.sqrt(count), y[middle]


def _design(points: Points, known: Mapping[str, Sequence[str]], terms: Sequence[Term]) -> sparse.csr_array:
    """The hat functions: shares of each row's two knots of every term, [R, knots of all curves]."""
    index, starts = index_of(points, known, terms), _start_of(known, terms)
    columns, shares = [], []
    for term, start in zip(terms, starts, strict=False):
        left, share = position(term, points.coordinates[term.coordinate])
        row = index[term.name][points.group]
        at = np.where(row < len(known[term.name]), start + row * term.knots + left, -1)
        columns += [at, at + (at >= 0)]
        shares += [1.0 - share, share]
    rows, column, share = np.tile(np.arange(len(points)), len(columns)), np.concatenate(columns), np.concatenate(shares)
    named = column >= 0
    return sparse.csr_array((share[named], (rows[named], column[named])), (len(points), starts[-1]))


def _penalty(known: Mapping[str, Sequence[str]], terms: Sequence[Term]) -> sparse.csr_array:
    """The prior: each curve near zero and smooth."""
    blocks = []
    for term in terms:
        change = sparse.csr_array(np.diff(np.eye(term.knots), axis=0))
        level = sparse.eye_array(term.knots) * (LEVEL_KNOTS / term.knots / term.spread**2)
        block = level + change.T @ change / term.rough**2
        blocks.append(sparse.kron(sparse.eye_array(len(known[term.name])), block))
    return sparse.csr_array(sparse.block_diag(blocks))


def _curves(c: np.ndarray, known: Mapping[str, tuple[str, ...]], terms: Sequence[Term]) -> Curves:
    starts, values = _start_of(known, terms), {}
    for term, start, end in zip(terms, starts, starts[1:], strict=False):
        values[term.name] = np.r_[c[start:end].reshape(-1, term.knots), np.zeros((1, term.knots))]
    return Curves(known, values)


def _start_of(known: Mapping[str, Sequence[str]], terms: Sequence[Term]) -> list[int]:
    """The first column of each term, and how many there are."""
    return [0, *np.cumsum([len(known[term.name]) * term.knots for term in terms]).tolist()]
