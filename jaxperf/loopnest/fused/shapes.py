"""Chains that networks are made of: attention, and the two matrix products of a feed-forward layer."""

from __future__ import annotations

from jaxperf.loopnest.fused.chain import Chain, ChainNames, Einsum, build_chain

Built = tuple[Chain, ChainNames]
# Operations a score: maximum, difference, six of the exponential, sum, as of FuseMax (Nayak et al., MICRO 2024).
SOFTMAX = 9.0


def attention(
    queries: float, keys: float, dim: float, heads: float, kv_heads: float, batch: float = 1.0, softmax: float = SOFTMAX
) -> Built:
    """S = Q K^T, P = exp(S), O = P V: FlashAttention's chain (Dao et al., NeurIPS 2022).

    Ranks: H key-value heads of all sequences, R query heads that share one, Q queries, K keys, E and F the size of a
    head. The softmax counts `softmax` operations of a unit a score, one after the other. Left out: keeping the maximum
    and the sum of every row, and rescaling O by them, an operation a word of O and key tile.

    **Arguments:** `queries`, `keys`: of one sequence; `dim`: size of a head; `heads`, `kv_heads`: of one sequence,
    `kv_heads` dividing `heads`; `batch`: sequences [1].
    """
    ranks = {"Scores": ("H", "R", "Q", "K"), "Probabilities": ("H", "R", "Q", "K")}
    first = {"Queries": ("H", "R", "Q", "E"), "Keys": ("H", "K", "E"), "Scores": ranks["Scores"]}
    last = {"Probabilities": ranks["Probabilities"], "Values": ("H", "K", "F"), "Outputs": ("H", "R", "Q", "F")}
    chain = [
        Einsum("Scores", ("Queries", "Keys"), first),
        Einsum("Probabilities", ("Scores",), ranks, softmax),
        Einsum("Outputs", ("Probabilities", "Values"), last),
    ]
    bounds = {"H": kv_heads * batch, "R": heads / kv_heads, "Q": queries, "K": keys, "E": dim, "F": dim}
    return build_chain(chain, bounds)


def mlp(tokens: float, hidden: float, inner: float) -> Built:
    """H = X U, Y = H D: tokens M, hidden width D in and E out, inner width F [1]; the activation between is free."""
    chain = [
        Einsum("Inner", ("Inputs", "Up"), {"Inputs": ("M", "D"), "Up": ("D", "F"), "Inner": ("M", "F")}),
        Einsum("Outputs", ("Inner", "Down"), {"Inner": ("M", "F"), "Down": ("F", "E"), "Outputs": ("M", "E")}),
    ]
    return build_chain(chain, {"M": tokens, "F": inner, "D": hidden, "E": hidden})
