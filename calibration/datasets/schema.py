"""The one schema of measured kernels: tables of rows of one family, in SI units, and what was wrong with the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from calibration.datasets.text import Column as TextColumn
from hwspecs.errors import shortened

# A bit of `KernelTable.flag`; docs/data-formats.md lists all. A row of the fit has none of them.
FLAG_BROKEN_SOURCE = 64  # known to be broken where it was measured; see `calibration.datasets.neusight`


@dataclass(frozen=True)
class Column:
    """A number of a family's shape: its standard name, other names it goes by, its default (None: must be given) and
    the least value it can have."""

    name: str
    other: tuple[str, ...] = ()
    default: float | None = None
    least: float = 1.0


_BATCH = Column("batch", ("b", "batch_size"), default=1.0)
_HEADS = Column("heads", ("num_heads", "n_heads"))
_ATTENTION_HEADS = (
    _HEADS,
    Column("kv_heads", ("num_kv_heads", "num_key_value_heads", "n_kv_heads")),
    Column("head_dim", ("head_size",)),
    Column("window", ("window_size", "sliding_window"), default=0.0, least=0.0),
)
_GEMM = (_BATCH, Column("m"), Column("n"), Column("k"))
_MLA = (
    _HEADS,
    Column("batch", ("b", "batch_size")),
    Column("q_len", ("seq_len",)),
    Column("kv_len", ("context_len",), least=0.0),
)
_ROWS = Column("rows", ("tokens", "num_tokens"))
_ELEMENTS_IN = Column("elements_in", ("elems_in",))
_ELEMENTS_OUT = Column("elements_out", ("elems_out",))
_ROW_WISE = (_ROWS, Column("columns", ("hidden", "cols")))

# The columns of `KernelTable.shape`, by family. `docs/data-formats.md` says what each of them means.
FAMILIES: Mapping[str, tuple[Column, ...]] = MappingProxyType(
    {
        "gemm": _GEMM,
        "bmm": _GEMM,
        "attention_prefill": (
            _BATCH,
            Column("q_len", ("isl",)),
            Column("prefix", ("prefix_len",), default=0.0, least=0.0),
            *_ATTENTION_HEADS,
        ),
        "attention_decode": (_BATCH, Column("kv_len", ("context_len",)), *_ATTENTION_HEADS),
        "attention_mixed": (
            Column("prefill_q", least=0.0),
            Column("prefill_kv", default=0.0, least=0.0),
            Column("n_decode", least=0.0),
            Column("kv_decode", least=0.0),
            *_ATTENTION_HEADS,
        ),
        "mla_prefill": _MLA,
        "mla_decode": _MLA,
        "mla_pre": _MLA,
        "mla_post": _MLA,
        "moe": (
            Column("tokens", ("num_tokens",)),
            Column("hidden", ("hidden_size",)),
            Column("inter", ("inter_size", "intermediate_size", "moe_intermediate_size")),
            Column("topk", ("top_k",)),
            Column("experts", ("num_experts",)),
            Column("tp", ("moe_tp_size", "tensor_parallel"), default=1.0),
            Column("ep", ("moe_ep_size", "expert_parallel"), default=1.0),
        ),
        "quantize": (Column("m"), Column("k")),
        "norm": _ROW_WISE,
        "softmax": _ROW_WISE,
        "embedding": _ROW_WISE,
        "elementwise": (_ELEMENTS_IN, _ELEMENTS_OUT, _ROWS),
        "rope": (_ELEMENTS_IN, _ELEMENTS_OUT, _ROWS),
        "convolution": (
            _BATCH,
            Column("input_channels", ("in_channels", "input_channel")),
            Column("output_channels", ("out_channels", "output_channel")),
            Column("input_size"),
            Column("kernel_size"),
            Column("stride", default=1.0),
            Column("padding", default=0.0, least=0.0),
        ),
        "collective": (
            Column("bytes", ("message_size",)),
            Column("num_gpus", ("ranks", "world_size", "n_dev")),
            Column("gpus_per_node", default=float("nan")),
            Column("tokens", default=0.0, least=0.0),
            Column("hidden", default=0.0, least=0.0),
            Column("topk", default=0.0, least=0.0),
            Column("experts", default=0.0, least=0.0),
            Column("sms", default=0.0, least=0.0),
        ),
    }
)


@dataclass(frozen=True)
class KernelTable:
    """Rows of one family as columns of equal length, SI units.

    `row` [R] int64 is the position in the user's table, so that predictions go back to the same rows in the same
    order. Text columns [R] are `Text` or arrays of Python strings (dtype object), "" where absent: `device` a name of
    hwspecs, or "" when unknown or known without a specification; `framework` in lower case, `version` and `kernel` as
    written; `dtype` and `cache` (of the KV cache) one of `names.DTYPES`. `shape` [R] float64 by the standard names of
    `FAMILIES[family]`. `latency` [R] float64 [s], NaN where absent, or None for a table without one. `flag` [R] int64,
    the sum of `FLAG_*`, 0 where absent. `text`: the other text columns that matter, such as op, distribution, source,
    split; of collectives also `wire`, the number format that tokens are stated to be sent in, "" for the default.
    """

    family: str
    row: np.ndarray
    device: TextColumn
    framework: TextColumn
    version: TextColumn
    kernel: TextColumn
    dtype: TextColumn
    cache: TextColumn
    shape: dict[str, np.ndarray]
    latency: np.ndarray | None
    flag: np.ndarray
    text: dict[str, TextColumn]

    def __len__(self) -> int:
        return len(self.row)

    @property
    def measured(self) -> np.ndarray:
        """`latency` of a table that is known to have one [s]."""
        if self.latency is None:
            raise ValueError(f"this table of {self.family} has no latency")
        return self.latency

    def take(self, index: np.ndarray) -> KernelTable:
        """The rows that `index` (positions or a mask) selects."""
        return KernelTable(
            self.family,
            self.row[index],
            self.device[index],
            self.framework[index],
            self.version[index],
            self.kernel[index],
            self.dtype[index],
            self.cache[index],
            {name: values[index] for name, values in self.shape.items()},
            None if self.latency is None else self.latency[index],
            self.flag[index],
            {name: values[index] for name, values in self.text.items()},
        )


@dataclass(frozen=True)
class Problem:
    """What is wrong with a row (counted from 0), or with `count` alike rows of which `row` is the first.

    `excluded` says whether the rows are left out of the tables; otherwise they are there, with what is wrong absent.
    """

    row: int
    column: str
    message: str
    count: int = 1
    excluded: bool = False


@dataclass(frozen=True)
class Read:
    """All of a file: its tables, one a family, what was wrong, the number of rows in the file, its path, and, where
    something was wrong in a file that people read by lines, the line of each row."""

    tables: tuple[KernelTable, ...]
    problems: tuple[Problem, ...]
    rows: int
    path: str
    lines: Sequence[int] = ()

    def located(self, problem: Problem) -> str:
        """A problem as one line that names file, row and column: `runs.csv, line 7, column 'm': ...`."""
        place = f"line {self.lines[problem.row]}" if self.lines else f"row {problem.row}"
        alike = f" ({problem.count} rows)" if problem.count > 1 else ""
        column = f", column '{problem.column}'" if problem.column else ""
        return shortened(f"{self.path}, {place}{column}: {problem.message}{alike}")

    def table(self, family: str) -> KernelTable | None:
        """The table of a family, or None where the file has no row of it."""
        return next((table for table in self.tables if table.family == family), None)
