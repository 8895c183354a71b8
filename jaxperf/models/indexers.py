"""What chooses the tokens that sparse attention sees, in a described model. Nothing here imports JAX."""

from __future__ import annotations

from dataclasses import dataclass

from hwspecs.errors import InputError
from jaxperf.models.checks import check_counts, check_flags


@dataclass(frozen=True)
class Indexer:
    """The scorer of sparse attention that keeps the `top_k` tokens a query sees (DeepSeek V3.2, arXiv:2512.02556).

    **Fields:** `heads` scoring queries of `dim` elements, against one cached key of `dim` elements a token; `shared`
    the tokens are those an earlier layer chose: no weights, no cached key, no scores (GLM 5); `block` tokens that are
    chosen together, by each head for the heads that share a key (MiniMax M3).
    """

    heads: int
    dim: int
    top_k: int
    shared: bool = False
    block: int = 1

    def __post_init__(self) -> None:
        check_counts(self, "heads", "dim", "top_k", "block")
        check_flags(self, "shared")
        if self.top_k % self.block:
            raise InputError(f"Indexer.top_k is {self.top_k}; it must be whole blocks of {self.block} tokens.")
