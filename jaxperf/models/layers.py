"""A transformer as arrays: one leaf per width or count, layers that are alike grouped with a repeat count.

Structure (which mixer, which feed-forward, how many norms) is Python and decided at trace time, per layer; every
number is a traced leaf.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import as_float
from jaxperf.models import config as described
from jaxperf.models.block_formats import PLAIN, Formats, own_formats
from jaxperf.models.blocks.attention import AttentionMixer
from jaxperf.models.blocks.base import AbstractBlock, AbstractFfn, AbstractMixer
from jaxperf.models.blocks.catalog import cross_of, ffn_of, mixer_of
from jaxperf.models.blocks.cross_attention import CrossAttention
from jaxperf.models.blocks.mlp import DenseFfn
from jaxperf.models.blocks.moe import MoeFfn

__all__ = ["AttentionMixer", "DenseFfn", "LayerGroup", "MoeFfn", "Tower", "Transformer", "transformer"]

UNQUANTIZED = (("mixer", PLAIN), ("ffn", PLAIN), ("shared", PLAIN))


class LayerGroup(eqx.Module):
    """`repeats` layers that are alike: mixer, cross-attention and feed-forward block, any of which may be missing.

    `beside`: a second mixer that reads what the first reads; `norms` of the residual width; `parallel`: mixer and
    feed-forward read the same input and are added once; `own`: blocks whose format is not that of the weights, with
    its name, as in `block_formats.own_formats`; `extra`: elements that no block has, in memory but not timed; `stored`
    false where the weights are those of earlier layers; `streams` of the residual, and `stream_weights` made of them
    around each block; `projections`: inputs and outputs of
    matrices beside the blocks, which every rank holds whole.
    """

    mixer: AbstractMixer | None
    ffn: AbstractFfn | None
    repeats: Float[Array, "*batch"] = eqx.field(converter=as_float)
    cross: AbstractMixer | None = None
    beside: AbstractMixer | None = None
    norms: int = eqx.field(static=True, default=2)
    parallel: bool = eqx.field(static=True, default=False)
    own: Formats = eqx.field(static=True, default=())
    extra: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    stored: bool = eqx.field(static=True, default=True)
    streams: int = eqx.field(static=True, default=1)
    stream_weights: int = eqx.field(static=True, default=0)
    projections: tuple[tuple[Float[Array, "*batch"], Float[Array, "*batch"]], ...] = ()

    @property
    def mixers(self) -> tuple[AbstractMixer, ...]:
        """The mixers that work on the layer's own tokens."""
        return tuple(mixer for mixer in (self.mixer, self.beside) if mixer is not None)

    @property
    def blocks(self) -> tuple[tuple[AbstractBlock, str], ...]:
        """All blocks, each with its kind: "mixer" (cross-attention too), "beside" or "ffn"."""
        kinds = ((self.mixer, "mixer"), (self.beside, "beside"), (self.cross, "mixer"), (self.ffn, "ffn"))
        return tuple((block, kind) for block, kind in kinds if block is not None)

    @property
    def merged(self) -> bool:
        """Whether cross-attention is part of the attention before it (T5Gemma 2)."""
        return isinstance(self.cross, CrossAttention) and self.cross.merged

    @property
    def added_once(self) -> bool:
        """Whether the feed-forward block's all-reduce adds the mixer's partial sums too (Falcon, GPT-J)."""
        return self.parallel and isinstance(self.ffn, DenseFfn)


class Tower(eqx.Module):
    """An encoder: it reads all positions of one input at once and hands tokens on.

    `length`: positions of one input and `tokens` handed on for it, where they are `fixed`, the tower's own; else
    `merge` positions become one token; `vocabulary`, `positions`: rows of tables of its own; `input_depth`: weights
    per element of the patch embedding; `norms` outside the layers; `projector`: weights used once for each token
    handed on; `extra`: other elements; `kind` "text", "image" or "audio".
    """

    hidden: Float[Array, "*batch"] = eqx.field(converter=as_float)
    length: Float[Array, "*batch"] = eqx.field(converter=as_float)
    tokens: Float[Array, "*batch"] = eqx.field(converter=as_float)
    merge: Float[Array, "*batch"] = eqx.field(converter=as_float)
    vocabulary: Float[Array, "*batch"] = eqx.field(converter=as_float)
    positions: Float[Array, "*batch"] = eqx.field(converter=as_float)
    input_depth: Float[Array, "*batch"] = eqx.field(converter=as_float)
    projector: Float[Array, "*batch"] = eqx.field(converter=as_float)
    extra: Float[Array, "*batch"] = eqx.field(converter=as_float)
    groups: tuple[LayerGroup, ...]
    kind: str = eqx.field(static=True)
    fixed: bool = eqx.field(static=True)
    norms: int = eqx.field(static=True)
    has_input: bool = eqx.field(static=True)
    has_projector: bool = eqx.field(static=True)


class Transformer(eqx.Module):
    """Widths and layers of a model. `output_tables`: 1 where the output head has a table of its own, 0 if tied;
    `positions`: rows of a learned position table; `max_context`: tokens it was trained for, infinite if unknown;
    `embedding_width`: columns of the token table, projected to `hidden` and back where `projected`; `tables`: elements
    of other tables, whose rows are divided like those of the token table; `extra`: elements that every rank holds;
    `towers`: its encoders; without `groups` it is nothing else and has no decode."""

    hidden: Float[Array, "*batch"] = eqx.field(converter=as_float)
    vocabulary: Float[Array, "*batch"] = eqx.field(converter=as_float)
    output_tables: Float[Array, "*batch"] = eqx.field(converter=as_float)
    positions: Float[Array, "*batch"] = eqx.field(converter=as_float)
    max_context: Float[Array, "*batch"] = eqx.field(converter=as_float)
    embedding_width: Float[Array, "*batch"] = eqx.field(converter=as_float)
    extra: Float[Array, "*batch"] = eqx.field(converter=as_float)
    groups: tuple[LayerGroup, ...]
    towers: tuple[Tower, ...] = ()
    projected: bool = eqx.field(static=True, default=False)
    tables: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)

    @property
    def num_layers(self) -> Float[Array, "*batch"]:
        """Layers of all groups [1]."""
        return sum((group.repeats for group in self.groups), start=as_float(0.0))

    @property
    def streams(self) -> int:
        """Streams of the residual between layers [1]."""
        return max((group.streams for group in self.groups), default=1)

    @property
    def encodes_prompt(self) -> bool:
        """Whether the prompt goes to an encoder and the decoder starts from one token (T5)."""
        return self.crosses and any(tower.kind == "text" for tower in self.towers)

    @property
    def split_groups(self) -> tuple[LayerGroup, ...]:
        """The layers that tensor parallelism must divide; engines pad the heads of a tower that only makes tokens."""
        towers = [tower for tower in self.towers if tower.kind == "text" or self.crosses or not self.groups]
        return (*self.groups, *(group for tower in towers for group in tower.groups))

    @property
    def crosses(self) -> bool:
        """Whether any layer reads an encoder's tokens by cross-attention."""
        return any(group.cross is not None for group in self.groups)


def transformer(config: described.ModelConfig) -> Transformer:
    """The arrays of a described model. Raises `InputError` for a kind of layer that is not timed."""
    return Transformer(
        hidden=config.hidden,
        vocabulary=config.vocabulary,
        output_tables=0.0 if config.tied_embeddings else 1.0,
        positions=config.positions,
        max_context=config.max_context or jnp.inf,
        embedding_width=config.embedding_width,
        extra=config.other_parameters,
        groups=_groups(config.layers, [own_formats(config, index) for index in range(len(config.layers))]),
        towers=tuple(_tower(encoder) for encoder in config.encoders),
        projected=config.embedding_width != config.hidden,
        tables=sum(table.rows * table.columns for table in config.tables),
    )


def _groups(layers: Sequence[described.Layer], formats: Sequence[Formats]) -> tuple[LayerGroup, ...]:
    """The distinct layers, by what they are and which blocks have formats of their own, with how often each occurs."""
    return tuple(
        LayerGroup(
            mixer=None if layer.mixer is None else mixer_of(layer.mixer),
            ffn=None if layer.ffn is None else ffn_of(layer.ffn, own),
            repeats=count,
            cross=None if layer.cross is None else cross_of(layer.cross),
            beside=None if layer.beside is None else mixer_of(layer.beside),
            norms=layer.norms,
            parallel=layer.parallel,
            own=own,
            extra=layer.other_parameters,
            stored=not layer.shared,
            streams=layer.streams,
            stream_weights=layer.stream_weights,
            projections=tuple((as_float(inputs), as_float(outputs)) for inputs, outputs in layer.projections),
        )
        for (layer, own), count in Counter(zip(layers, formats, strict=True)).items()
    )


def _tower(encoder: described.Encoder) -> Tower:
    """Towers that read images or sound are left unquantized, as in the quantizations in use."""
    return Tower(
        hidden=encoder.hidden,
        length=encoder.length or 0,
        tokens=encoder.tokens or encoder.length or 0,
        merge=encoder.merge,
        vocabulary=encoder.vocabulary,
        positions=encoder.positions,
        input_depth=encoder.input_parameters / encoder.hidden,
        projector=encoder.projector_parameters,
        extra=sum(table.rows * table.columns for table in encoder.tables) + encoder.other_parameters,
        groups=_groups(encoder.layers, [() if encoder.kind == "text" else UNQUANTIZED] * len(encoder.layers)),
        kind=encoder.kind,
        fixed=encoder.length is not None,
        norms=encoder.norms,
        has_input=encoder.input_parameters > 0,
        has_projector=encoder.projector_parameters > 0,
    )
