"""Which operands of a traced loop are what, in the words of every JAX that we run on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def scan_operands(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many operands of a `scan` are the same in every turn, and how many are carried; the rest are its rows.

    `params`: of the primitive. JAX 0.10 counts both; 0.12 has the operands' trees instead.
    """
    if "ft_in" not in params:
        return params["num_consts"], params["num_carry"]
    same, carried, _ = (len(list(group)) for group in params["ft_in"].unpack())
    return same, carried
