"""NeuSight's tables (MIT): fp32 PyTorch operations, and the nodes of operation graphs measured in place."""

from __future__ import annotations

import ast
import math
from typing import Any

import numpy as np
import pyarrow as pa

from calibration.datasets.columns import parse_numbers, parse_text, with_columns
from calibration.datasets.schema import FLAG_BROKEN_SOURCE

# Its columns by their standard names (`columns.standard_name`): people change the case.
_NEUSIGHT = {
    "opname": "op",
    "latency": "latency_ms",  # both of NeuSight's layouts measure in milliseconds
    "kernel_name": "kernel",
    "torch_version": "version",
    "torch": "version",
    "b": "batch",
    "n": "k",  # B x (M x N) . (N x K): NeuSight's N is the reduction
    "k": "n",
    "input_channel": "input_channels",
    "output_channel": "output_channels",
    "kernel_szie": "kernel_size",  # spelled so in the artefact
}
NODES = ("fwops", "device", "cfg")
COLUMNS = frozenset((*_NEUSIGHT, *NODES, "fw_ms", "h"))  # that are read besides the standard ones
_TWO_TENSORS = ("add", "sub", "mul", "div", "pow")  # a trailing u (addu) is a tensor with a scalar


def is_neusight(names: set[str]) -> bool:
    """NeuSight names its operation `OPName`, or has row operations (`H`) and products (`M`, `N`, `K`) in one table."""
    return "b" in names and ("opname" in names or {"op", "h", "m", "n", "k"} <= names)


def rewrite_operations(table: pa.Table) -> pa.Table:
    """Operations with standard columns; row-wise ones work on `B` rows of `H`."""
    # A column that already has the standard name stays beside the other: reading refuses the two with a sentence.
    taken = set(table.column_names) - {"n", "k"}  # which change places
    standard = {name: other for name, other in _NEUSIGHT.items() if other not in taken}
    renamed = table.rename_columns([standard.get(name, name) for name in table.column_names])
    added: dict[str, object] = {}
    if "h" in table.column_names:
        # Exact integers: B and H are counts below 2**53.
        elements = parse_numbers(table["b"])[0] * parse_numbers(table["h"])[0]
        operation = parse_text(renamed["op"])
        tensors = np.array([2.0 if word.lower() in _TWO_TENSORS else 1.0 for word in operation.values])
        added = {
            "rows": table["b"],
            "columns": renamed["h"],
            "elements_in": tensors[operation.codes] * elements,
            "elements_out": elements,
        }
    if "dtype" not in renamed.column_names:
        added["dtype"] = pa.repeat("fp32", len(table))
    if "framework" not in renamed.column_names:
        added["framework"] = pa.repeat("torch", len(table))
    if "flag" not in renamed.column_names:
        added["flag"] = _broken(renamed)
    return with_columns(renamed, added)


def _broken(renamed: pa.Table) -> np.ndarray:
    """NeuSight's training rows of `linear` on the P4 were measured wrongly: above 1e11 FLOP they reach 17 % of its
    5.5 TFLOP/s in the median, while its test rows reach 69 % and its batched products 55 %. They stay in the table,
    under `FLAG_BROKEN_SOURCE`."""
    broken = np.ones(len(renamed), bool)
    for column, word in (("device", "tesla p4"), ("op", "linear"), ("split", "train")):
        if column not in renamed.column_names:
            return np.zeros(len(renamed), np.int64)
        text = parse_text(renamed[column])
        broken &= np.array([value.lower() == word for value in text.values])[text.codes]
    return np.where(broken, FLAG_BROKEN_SOURCE, 0)


def is_nodes(names: set[str]) -> bool:
    """Whether these are nodes of NeuSight's graphs, measured or not."""
    return set(NODES) <= names


def rewrite_nodes(table: pa.Table) -> pa.Table:
    """Nodes of graphs as operations: those whose forward pass is one operation with a known kernel.

    The other nodes move data or do nothing; they get no operation and no time, and so belong to no family.
    """
    forward = parse_text(table["fwops"])
    operations = [_node_operation(text) for text in forward.values]
    codes = forward.codes.tolist()
    columns: dict[str, Any] = {
        name: pa.array([operations[code].get(name) for code in codes], pa.float64()) for name in "bmnkh"
    }
    words = [operations[code].get("op", "") for code in codes]
    columns |= {
        "op": pa.array(words, pa.string()),
        "kind": pa.array(words, pa.string()),  # which, unlike op, leaves nothing to the columns
        "device": table["device"],
        "model": table["cfg"],
    }
    if "fw_ms" in table.column_names:
        measured = parse_numbers(table["fw_ms"])[0]
        columns["latency_ms"] = np.where([bool(word) for word in words], measured, math.nan)
    return rewrite_operations(pa.table(columns))


def _node_operation(text: str) -> dict[str, Any]:
    """[['Linear', (8192, 1024, 4096)]] as {op: linear, b: 1, m: 8192, n: 1024, k: 4096}; {} for anything else."""
    try:
        ((word, sizes),) = ast.literal_eval(text)
        names = {"Linear": "mnk", "BMM": "bmnk"}.get(word, "bh" if word.startswith("VEC") else "")
        if not names or len(names) != len(sizes):
            return {}
        op = word.removeprefix("VEC").lower()
        return {"op": op, "b": 1.0} | {name: float(size) for name, size in zip(names, sizes, strict=True)}
    except (ValueError, SyntaxError, TypeError, AttributeError):
        return {}
