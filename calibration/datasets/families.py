"""Which family of kernels a row belongs to, told by the table's columns and its words for operations."""

from __future__ import annotations

import numpy as np

from calibration.datasets.columns import Sheet
from calibration.datasets.schema import FAMILIES
from hwspecs.errors import InputError, did_you_mean

# The columns that tell a family of a whole table, tried in this order. A set's members may go by their other names.
_BY_COLUMNS = (
    ("collective", ("num_gpus", "bytes")),
    ("moe", ("experts", "inter", "tokens")),
    ("attention_mixed", ("prefill_q", "n_decode")),
    ("attention_prefill", ("q_len", "prefix", "heads")),
    ("attention_decode", ("kv_len", "heads")),
    ("attention_prefill", ("q_len", "heads")),
    ("gemm", ("m", "n", "k")),
    ("convolution", ("input_channels", "output_channels", "kernel_size")),
)
_WORDS = {
    "gemm": ("linear", "matmul", "mm", "addmm"),
    "bmm": ("baddbmm", "batched_gemm"),
    "softmax": (),
    "norm": ("ln", "layernorm", "layer_norm", "rmsnorm", "rms_norm"),
    "elementwise": (
        *("add", "addu", "sub", "mul", "mulu", "div", "divu", "pow", "powu"),
        *("relu", "gelu", "silu", "tanh", "sigmoid", "exp", "act_fn"),
    ),
    "embedding": ("emb",),
    "rope": ("rotary_emb",),
    "convolution": ("conv", "conv2d"),
    "quantize": ("compute_scale", "scale_matrix"),
    "mla_pre": ("mla_gen_pre",),
    "mla_post": ("mla_gen_post",),
    "collective": (
        *("all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter", "reducescatter"),
        *("all_to_all", "alltoall", "send_recv", "sendrecv", "broadcast", "reduce"),
        *("moe_a2a_dispatch", "moe_a2a_combine"),
    ),
}
FAMILY_OF = {word: family for family, words in _WORDS.items() for word in words} | {name: name for name in FAMILIES}
_TELLING = ("kind", "family")  # the columns that tell it by row
COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
    **dict.fromkeys(("send", "recv", "p2p"), "send_recv"),
    "bcast": "broadcast",
}


def split_by_family(sheet: Sheet, family: str | None) -> list[tuple[str, np.ndarray]]:
    """The families of a piece and the positions of their rows; rows of no family are noted.

    A stated `family` holds for all rows; else a column `kind` with a known word, or `family` with any, tells it by row;
    else the columns tell it of the whole table, save that MLA, quantize and the row-wise operations are told by the
    word in `op`. A `kind` of unknown words alone, which tables also have for other things, is noted and not read.
    **Raises:** `InputError` for an unknown family, or where the columns fit none.
    """
    everything = np.arange(sheet.rows)
    if family is not None:
        if family not in FAMILIES:
            raise InputError(f"{family!r} is no family.{did_you_mean(family, FAMILIES)} Known: {', '.join(FAMILIES)}.")
        return [(family, everything)]
    kinds, families = ([word for word in sheet.text(name).values if word] if name in sheet else [] for name in _TELLING)
    if any(word.lower() in FAMILY_OF for word in kinds):
        return _by_word(sheet, "kind", None)
    if kinds:
        unread = f"{kinds[0]!r} is no known operation, so this column is not read.{did_you_mean(kinds[0], FAMILY_OF)}"
        sheet.notes.alike(everything + sheet.start, "kind", unread)
    if families:
        return _by_word(sheet, "family", None)
    whole = _of_columns(sheet)
    if "op" in sheet and whole not in ("collective", "moe"):
        return _by_word(sheet, "op", whole)
    if whole is None:
        raise InputError(f"{sheet.path}: {_nearest_family(sheet)}")
    return _batched(sheet, everything) if whole == "gemm" else [(whole, everything)]


def find_column(sheet: Sheet, family: str, name: str) -> str | None:
    """The name under which a piece has a column of a family's shape."""
    wanted = next(column for column in FAMILIES[family] if column.name == name)
    return next((known for known in (wanted.name, *wanted.other) if known in sheet), None)


def _missing(sheet: Sheet, family: str, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if find_column(sheet, family, name) is None]


def _of_columns(sheet: Sheet) -> str | None:
    for family, names in _BY_COLUMNS:
        # Queries over cached tokens need `prefix` to say how many; a bare `kv_len` beside `q_len` may mean either.
        unclear = "q_len" in sheet and "kv_len" in sheet and "prefix" not in names
        if not _missing(sheet, family, names) and not (family.startswith("attention_") and unclear):
            return family
    return None


def _by_word(sheet: Sheet, column: str, whole: str | None) -> list[tuple[str, np.ndarray]]:
    text = sheet.text(column)
    known = [FAMILY_OF.get(word.lower(), whole) for word in text.values]
    groups: dict[str, list[int]] = {}
    for code, (word, family) in enumerate(zip(text.values, known, strict=True)):
        if family is not None:
            groups.setdefault(family, []).append(code)
            continue
        message = (
            f"{word!r} is no known operation.{did_you_mean(word, FAMILY_OF)}" if word else "no operation is stated."
        )
        sheet.notes.alike(np.flatnonzero(text.codes == code) + sheet.start, column, message, excluded=True)
    found = [(family, np.flatnonzero(np.isin(text.codes, codes))) for family, codes in groups.items()]
    return [(family, index) for family, index in found if len(index)]


def _batched(sheet: Sheet, index: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """A plain table of m, n, k with a batch column holds both single and batched products."""
    column = find_column(sheet, "gemm", "batch")
    if column is None:
        return [("gemm", index)]
    many = sheet.number(column) > 1.0
    return [(family, rows) for family, rows in (("gemm", index[~many]), ("bmm", index[many])) if len(rows)]


def _nearest_family(sheet: Sheet) -> str:
    """Which family the columns nearly fit, and what it lacks."""

    def lack(entry: tuple[str, tuple[str, ...]]) -> float:
        return len(_missing(sheet, *entry)) / len(entry[1])

    family, names = min(_BY_COLUMNS, key=lack)
    missing = _missing(sheet, family, names)
    if not missing:
        missing = ["prefix"]
    if len(missing) == len(names):
        return (
            "no family of kernels fits its columns: name the family, or give the columns of one, "
            "such as m, n, k for gemm, or a column op."
        )
    hint = did_you_mean(missing[0], [name for name in sheet.columns if name not in names])
    return f"no family of kernels fits its columns; {family} comes nearest, but '{missing[0]}' is missing.{hint}"
