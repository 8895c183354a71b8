"""Nemotron-Labs Dory: an nGPT (arXiv:2410.01131) whose middle layers are passed several times with the same weights."""

from __future__ import annotations

import dataclasses
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import biased_attention, decoder, full_every, gated_mlp, varied
from jaxperf.models.config import Layer, ModelConfig

LOOPS = ("n_input_layers", "n_output_layers", "n_recurrent_layers")


def _dory(fields: Fields) -> ModelConfig:
    """Norms without weights around each block; a rate for each channel of the residual, queries, their gates and units
    scaled by vectors. Each pass of the middle layers keeps keys and values of its own."""
    fields = _paired(fields)
    if fields.data.get("recurrent_kv_cache_mode", "per_loop") != "per_loop":
        raise InputError('recurrent_kv_cache_mode must be "per_loop"; a cache that passes share is not described.')
    count, bias = fields.layer_count(), fields.flag("mlp_bias", False)
    attention = biased_attention(fields, multi_head=False, head_dim=256, output_gate=True)
    mixers = varied(attention, window=full_every(fields, 4, fields.count_or("sliding_window", 1024)))
    block, width = gated_mlp(fields, bias=bias), attention.heads * attention.head_dim
    vectors = 2 * (fields.count("hidden_size") + width + block.intermediate)
    layers = [Layer(mixer, block, norms=4, norm_weight=False, other_parameters=vectors) for mixer in mixers]
    first, last = (fields.count_or(name, 8, smallest=0) for name in LOOPS[:2])
    middle = fields.optional_count(LOOPS[2]) or count - first - last
    if middle < 1 or first + middle + last != count:
        raise InputError(f"{', '.join(LOOPS)} add up to {first + middle + last}; there are {count} layers.")
    again = [dataclasses.replace(layer, shared=True) for layer in layers[first : first + middle]]
    loops = fields.count_or("n_recurrent_loops", 2)
    passed = (*layers[: first + middle], *again * (loops - 1), *layers[first + middle :])
    return decoder(fields, passed, other_parameters=fields.count("vocab_size"))  # a scale for each logit


def _paired(fields: Fields) -> Fields:
    """Released configs count attention and feed-forward blocks as layers of their own, one after the other."""
    kinds = fields.data.get("layer_types")
    if not isinstance(kinds, list) or "mlp" not in kinds:
        return fields
    halved: dict[str, Any] = {name: fields.count(name, smallest=0) >> 1 for name in LOOPS if fields.find(name)}
    whole = {"num_hidden_layers": fields.layer_count() >> 1, "layer_types": kinds[::2]}
    return dataclasses.replace(fields, data={**fields.data, **halved, **whole})


FAMILIES = {"DoryForCausalLM": _dory}

MODEL_TYPES = {"dory": "DoryForCausalLM"}
