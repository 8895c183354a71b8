"""The zeros of a nest's operands, and what a machine makes of them."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float

from jaxperf.core.numerics import as_float
from jaxperf.loopnest.sparse.density import Density
from jaxperf.loopnest.sparse.formats import Format
from jaxperf.loopnest.sparse.hardware import SparseLevel
from jaxperf.loopnest.sparse.optimization import Directive


class Sparsity(eqx.Module):
    """`densities`: of each operand; `levels`: as the architecture's; energies of an operation that is gated or skipped
    [J]. `formats`: by level and operand, None for words that are stored as they are; `directives`: of storage;
    `gates_zeros`: units gate operations with a zero; `skips_unaligned`: and skip those of which an operand is absent.
    """

    densities: tuple[Density, ...]
    levels: tuple[SparseLevel, ...]
    gated_mac_energy: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    skipped_mac_energy: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    formats: tuple[tuple[Format | None, ...], ...] = eqx.field(static=True, kw_only=True)
    directives: tuple[Directive, ...] = eqx.field(static=True, default=(), kw_only=True)
    gates_zeros: bool = eqx.field(static=True, default=False, kw_only=True)
    skips_unaligned: bool = eqx.field(static=True, default=False, kw_only=True)
