"""The whole evaluation of collectives: what is called unseen is held out as a group, and everything is fitted again.

Splits: "sizes" leaves out whole octaves of the size, every third of them at a time; "ranks" one number of ranks of a
device, operation and kind of link that has others; "device" every row of a device; "24 rows" adapts that fit with 24
rows of one of the device's systems. Beside ours: the alpha-beta closed form, the law untuned (NCCL's own model, its
constants as published), and a fitted constant: alpha-beta times the median ratio of the fold's training rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibration.collectives.learn import Learned, learn, learn_few, predicted
from calibration.collectives.points import Points
from calibration.collectives.terms import TERMS, Term

SIZES, RANKS, DEVICE, FEW = SPLITS = ("sizes", "ranks", "device", "24 rows")
BANDS = 3
FEW_COUNT = 24
METHODS = ("ours", "alpha_beta", "law", "constant")


@dataclass(frozen=True)
class HeldOut:
    """Times of one split by method, NaN where a row was in no fold [R] [s]; `fold` of each row, -1 for none."""

    time: Mapping[str, np.ndarray]
    fold: np.ndarray

    @property
    def scored(self) -> np.ndarray:
        """The rows that were held out."""
        return np.isfinite(self.time["ours"])


def evaluate(points: Points, measured: np.ndarray, splits: Sequence[str] = SPLITS) -> dict[str, HeldOut]:
    """Every split. `measured` [R] [s]: of rows that can be learned from."""
    law = points.law
    times = {"alpha_beta": np.asarray(law.alpha_beta), "law": np.asarray(law.time)}
    folds = {SIZES: size_folds, RANKS: rank_folds, DEVICE: device_folds}
    found = {name: _held_out(points, measured, times, folds[name](points)) for name in splits if name in folds}
    return found | ({FEW: _few_rows(points, measured, times)} if FEW in splits else {})


def size_folds(points: Points) -> Iterator[np.ndarray]:
    """Every third octave of the size; of an exchange, of the tokens."""
    exchange = points.is_exchange
    octave = np.rint(np.where(exchange, points.coordinates["tokens"], points.coordinates["size"]))
    for band in range(BANDS):
        yield np.flatnonzero(octave % BANDS == band)


def rank_folds(points: Points) -> Iterator[np.ndarray]:
    """One number of ranks of a device, operation, runner, link and topology, where others remain."""
    group, ranks = points.named("device"), points.numbers["ranks"]
    for name in np.unique(group):
        rows = np.flatnonzero(group == name)
        counts = np.unique(ranks[rows])
        for count in counts if len(counts) > 1 else ():
            yield rows[ranks[rows] == count]


def device_folds(points: Points) -> Iterator[np.ndarray]:
    """Every row of a device."""
    device = points.device[points.group]
    for name in np.unique(device):
        yield np.flatnonzero(device == name)


def _held_out(
    points: Points, measured: np.ndarray, times: Mapping[str, np.ndarray], folds: Iterator[np.ndarray]
) -> HeldOut:
    found, fold = _nothing(points)
    for number, rows in enumerate(folds):
        fold[rows] = number
        rest, learned = without(points, measured, rows)
        found["ours"][rows] = predicted(learned, points.take(rows))
        constant = np.median(measured[rest] / times["alpha_beta"][rest]) if len(rest) else np.nan
        found["constant"][rows] = constant * times["alpha_beta"][rows]
        for name in times:
            found[name][rows] = times[name][rows]
    return HeldOut(found, fold)


def _nothing(points: Points) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Times and folds of rows that are in no fold."""
    return {name: np.full(len(points), np.nan) for name in METHODS}, np.full(len(points), -1)


def without(
    points: Points, measured: np.ndarray, rows: np.ndarray, terms: Sequence[Term] = TERMS
) -> tuple[np.ndarray, Learned]:
    """The other rows of the same kinds, which are all that the held-out ones share curves with, and what they teach.

    Copies of held-out rows under the name of another device are held out with them.
    """
    kind = points.named("kind")
    kept = np.isin(kind, np.unique(kind[rows]))
    kept[rows] = False
    same = copies(points, measured)
    rest = np.flatnonzero(kept & ~np.isin(same, same[rows]))
    return rest, learn(points, measured, rest, terms)


def copies(points: Points, measured: np.ndarray) -> np.ndarray:
    """A number for each row that those alike in all but the device share which state the same time [R]."""
    numbers = [points.numbers[name] for name in ("ranks", "nodes", "sms", "token_bytes", "topk", "size", "tokens")]
    _, stack = np.unique(points.named("stack"), return_inverse=True)
    _, which = np.unique(np.stack([stack, *numbers, measured]), axis=1, return_inverse=True)
    return which.ravel()


def _few_rows(points: Points, measured: np.ndarray, times: Mapping[str, np.ndarray]) -> HeldOut:
    found, fold = _nothing(points)
    systems = points.named("system")
    for number, device in enumerate(device_folds(points)):
        _, learned = without(points, measured, device)
        for system in np.unique(systems[device]):
            few, rows = few_of(points, device[systems[device] == system])
            fold[rows] = number
            moved = learn_few(learned, points.take(few), measured[few])
            found["ours"][rows] = predicted(moved, points.take(rows))
            found["constant"][rows] = np.median(measured[few] / times["alpha_beta"][few]) * times["alpha_beta"][rows]
            for name in times:
                found[name][rows] = times[name][rows]
    return HeldOut(found, fold)


def few_of(points: Points, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """FEW_COUNT of the rows, evenly spaced in the order of operation, ranks and size, and those not taken."""
    names = points.take(rows).named("cell setting")
    order = np.lexsort((points.coordinates["size"][rows], names))
    place = np.unique(np.linspace(0, len(rows) - 1, FEW_COUNT).astype(int))
    chosen = np.zeros(len(rows), bool)
    chosen[order[place]] = True
    return rows[chosen], rows[~chosen]
