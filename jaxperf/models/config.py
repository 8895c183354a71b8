"""Host-side description of a transformer: what is in each layer, never how fast it runs.

The kind of a layer is data of that layer, not a flag of the model, so hybrids (a few full-attention layers among
windowed or recurrent ones, dense layers among expert ones) need no special case. The kinds of token mixer are in
`jaxperf.models.mixers`, those of feed-forward block in `jaxperf.models.feedforward`. Nothing here imports JAX.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from hwspecs.errors import InputError
from jaxperf.models.checks import (
    LARGEST_COUNT,
    MOST_LAYERS,
    check_count,
    check_counts,
    check_flag,
    check_flags,
    check_kind,
    check_optional_counts,
    check_text,
    check_tuple,
    show,
)
from jaxperf.models.feedforward import FeedForward, Mlp, Moe
from jaxperf.models.mixers import (
    Attention,
    CompressedAttention,
    GatedDelta,
    Indexer,
    KimiDelta,
    LightningAttention,
    Mamba1,
    Mamba2,
    Mixer,
    Mla,
    MLstm,
    RgLru,
    Rwkv4,
    Rwkv6,
    Rwkv7,
    ShortConv,
)
from jaxperf.models.quantization import Quantization

__all__ = [
    "LARGEST_COUNT",
    "MOST_LAYERS",
    "Attention",
    "CompressedAttention",
    "Encoder",
    "FeedForward",
    "GatedDelta",
    "Indexer",
    "KimiDelta",
    "Layer",
    "LightningAttention",
    "MLstm",
    "Mamba1",
    "Mamba2",
    "Mixer",
    "Mla",
    "Mlp",
    "ModelConfig",
    "Moe",
    "Quantization",
    "RgLru",
    "Rwkv4",
    "Rwkv6",
    "Rwkv7",
    "ShortConv",
    "Table",
    "check_count",
    "check_flag",
    "check_text",
    "layer_groups",
    "show",
]


@dataclass(frozen=True)
class Layer:
    """One residual layer: a token mixer and a feed-forward block, either of which may be missing (Nemotron-H).

    **Fields:** `norms` of the hidden width in the layer (2; 4 with norms after the blocks as in Gemma 2, 1 where
    both blocks read the same norm); `norm_bias` is true for LayerNorm (weight and bias) and false for RMSNorm
    (weight only); `cross` attention to an encoder, between mixer and feed-forward; `beside` a second mixer that reads
    the same input as the first (Falcon-H1: Mamba-2 beside attention); `parallel` mixer and feed-forward block read
    the same input and are added once (GPT-J, Falcon, Command R); `norm_weight` false when the norms have no weights
    at all (OLMo 1); `other_parameters` weights of the layer that none of its blocks has, such as layer scales;
    `shared` the weights are those of an earlier layer: computed again but stored once (ALBERT); `streams` of the
    residual, which are mixed before and after either block (DeepSeek V4), and `stream_weights` that are made of all of
    them for this, by a projection that is in `other_parameters`;
    `projections` matrices beside the blocks, (inputs, outputs) of each, which tensor parallelism does not split (the
    per-layer inputs of Gemma 3n, the adapters of Zamba 2).
    """

    mixer: Mixer | None
    ffn: FeedForward | None
    norms: int = 2
    norm_bias: bool = False
    cross: Attention | None = None
    beside: Mixer | None = None
    parallel: bool = False
    norm_weight: bool = True
    other_parameters: int = 0
    shared: bool = False
    streams: int = 1
    stream_weights: int = 0
    projections: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        check_kind(self, "mixer", Mixer | None, "a token mixer such as Attention, or None")
        check_kind(self, "ffn", FeedForward | None, "an Mlp, a Moe or None")
        check_kind(self, "cross", Attention | None, "an Attention or None")
        check_kind(self, "beside", Mixer | None, "a token mixer such as Mamba2, or None")
        check_counts(self, "norms", "other_parameters", "stream_weights", smallest=0)
        check_counts(self, "streams")
        check_flags(self, "norm_bias", "parallel", "norm_weight", "shared")
        check_tuple(self, "projections", tuple, "pairs of inputs and outputs")
        for inputs, outputs in self.projections:
            check_count("The inputs of Layer.projections", inputs)
            check_count("The outputs of Layer.projections", outputs)
        if self.mixer is None and self.ffn is None:
            raise InputError("Layer.mixer and Layer.ffn are both None; a layer needs one of them.")
        if self.parallel and (self.mixer is None or self.ffn is None):
            raise InputError("Layer.parallel is true but one block is missing; it needs a mixer and a feed-forward.")

    @property
    def projection_elements(self) -> int:
        """Elements of the matrices beside the blocks [1]."""
        return sum(inputs * outputs for inputs, outputs in self.projections)


@dataclass(frozen=True)
class Table:
    """A lookup table of `rows` by `columns` weights beside the token table, such as the token types of BERT."""

    name: str
    rows: int
    columns: int

    def __post_init__(self) -> None:
        check_text("Table.name", self.name)
        check_counts(self, "rows", "columns")


@dataclass(frozen=True)
class Encoder:
    """A tower that reads its whole input at once and hands tokens to the decoder, or is itself the model (ViT).

    **Fields:** `kind` of input: "text", "image" or "audio"; `length` positions its layers work on for one input (577
    for a ViT-L/14 at 336 pixels, 1500 for 30 s in Whisper), `None` when it is the caller's; `tokens` it hands on for
    one input, `None` for `length`; `vocabulary` rows of a token table of its own, 0 when it has none or shares the
    decoder's; `positions` rows of a learned position table; `input_parameters` of the patch embedding or convolution
    stem, each used once for each position; `tables` others; `norms` outside the layers, of the width `hidden`;
    `projector_parameters` between its output and the decoder; `other_parameters` class token and the like; `merge`
    positions joined into one token handed on, where `length` is the caller's (Qwen2-VL 4).
    """

    name: str
    kind: str
    hidden: int
    layers: tuple[Layer, ...]
    length: int | None = None
    tokens: int | None = None
    vocabulary: int = 0
    positions: int = 0
    input_parameters: int = 0
    tables: tuple[Table, ...] = ()
    norms: int = 1
    norm_bias: bool = False
    projector_parameters: int = 0
    other_parameters: int = 0
    merge: int = 1

    def __post_init__(self) -> None:
        check_text("Encoder.name", self.name)
        if self.kind not in ("text", "image", "audio"):
            raise InputError(f'Encoder.kind is {show(self.kind)}; it must be "text", "image" or "audio".')
        check_counts(self, "hidden", "merge")
        check_optional_counts(self, "length", "tokens")
        check_counts(self, "vocabulary", "positions", "input_parameters", "norms", smallest=0)
        check_counts(self, "projector_parameters", "other_parameters", smallest=0)
        check_flags(self, "norm_bias")
        check_tuple(self, "layers", Layer, "Layer")
        check_tuple(self, "tables", Table, "Table")
        check_count("The number of Encoder.layers", len(self.layers), largest=MOST_LAYERS)


@dataclass(frozen=True)
class ModelConfig:
    """A transformer, layer by layer. All sizes are element counts.

    **Fields:** `architecture` the Hugging Face class name; `positions` rows of the learned position table (0 with
    rotary positions; OPT stores two extra rows); `embedding_width` columns of the token table, projected to `hidden`
    and back when they differ (OPT-350m); `final_norm` a norm after the last layer, with a bias when `norm_bias`;
    `max_context` tokens the model was published for, `None` when unknown; `weight_format` as published
    ("bf16", "fp16", "fp32", "fp8"); `assumptions` one plain sentence for everything guessed or ignored;
    `encoders` towers that feed the layers (`layers` is empty and `vocabulary` 0 when the model is nothing else);
    `mtp_layers` that predict further tokens, stored with the weights but in neither count of parameters (the 671 B
    published for DeepSeek V3 leaves them out); `tables` beside the token and position tables; `embedding_norm` a
    norm right after the token table (BLOOM), with a bias when `norm_bias`; `head_bias` on the output head (GPT-J);
    `norm_weight` false when the final norm has no weights (OLMo 1); `other_parameters` of the model that no layer has;
    `quantization` of the stored weights, `None` when they are in `weight_format` alone.
    """

    name: str
    architecture: str
    hidden: int
    vocabulary: int
    layers: tuple[Layer, ...]
    tied_embeddings: bool
    positions: int
    embedding_width: int
    final_norm: bool
    norm_bias: bool
    max_context: int | None
    weight_format: str
    assumptions: tuple[str, ...] = ()
    encoders: tuple[Encoder, ...] = ()
    mtp_layers: tuple[Layer, ...] = ()
    tables: tuple[Table, ...] = ()
    embedding_norm: bool = False
    head_bias: bool = False
    norm_weight: bool = True
    other_parameters: int = 0
    quantization: Quantization | None = None

    def __post_init__(self) -> None:
        for name in ("name", "architecture", "weight_format"):
            check_text(f"ModelConfig.{name}", getattr(self, name))
        check_tuple(self, "encoders", Encoder, "Encoder")
        least = 0 if self.encoders else 1
        check_counts(self, "hidden", "embedding_width")
        check_counts(self, "vocabulary", smallest=least)
        check_counts(self, "positions", "other_parameters", smallest=0)
        check_optional_counts(self, "max_context")
        check_flags(self, "tied_embeddings", "final_norm", "norm_bias", "embedding_norm", "head_bias", "norm_weight")
        check_tuple(self, "layers", Layer, "Layer")
        check_tuple(self, "mtp_layers", Layer, "Layer")
        check_tuple(self, "tables", Table, "Table")
        check_count("The number of ModelConfig.layers", len(self.layers), least, MOST_LAYERS)
        check_tuple(self, "assumptions", str, "texts")
        check_kind(self, "quantization", Quantization | None, "a Quantization or None")


def layer_groups(config: ModelConfig) -> list[tuple[Layer, int]]:
    """The distinct layers with how often each occurs, in order of first appearance; the counts sum to the layers."""
    return list(Counter(config.layers).items())


def check_model(model: Any) -> None:
    """Raises `InputError` for what is no model, such as the name of one."""
    if not isinstance(model, ModelConfig):
        raise InputError(f"'model' is {show(model)}; give a description of one, such as jaxperf.load_model('gpt2').")
