"""The share of a model that one of several tensor-parallel devices holds (Megatron-LM, arXiv:1909.08053, section 3).

Heads and feed-forward units are divided, and so are the rows of the token table and of the output head; norms and
residual sums are worked through by every device in full.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from hwspecs.errors import InputError
from jaxperf.models.config import Encoder, Layer, ModelConfig
from jaxperf.models.mixers import Attention, GatedDelta, KimiDelta, LightningAttention, Mamba2, Mla, ShortConv

ROWS_MULTIPLE = 128  # the token table of one device has a multiple of so many rows (Megatron-LM's default)
TOKEN_TABLE = "tokens"  # an encoder's own token table
DIVIDED = ("Attention", "Mla", "Mamba2", "GatedDelta", "KimiDelta", "LightningAttention", "ShortConv")


def tensor_shard(config: ModelConfig, ranks: int) -> ModelConfig:
    """The description of what one of `ranks` devices holds; of one device the model itself.

    Key and value heads fewer than `ranks` are held by several devices each.
    **Raises:** `InputError` for heads or units that `ranks` does not divide, and mixers that cannot be divided.
    """
    if ranks == 1:
        return config
    where = f"{config.name} over {ranks} tensor-parallel devices"
    return dataclasses.replace(
        config,
        layers=tuple(_layer(layer, ranks, where) for layer in config.layers),
        encoders=tuple(_encoder(tower, ranks, where) for tower in config.encoders),
        vocabulary=_rows(config.vocabulary, ranks),
    )


def layer_reductions(layer: Layer) -> int:
    """How many all-reduces of the residual stream a layer needs in each pass: one for every block that writes to it."""
    blocks = sum(block is not None for block in (layer.mixer, layer.cross, layer.ffn))
    return blocks - 1 if layer.parallel else blocks


def _layer(layer: Layer, ranks: int, where: str) -> Layer:
    mixers = {name: _mixer(getattr(layer, name), ranks, where) for name in ("mixer", "beside", "cross")}
    return dataclasses.replace(layer, **mixers, ffn=_feed_forward(layer.ffn, ranks, where))


def _mixer(mixer: Any, ranks: int, where: str) -> Any:
    match mixer:
        case None:
            return None
        case Attention(heads=heads, kv_heads=groups):
            own = _share(heads, ranks, f"{where}: heads")
            kept = 1 if ranks % groups == 0 else _share(groups, ranks, f"{where}: key and value heads")
            return dataclasses.replace(mixer, heads=own, kv_heads=kept)
        case Mla(heads=heads) | KimiDelta(heads=heads) | LightningAttention(heads=heads):
            return dataclasses.replace(mixer, heads=_share(heads, ranks, f"{where}: heads"))
        case Mamba2(heads=heads, groups=groups):
            own = _share(heads, ranks, f"{where}: heads")
            kept = 1 if ranks % groups == 0 else _share(groups, ranks, f"{where}: groups of heads")
            return dataclasses.replace(mixer, heads=own, groups=kept)
        case GatedDelta(key_heads=keys, value_heads=values):
            own, kept = _share(values, ranks, f"{where}: value heads"), _share(keys, ranks, f"{where}: key heads")
            return dataclasses.replace(mixer, key_heads=kept, value_heads=own)
        case ShortConv(width=width):
            return dataclasses.replace(mixer, width=_share(width, ranks, f"{where}: channels"))
        case _:
            kind = type(mixer).__name__
            raise InputError(f"{where}: the token mixer {kind} is not divided yet; {', '.join(DIVIDED)} are.")


def _feed_forward(ffn: Any, ranks: int, where: str) -> Any:
    if ffn is None:
        return None
    widths = {
        name: _share(getattr(ffn, name), ranks, f"{where}: feed-forward units")
        for name in ("intermediate", "shared_intermediate")
        if getattr(ffn, name, 0)
    }
    return dataclasses.replace(ffn, **widths)


def _encoder(tower: Encoder, ranks: int, where: str) -> Encoder:
    tables = tuple(
        dataclasses.replace(table, rows=_rows(table.rows, ranks)) if table.name == TOKEN_TABLE else table
        for table in tower.tables
    )
    layers = tuple(_layer(layer, ranks, where) for layer in tower.layers)
    return dataclasses.replace(tower, layers=layers, tables=tables, vocabulary=_rows(tower.vocabulary, ranks))


def _share(count: int, ranks: int, what: str) -> int:
    if count % ranks:
        raise InputError(f"{what}: {count} is not a multiple of {ranks}.")
    return count // ranks


def _rows(rows: int, ranks: int) -> int:
    """One device's rows of a table that is padded to a multiple of `ROWS_MULTIPLE` for each."""
    return -(-rows // (ROWS_MULTIPLE * ranks)) * ROWS_MULTIPLE
