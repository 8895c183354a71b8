"""What a config leaves open and the framework's class decides: activations, masks, where scores are scaled.

The facts are those of the classes of Hugging Face transformers, which the measured graphs trace (NeuSight's tables).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Style:
    """How a class computes a layer.

    **Fields:** `activation` of an ungated and `gate` of a gated feed-forward block, names of `ACTIVATIONS`; `joined`
    queries, keys and values come from one GEMM; `scale` of the scores: "scores" by a number, "tensor" by a number
    made on the device, "queries" before the product, "none"; `mask`: "add", "clamp" (added, then the maximum with
    the lowest number), "where", "none"; `copies` heads are copied in order before the product; `dropout` is on in
    training; `norm_after` the residual sum (BERT); `inner_dropout` after the activation; `capacity` tokens of a
    sequence that one expert takes, `None` for as many as the router sends.
    """

    activation: str = "gelu"
    gate: str = "silu"
    joined: bool = False
    scale: str = "scores"
    mask: str = "add"
    copies: bool = False
    dropout: bool = False
    norm_after: bool = False
    inner_dropout: bool = False
    capacity: int | None = None


_GPT2 = Style(activation="gelu written out", joined=True, scale="tensor", mask="where", dropout=True)
_BERT = Style(dropout=True, norm_after=True)
_T5 = Style(activation="relu", gate="gelu written out", scale="none", dropout=True, inner_dropout=True)
_VISION = Style(mask="none")
_GEMMA = Style(gate="gelu")

STYLES: Mapping[str, Style] = MappingProxyType(
    {
        "GPT2LMHeadModel": _GPT2,
        **dict.fromkeys(("BertForPreTraining", "BertForSequenceClassification"), _BERT),
        **dict.fromkeys(("RobertaForMaskedLM", "XLMRobertaForMaskedLM"), _BERT),
        "OPTForCausalLM": Style(activation="relu", scale="queries", mask="clamp", copies=True, dropout=True),
        "T5ForConditionalGeneration": _T5,
        "SwitchTransformersForConditionalGeneration": Style(
            activation="relu", scale="none", dropout=True, inner_dropout=True, capacity=64
        ),
        **dict.fromkeys(("ViTForImageClassification", "ViTModel", "DeiTForImageClassificationWithTeacher"), _VISION),
        **dict.fromkeys(("GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM"), _GEMMA),
    }
)


def style_of(architecture: str) -> Style:
    """The style of a class; that of a Llama-like decoder, with SiLU gates and added masks, where it has none."""
    return STYLES.get(architecture, Style())
