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
    chosen together, by each head for the heads that share a key (MiniMax M3); `pool` tokens whose keys become one,
    which is cached and scored for all of them, by learned weights in latent attention (GLM 5.3), else their mean
    (Qwen4).
    """

    heads: int
    dim: int
    top_k: int
    shared: bool = False
    block: int = 1
    pool: int = 1

    def __post_init__(self) -> None:
        check_counts(self, "heads", "dim", "top_k", "block", "pool")
        check_flags(self, "shared")
        if self.block > 1 and self.pool > 1:
            raise InputError("Indexer.block and Indexer.pool are both above 1; tokens are chosen by one of them.")
        if self.top_k % self.block or self.top_k % self.pool:
            together = max(self.block, self.pool)
            raise InputError(f"Indexer.top_k is {self.top_k}; it must be whole blocks of {together} tokens.")
