"""How many rows each expert of a rank gets.

Tables of layers are measured on synthetic routing, which is computed here as it was made (aiconfigurator,
`balanced_logits`, `_generate_power_law_distribution` and `build_rank0_local_workload` of collector/helper.py): either
every expert gets the same number of tokens, or loads follow a power law and the measured rank is the one with the most.
Where a table states neither, each token chooses its experts at random.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from calibration.kernels.asked import Shape, does, way
from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.kernels.moe import ROW_TOLERANCE, Routing, rank_rows, touched_experts

NODES = 32  # loads that stand for those of all experts of a rank
# The most loaded expert of a layer, before all loads are scaled to their sum, over the least: of a layer with more
# copies than experts 0.8 tokens over one, else 2 over 0.01 (`_generate_power_law_distribution`).
BUSIEST, FEW_COPIES = 0.8, (0.01, 2.0)
LEAST = 1e-6  # of a mean load, where every one was rounded to zero


class Load(eqx.Module):
    """Of one rank: `tokens` that enter; `copies` of them, other ranks' experts' included; `rows` multiplied; `touched`
    experts; `piles` experts have each of `heights` rows, `single` more have one, one more has `most`, and the first
    multiplies `remote` rows of other ranks' experts [1]."""

    tokens: Float[Array, ""]
    copies: Float[Array, ""]
    rows: Float[Array, ""]
    touched: Float[Array, ""]
    piles: Float[Array, ""]
    heights: Float[Array, " N"]
    single: Float[Array, ""]
    most: Float[Array, ""]
    remote: Float[Array, ""]


def load(x: Shape) -> Load:
    """What the measured rank gets, as the ways of the table's routing tell (`calibration.datasets.routing`)."""
    kinds = (_random(x), _balanced(x), _power_law(x))
    at = jnp.where(does(x, "skew"), 2, jnp.where(does(x, "balanced"), 1, 0))
    own = jax.tree.map(lambda *each: jnp.select([at == place for place in range(len(each))], each), *kinds)
    return _with_remote(x, own)


def _random(x: Shape) -> Load:
    routing = Routing(x["experts"], x["topk"])
    rows = jnp.maximum(rank_rows(routing, x["tokens"], x["ep"]), 1.0)
    touched = jnp.clip(touched_experts(routing, x["tokens"], x["experts"] / x["ep"]), 1.0, rows)
    return _load(x, rows, touched, touched, jnp.full(NODES, whole_rows(rows / touched)))


def _balanced(x: Shape) -> Load:
    """Token t chooses the experts t + i stride, or evenly spaced ones where tokens are fewer than the stride."""
    stride, local = ceil_div(x["experts"], x["topk"]), x["experts"] / x["ep"]
    chosen = jnp.minimum(x["tokens"], stride)  # tokens that choose other experts than each other
    share = jnp.minimum(local / stride, 1.0)
    touched = jnp.clip(chosen * local / stride, 1.0, local)
    each = ceil_div(x["tokens"], stride)
    rows = jnp.maximum(x["tokens"] * local / stride, 1.0)
    return _load(x, rows, touched, touched, jnp.full(NODES, each), share * x["tokens"])


def _power_law(x: Shape) -> Load:
    """Loads x of density x^-skew, scaled to their sum, rounded, and repaired by single rows: of the least loaded of
    each rank in turn, or as earlier versions of the collector did (`_repaired_in_order`)."""
    tokens, local, ranks = x["tokens"], x["experts"] / x["ep"], x["ep"]
    mean_rows = tokens * x["topk"] / x["experts"]
    low, high = _ends(tokens, mean_rows)
    skew = jnp.where(does(x, "skew"), way(x, "skew"), 0.5)
    mean = _moment(low, high, skew, 1.0)
    at = (as_float(jnp.arange(NODES)) + 0.5) / NODES
    drawn = (low ** (1.0 - skew) + at * (high ** (1.0 - skew) - low ** (1.0 - skew))) ** (1.0 / (1.0 - skew))
    rounded = jnp.round(drawn / mean * mean_rows)
    heights = jnp.minimum(rounded, tokens)
    usual = local * mean_rows
    rows = usual * _busiest(local, ranks, _moment(low, high, skew, 2.0) / mean**2 - 1.0)
    rows = _possible(x, jnp.clip(rows, usual, local * tokens))
    loaded = jnp.mean(as_float(heights > 0.0))
    single = jnp.maximum(mean_rows - jnp.mean(heights), 0.0)
    share = jnp.minimum(loaded + single, 1.0) * jnp.where(mean_rows < 1.5, rows / usual, 1.0)
    in_order = does(x, "repaired_from_most") | does(x, "repaired_from_least")
    rows_then, touched_then = _repaired_in_order(x, rounded, mean_rows)
    rows = jnp.where(in_order, rows_then, rows)
    touched = jnp.where(in_order, touched_then, local * share)
    touched = jnp.maximum(jnp.minimum(touched, jnp.minimum(local, rows)), 1.0)
    alone = jnp.maximum(touched - local * loaded, 0.0)
    base = jnp.where(in_order, local * jnp.mean(heights) + alone, usual)
    most = jnp.round(jnp.maximum(rows - base, 0.0))
    return _load(x, rows, touched, local, heights, None, alone, most)


def _repaired_in_order(x: Shape, rounded: Array, mean_rows: Scalar) -> tuple[Scalar, Scalar]:
    """Rows and touched experts of the busiest rank where the single rows that rounding left over go from expert to
    expert in the order of their loads, equal ones by their numbers: those that had none lie side by side on one rank,
    and make it the busiest where tokens are few.

    From the most loaded on, no load was bounded by the tokens: a token that chose an expert twice goes to the first one
    that it did not choose, which is on the measured rank.
    """
    local, ranks, from_most = x["experts"] / x["ep"], x["ep"], does(x, "repaired_from_most")
    drawn = jnp.where(from_most, rounded, jnp.minimum(rounded, x["tokens"]))
    loaded, single = jnp.mean(as_float(drawn > 0.0)), jnp.maximum(mean_rows - jnp.mean(drawn), 0.0)
    idle = 1.0 - loaded
    onto_loaded = jnp.where(from_most, jnp.minimum(single, loaded), jnp.maximum(single - idle, 0.0))
    gathered = jnp.minimum((single - onto_loaded) * x["experts"], idle * local)
    repaired = drawn + jnp.where(drawn > 0.0, onto_loaded / jnp.maximum(loaded, LEAST), 0.0)
    held = jnp.minimum(repaired, x["tokens"])
    twice = jnp.where(from_most, jnp.mean(repaired - held) * x["experts"], 0.0)
    mean = jnp.maximum(jnp.mean(held), LEAST)
    over = _busiest(local, ranks, jnp.maximum(jnp.mean(held**2) / mean**2 - 1.0, LEAST))
    rows, beside = local * mean * over, local * mean + gathered
    touched = local * loaded * jnp.where(jnp.mean(drawn) < 1.0, over, 1.0)
    touched = jnp.where(beside >= rows, local * loaded + gathered, touched) + twice
    return _possible(x, jnp.maximum(rows, beside) + twice), touched


def _possible(x: Shape, rows: Scalar) -> Scalar:
    """At least one row, and no more than all copies, or every token for each of the rank's experts."""
    most = x["tokens"] * jnp.minimum(x["topk"], x["experts"] / x["ep"])
    return jnp.maximum(jnp.minimum(rows, most), 1.0)


def _ends(tokens: Scalar, mean_rows: Scalar) -> tuple[Scalar, Scalar]:
    few, many = FEW_COPIES
    low = jnp.where(mean_rows > 1.0, 1.0, few)
    return low, jnp.where(mean_rows > 1.0, jnp.maximum(BUSIEST * tokens, 1.001), many)


def _moment(low: Scalar, high: Scalar, skew: Scalar, power: float) -> Scalar:
    """Mean of x^power under a density x^-skew between two ends."""
    of = lambda p: (high**p - low**p) / p  # noqa: E731
    return of(power + 1.0 - skew) / of(1.0 - skew)


def _busiest(local: Scalar, ranks: Scalar, variance: Scalar) -> Scalar:
    """Load of the busiest rank over the mean: the expected largest of so many gamma variables (Blom's plotting rule;
    Wilson and Hilferty's cube of a normal variable), `variance` that of one expert's load over its squared mean."""
    shape = local / variance
    largest = jax.scipy.special.ndtri((ranks - 0.375) / (ranks + 0.25))
    cube = jnp.maximum(1.0 - 1.0 / (9.0 * shape) + largest / (3.0 * jnp.sqrt(shape)), 0.0) ** 3
    return jnp.where(ranks > 1.0, cube, 1.0)


def _load(
    x: Shape,
    rows: Scalar,
    touched: Scalar,
    spread: Scalar,
    heights: Array,
    seen: Scalar | None = None,
    single: Scalar | float = 0.0,
    most: Scalar | float = 0.0,
) -> Load:
    """`spread`: experts that share the `heights` out; `seen`: tokens that chose any expert of the rank."""
    seen = x["tokens"] * -jnp.expm1(-rows / x["tokens"]) if seen is None else seen
    return Load(
        tokens=jnp.where(x["ep"] > 1.0, seen, x["tokens"]),
        copies=x["tokens"] * x["topk"],
        rows=rows,
        touched=touched,
        piles=spread / NODES,
        heights=heights,
        single=as_float(single),
        most=as_float(most),
        remote=as_float(0.0),
    )


def _with_remote(x: Shape, own: Load) -> Load:
    """Whose kernel skips what is not its own takes all tokens in; whose does not (`remote_first`) takes those that
    chose any of its experts, and multiplies their other copies by its first expert."""
    whole = does(x, "remote_first")
    tokens = jnp.where(whole, whole_rows(own.tokens), x["tokens"])
    copies = tokens * x["topk"]
    remote = jnp.where(whole, jnp.round(jnp.maximum(copies - own.rows, 0.0)), 0.0)
    return dataclasses.replace(own, tokens=tokens, copies=copies, rows=own.rows + remote, remote=remote)


def whole_rows(expected: Scalar) -> Scalar:
    """An expected number of rows, rounded up, where it is not whole but for rounding."""
    return ceil_div(jnp.maximum(expected - ROW_TOLERANCE, 1.0), jnp.ones_like(expected))
