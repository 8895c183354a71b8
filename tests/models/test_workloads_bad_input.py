"""What has no graph is refused with its name and what is allowed."""

from __future__ import annotations

import pytest

from hwspecs.errors import InputError
from jaxperf.io.huggingface import model_names
from jaxperf.io.workloads import load_workload
from jaxperf.models.mixers import Attention, Mla
from jaxperf.models.workloads.attention import check_attention
from jaxperf.models.workloads.catalog import workload
from jaxperf.models.workloads.counts import parameter_bytes
from jaxperf.models.workloads.latent import check_latent


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("gpt2", "infer", 16, 1), "mode is 'infer'; it must be one of inf, inference, train, training."),
        (("gpt2", "inf", 0, 1), "seq is 0"),
        (("gpt2", "inf", 16, True), "batch is true"),
        (("gpt2", "inf", 2048, 1), "gpt2 (GPT2LMHeadModel) has 1024 learned positions; a sequence of 2048 is too long"),
        (("bert-large", "inf", 1024, 1), "512 positions"),
        (("gpt2", "train", 16, 1, "dp4"), "variant is 'dp4'; it must be plain or fusion"),
        (("gpt2", "train", 16, 1, "plain", "int8"), "dtype is 'int8'"),
        (("gpt9", "inf", 16, 1), "No model or path"),
        (("ResNet50", "inf", 224, 1), "No model 'ResNet50'; the built-in one is called resnet-50."),
        (("falcon-mamba-7b", "inf", 16, 1), "the token mixer Mamba1 has no workload graph yet"),
        (("jamba-v0.1", "train", 16, 1), "the token mixer Mamba1 has no workload graph yet"),
        (("whisper-tiny", "inf", 16, 1), "T5 and Switch have workload graphs"),
        (("llava-1.5-7b", "inf", 16, 1), "T5 and Switch have workload graphs"),
        (("gpt-oss-20b", "inf", 16, 1), "Attention.sinks has no workload graph yet"),
        (("deepseek-v3.2", "inf", 16, 1), "deepseek-v3.2 (DeepseekV32ForCausalLM): Mla.indexer has no workload graph"),
        (("distilbert-base", "inf", 16, 1), "of encoders, BertForPreTraining"),
        (("albert-base", "inf", 16, 1), "(AlbertForPreTraining) has no workload graph"),
        (("stable-diffusion-1-unet", "inf", 60, 1), "side of 60; it must be a multiple of 8"),
        (("dit-xl-2", "inf", 31, 1), "side of 31; it must be a multiple of 2"),
    ],
)
def test_refused_by_name(arguments: tuple[str, str, int, int], words: str) -> None:
    with pytest.raises(InputError) as raised:
        load_workload(*arguments)
    assert words in str(raised.value)


def test_latent_attention_with_gates_is_refused() -> None:
    with pytest.raises(InputError, match=r"^here: Mla\.head_gate has no workload graph yet"):
        check_latent(Mla(4, None, 16, 8, 4, 8, head_gate=True), "here")


def test_a_name_that_is_not_built_in() -> None:
    with pytest.raises(InputError, match="Unknown built-in model 'resnet-51'.*Did you mean resnet-50"):
        workload("resnet-51", "inf", 224, 1)


def test_every_shipped_model_has_a_graph_or_a_reason() -> None:
    """210 of those of this version have one."""
    built = 0
    for name in model_names():
        try:
            graph = load_workload(name, "train", 8, 1)
        except InputError as error:
            assert "workload graph" in str(error), name
        else:
            built += 1
            assert parameter_bytes(graph) > 0, name
    assert built >= 210


@pytest.mark.parametrize(
    ("spelled", "mode", "millions"),
    [
        ("bert_large", "train", 336.2),
        ("gpt2_large", "inf", 774.0),
        ("gpt3_27", "inf", 2651.6),
        ("gpt3_xl", "train", 2879.6),
        ("opt_13", "inf", 1315.8),
        ("switchxl4", "inf", 5267.6),
        ("ResNet-50", "inf", 25.6),
    ],
)
def test_spellings_of_neusight(spelled: str, mode: str, millions: float) -> None:
    graph = load_workload(spelled, mode, 128, 1)
    assert parameter_bytes(graph) / 4e6 == pytest.approx(millions, abs=0.05)


def test_bert_of_neusight_classifies_in_inference() -> None:
    assert load_workload("bert_large", "inf", 128, 4)["classifier"].output_bytes == 4 * 4 * 2
    assert "predictions.decoder" in load_workload("bert_large", "train", 128, 4).place


@pytest.mark.parametrize("field", [{"experts": 8}, {"merged": True}])
def test_attention_with_weights_of_experts_or_another_is_refused(field: dict[str, int]) -> None:
    with pytest.raises(InputError, match=rf"^here: Attention\.{next(iter(field))} has no workload graph yet"):
        check_attention(Attention(4, 2, 8, **field), "here")
