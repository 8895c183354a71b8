"""From a table of kernels to what a `KernelModel` reads."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from calibration.datasets.groups import Groups, group
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import as_text
from calibration.kernels.asked import Shape
from calibration.kernels.demand import POINTS, Demand
from calibration.kernels.levels import Names, spell
from calibration.kernels.mapped import BLOCK, ROW, compiled, on_host
from calibration.kernels.model import Inputs
from calibration.kernels.point import LEAST, MOST, Kind, Point, describe, load_kinds
from jaxperf.core.numerics import as_float

# Columns of `Prepared` by their names in `Point`.
OF_ROW = (
    "core",
    "special",
    "on_chip",
    "footprint",
    "waves",
    "alone",
    "before",
    "clock",
    "design_clock",
    "eager",
    "chained",
    "kernels",
    "pipelined",
    "gddr",
    "inline_ecc",
)
PLAIN = (*Demand.__dataclass_fields__, *OF_ROW)
# Whose mixed steps state the cached tokens of each decoding sequence, not their sum: vLLM's profiler in LLMServingSim
# ("KV cache history length the decode requests attend to", its docs/profiler/output-bundle.md).
STATED_EACH = ("vllm",)
# Whose chunks on GPUs state all tokens that they attend to, the new ones among them: LLMServingSim's first profiler,
# all of whose prefills there have as many of them as new ones. On a TPU it counts what was cached before, as others do.
STATED_TOTAL = ("v0",)


@dataclass(frozen=True)
class Prepared:
    """A table whose devices are all known, with its demands and features; `usable` [R]: the demands are numbers.

    `names`, `features` and `learned` [R, F], `habits` [R, H] float32; `core`, `special`, `on_chip` and `before` [s],
    `footprint` [log 1], `waves`, `alone`, `clock`, `design_clock`, `eager`, `chained`, `kernels`, `pipelined`, `gddr`
    and `inline_ecc` [1] as in `Point`; `spelled`: the names of the rows at each level.
    """

    table: KernelTable
    demand: Demand
    names: tuple[str, ...]
    features: np.ndarray
    learned: np.ndarray
    habits: np.ndarray
    core: np.ndarray
    special: np.ndarray
    on_chip: np.ndarray
    footprint: np.ndarray
    waves: np.ndarray
    alone: np.ndarray
    before: np.ndarray
    clock: np.ndarray
    design_clock: np.ndarray
    eager: np.ndarray
    chained: np.ndarray
    kernels: np.ndarray
    pipelined: np.ndarray
    gddr: np.ndarray
    inline_ecc: np.ndarray
    spelled: dict[str, np.ndarray]
    usable: np.ndarray

    def take(self, rows: np.ndarray) -> Prepared:
        """The rows that an index or a mask selects."""
        columns = ("features", "learned", "habits", "usable", *OF_ROW)
        return dataclasses.replace(
            self,
            table=self.table.take(rows),
            demand=self.demand.take(rows),
            spelled={level: column[rows] for level, column in self.spelled.items()},
            **{name: getattr(self, name)[rows] for name in columns},
        )

    @property
    def roofline(self) -> np.ndarray:
        """The plain roofline: the longer of useful FLOP at the matrix peak and bytes at the bandwidth [s]."""
        return np.maximum(self.demand.ideal, self.demand.memory)

    def inputs(self, names: Names, features: Sequence[str] = ()) -> Inputs:
        """The arrays of a model that knows `names` and was fitted on these `features`; on all, if none are given."""
        columns = [self.names.index(name) for name in features or self.names]
        log = lambda x: as_float(np.log(np.maximum(x, LEAST)))  # noqa: E731
        return Inputs(
            compute=log(self.core),
            special=log(self.special),
            memory=log(self.demand.memory),
            power=log(self.demand.power),
            on_chip=log(self.on_chip),
            footprint=as_float(self.footprint),
            waves=log(self.waves),
            alone=as_float(self.alone),
            before=log(self.before),
            clock=log(self.clock),
            design_clock=log(self.design_clock),
            eager=as_float(self.eager),
            chained=as_float(self.chained),
            kernels=log(self.kernels),
            pipelined=as_float(self.pipelined),
            gddr=as_float(self.gddr),
            inline_ecc=as_float(self.inline_ecc),
            features=as_float(self.features[:, columns]),
            learned=as_float(self.learned[:, columns]),
            habits=as_float(self.habits),
            levels={level: jnp.asarray(at) for level, at in names.index(self.spelled).items()},
        )


def prepare(table: KernelTable, directories: Sequence[str | Path] = ()) -> Prepared:
    """Demands, features and names of every row. Rows without a device must have been taken out before."""
    rows, groups = len(table), group(table)
    plain = {name: np.full(rows, np.nan, np.float32) for name in PLAIN}
    names: tuple[str, ...] = ()
    values, learned, wasted = (np.empty((rows, 0), np.float32) for _ in range(3))
    for point, at in _points(table, groups, directories):
        if not names:
            names = point.names
            values, learned = (np.empty((rows, len(names)), np.float32) for _ in range(2))
            wasted = np.empty((rows, len(point.habits)), np.float32)
        for name, column in plain.items():
            column[at] = getattr(point, name)
        for place, column in enumerate(point.features):
            values[at, place] = column
        for place, column in enumerate(point.learned):
            learned[at, place] = column
        for place, column in enumerate(point.habits):
            wasted[at, place] = column
    usable = np.isfinite(plain["compute"]) & np.isfinite(plain["memory"])
    usable &= np.isfinite(values).all(axis=1) & np.isfinite(wasted).all(axis=1)
    return Prepared(
        table,
        Demand(**{name: plain[name] for name in Demand.__dataclass_fields__}),
        names,
        features=np.nan_to_num(values, posinf=MOST, neginf=-MOST),
        learned=np.nan_to_num(learned, posinf=MOST, neginf=-MOST),
        habits=np.nan_to_num(wasted, posinf=MOST, neginf=-MOST),
        spelled={level: np.asarray(column) for level, column in spell(table, groups).items()},
        usable=usable,
        **{name: plain[name] for name in OF_ROW},
    )


def _points(
    table: KernelTable, groups: Groups, directories: Sequence[str | Path]
) -> Iterator[tuple[Point, np.ndarray]]:
    """All rows, a chunk at a time: `Point`s and which rows they are [C, B]; none where the family has no law."""
    if table.family not in POINTS or not len(table):
        return
    kinds, shape = load_kinds(table.take(groups.first), directories), shapes(table)
    describing = _describing(table.family, groups.few)
    for kind, at in groups.chunks():
        yield describing(kinds.rows(kind), taken(shape, at)), at


def shapes(table: KernelTable) -> dict[str, np.ndarray]:
    """The shape of every row, in the number type that is computed with."""
    number = jnp.result_type(float)
    found = {name: column.astype(number) for name, column in table.shape.items()}
    return found | _cached_tokens(table, found) if table.family == "attention_mixed" else found


def taken(shape: Mapping[str, np.ndarray], rows: np.ndarray) -> dict[str, Any]:
    """The shapes of some rows, [C, B] like `rows`."""
    return {name: np.take(column, rows) for name, column in shape.items()}  # twice as quick as an index


def _cached_tokens(table: KernelTable, stated: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Of mixed steps, however they state them: those before the chunk, and those of all decoding sequences together."""
    framework, device = as_text(table.framework), as_text(table.device)
    each = framework.among(STATED_EACH)
    total = framework.among(STATED_TOTAL) & ~device.translated(lambda name: name.partition("-")[0]).among(("tpu",))
    new = np.where(total, stated["prefill_q"], 0.0)
    return {
        "kv_decode": np.where(each, stated["n_decode"] * (stated["kv_decode"] + 1.0), stated["kv_decode"]),
        "prefill_kv": np.maximum(stated["prefill_kv"] - new, 0.0),
    }


@functools.cache
def _describing(family: str, few: bool) -> Callable[[Kind, Shape], Point]:
    """The kernels of a chunk: kinds [C], shapes [C, B]."""
    return (on_host if few else compiled)(functools.partial(describe, family), (BLOCK, ROW))
