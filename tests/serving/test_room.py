"""How many sequences fit: those that do, where the quotient of bytes rounds up to one more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from jaxperf.serving.room import _most


def test_a_sequence_that_misses_by_a_bit_does_not_fit() -> None:
    each, usable = float.fromhex("0x1.1069c088d6db8p+3"), float.fromhex("0x1.658accb39a001p+7")
    assert usable / each == 21.0 and 21 * each > usable

    def memory(sequences: int) -> Any:
        return SimpleNamespace(kv_cache=each * sequences, usable=usable, weights=0.0, activations=0.0)

    assert _most(memory, memory(1), 1) == 20
