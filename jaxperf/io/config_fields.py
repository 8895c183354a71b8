"""The fields of a Hugging Face config: names that drifted between libraries, and checked access to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from hwspecs.errors import InputError
from jaxperf.models.checks import LARGEST_COUNT, MOST_LAYERS, check_count, check_flag, show

# Accepted spellings, the preferred one first. `top_k` is last: old configs also use it for sampling.
SYNONYMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
        "hidden_size": ("hidden_size", "n_embd", "d_model", "n_embed"),
        "vocab_size": ("vocab_size", "n_vocab", "padded_vocab_size"),
        "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
        "num_key_value_heads": (
            "num_key_value_heads",
            "n_kv_heads",
            "num_kv_heads",
            "n_head_kv",
            "kv_n_heads",
            "multi_query_group_num",
            "num_attention_groups",
        ),
        "head_dim": ("head_dim", "kv_channels", "attention_head_dim"),
        "intermediate_size": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "block_ff_dim"),
        "moe_intermediate_size": ("moe_intermediate_size", "moe_ffn_hidden_size", "expert_ffn_hidden_size"),
        "num_experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
        "num_experts_per_tok": (
            "num_experts_per_tok",
            "num_experts_per_token",
            "moe_top_k",
            "moe_topk",
            "moe_k",
            "top_k",
        ),
        "n_group": ("n_group", "num_expert_group"),
        "num_shared_experts": (
            "num_shared_experts",
            "n_shared_experts",
            "num_shared_expert",
            "moe_num_shared_experts",
        ),
        "shared_expert_intermediate_size": (
            "shared_expert_intermediate_size",
            "moe_shared_expert_intermediate_size",
            "shared_intermediate_size",
            "share_expert_dim",
        ),
        "state_size": ("state_size", "ssm_state_size", "mamba_d_state"),
        "conv_kernel": ("conv_kernel", "mamba_d_conv", "linear_conv_kernel_dim", "short_conv_kernel_size"),
        "mamba_num_heads": ("mamba_num_heads", "mamba_n_heads"),
        "mamba_head_dim": ("mamba_head_dim", "mamba_d_head"),
        "n_groups": ("n_groups", "mamba_n_groups", "mamba_ngroups"),
        "time_step_rank": ("time_step_rank", "mamba_dt_rank"),
        "use_conv_bias": ("use_conv_bias", "mamba_conv_bias"),
        "mamba_proj_bias": ("mamba_proj_bias", "use_bias"),
        "max_position_embeddings": (
            "max_position_embeddings",
            "n_positions",
            "n_ctx",
            "max_seq_len",
            "seq_length",
            "model_max_length",
            "max_position_embedding",
        ),
        "num_nextn_predict_layers": ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers"),
        "torch_dtype": ("torch_dtype", "dtype"),
        "tie_word_embeddings": ("tie_word_embeddings", "tie_embedding"),
    }
)

WEIGHT_FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "float32": "fp32",
        "float": "fp32",
        "bfloat16": "bf16",
        "float16": "fp16",
        "half": "fp16",
        "float8_e4m3fn": "fp8",
        "float8_e5m2": "fp8",
    }
)


@dataclass(frozen=True)
class Fields:
    """The fields of one config with checked access; `notes` collects the assumptions while they are made.

    `null` counts as absent, as in Hugging Face configs. All methods raise `InputError` naming the field.
    """

    data: Mapping[str, Any]
    name: str
    architecture: str
    notes: list[str]

    def find(self, field: str) -> tuple[str, Any] | None:
        """The first accepted spelling that is present and its value."""
        found = [(key, self.data[key]) for key in SYNONYMS.get(field, (field,)) if self.data.get(key) is not None]
        for key, value in found[1:]:
            if value != found[0][1]:
                self.notes.append(f"{found[0][0]} = {show(found[0][1])} was used and {key} = {show(value)} ignored.")
        return found[0] if found else None

    def optional_count(self, field: str, smallest: int = 1, largest: int = LARGEST_COUNT) -> int | None:
        found = self.find(field)
        return None if found is None else check_count(found[0], found[1], smallest, largest)

    def count(self, field: str, smallest: int = 1, largest: int = LARGEST_COUNT) -> int:
        value = self.optional_count(field, smallest, largest)
        if value is None:
            others = SYNONYMS.get(field, (field,))[1:]
            spelled = f" (also read as {', '.join(others)})" if others else ""
            raise InputError(
                f"the required field {field}{spelled} is missing; {self.architecture} needs an integer from {smallest}."
            )
        return value

    def count_or(self, field: str, default: int, smallest: int = 1) -> int:
        """A size, or the default of the configuration class with a note that it was used."""
        value = self.optional_count(field, smallest)
        if value is None:
            self.notes.append(f"{field} is absent; {default}, the default of {self.architecture}, was used.")
        return default if value is None else value

    def flag_or(self, field: str, default: bool) -> bool:
        """A flag, or the default of the configuration class with a note that it was used."""
        if self.find(field) is None:
            self.notes.append(f"{field} is absent; {show(default)}, the default of {self.architecture}, was used.")
        return self.flag(field, default)

    def flag(self, field: str, default: bool) -> bool:
        found = self.find(field)
        return default if found is None else check_flag(found[0], found[1])

    def listing(self, field: str, kind: type, length: int | None = None, each: str = "layer") -> list[Any] | None:
        """A list of texts or integers (`kind`), of exactly `length` items, one for `each`, when that is given."""
        found = self.find(field)
        if found is None:
            return None
        key, value = found
        if not isinstance(value, list) or any(type(item) is not kind for item in value):
            raise InputError(f"{key} is {show(value)}; it must be a list of {'texts' if kind is str else 'integers'}.")
        if length is not None and len(value) != length:
            items = "1 item" if len(value) == 1 else f"{len(value)} items"
            raise InputError(f"{key} has {items}; it must have {length}, one for each {each}.")
        return value

    def layer_count(self) -> int:
        return self.count("num_hidden_layers", largest=MOST_LAYERS)

    def nested(self, field: str) -> Fields:
        """The fields of an object inside this one, such as `attn_config`; none when it is absent."""
        value = self.data.get(field)
        if value is not None and not isinstance(value, Mapping):
            raise InputError(f"{field} is {show(value)}; it must be an object with fields.")
        return replace(self, data=value or {})

    def uniform(self, field: str) -> Fields:
        """The same fields with a list of equal items, one a layer, replaced by the item (HunYuan)."""
        found = self.find(field)
        if found is None or not isinstance(found[1], list):
            return self
        key, values = found
        if not values or any(value != values[0] for value in values):
            raise InputError(f"{key} is {show(values)} that differ; only the same value for every layer is supported.")
        return replace(self, data={**self.data, key: values[0]})
