"""What a machine has for sparse operands beside its dense levels: widths of words and metadata, energies of actions."""

from __future__ import annotations

import math

import equinox as eqx
from jaxtyping import Array, Float

from jaxperf.core.numerics import as_float

ACTIONS = ("reads", "fills", "updates")


class Energies(eqx.Module):
    """Energy of one access of a block, by action [J]."""

    reads: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    fills: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    updates: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)


class SparseLevel(eqx.Module):
    """The sparse side of a storage level.

    `word_bits`, `metadata_bits`: widths of a word and of a unit of metadata [bit]; `metadata_width`: bits of one access
    of the metadata's storage, 0 where metadata is not stored [bit]; `metadata_size`: bits that an instance can hold
    [bit]. Energies of an access: `gated` and `skipped` words; `metadata` and what of it is gated or skipped;
    `decompression`, `compression`: of one word on its way [J].
    """

    word_bits: Float[Array, "*batch"] = eqx.field(converter=as_float, default=16.0)
    metadata_bits: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    metadata_width: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    metadata_size: Float[Array, "*batch"] = eqx.field(converter=as_float, default=math.inf)
    gated: Energies = eqx.field(default_factory=Energies)
    skipped: Energies = eqx.field(default_factory=Energies)
    metadata: Energies = eqx.field(default_factory=Energies)
    gated_metadata: Energies = eqx.field(default_factory=Energies)
    skipped_metadata: Energies = eqx.field(default_factory=Energies)
    decompression: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    compression: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
