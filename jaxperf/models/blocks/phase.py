"""What one microbatch works on: new tokens of some sequences, in decode one of each, in prefill many."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float

from jaxperf.core.numerics import as_float


class Decode(eqx.Module):
    """One new token for each of `sequences`, which is the last of `context` tokens; `source`: tokens of an encoder
    that each sequence reads by cross-attention, 0 without one [1]."""

    sequences: Float[Array, "*batch"] = eqx.field(converter=as_float)
    context: Float[Array, "*batch"] = eqx.field(converter=as_float)
    source: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)

    @property
    def tokens(self) -> Float[Array, "*batch"]:
        """New tokens of all sequences [1]."""
        return self.sequences


class Prefill(eqx.Module):
    """`prompt` new tokens for each of `sequences`, after `prefix` cached ones; `source` as in `Decode` [1]."""

    sequences: Float[Array, "*batch"] = eqx.field(converter=as_float)
    prompt: Float[Array, "*batch"] = eqx.field(converter=as_float)
    prefix: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    source: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)

    @property
    def tokens(self) -> Float[Array, "*batch"]:
        """New tokens of all sequences [1]."""
        return self.sequences * self.prompt


Phase = Decode | Prefill
