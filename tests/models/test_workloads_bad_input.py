"""What has no graph is refused with its name and what is allowed."""

from __future__ import annotations

import pytest

from hwspecs.errors import InputError
from jaxperf.io.huggingface import model_names
from jaxperf.io.workloads import load_workload
from jaxperf.models.config import Attention, Indexer, Layer, Mla, Mlp, Rwkv4
from jaxperf.models.workloads.attention import check_attention
from jaxperf.models.workloads.catalog import workload
from jaxperf.models.workloads.counts import parameter_bytes
from jaxperf.models.workloads.latent import check_latent
from jaxperf.models.workloads.layers import check_layer


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
        (("deepseek-v4-flash", "inf", 16, 1), "tables or parameters beside those of layers have no workload graph yet"),
        (("apertus-8b", "train", 16, 1), "layers with shared weights or other parameters have no workload graph yet"),
        (("whisper-tiny", "inf", 16, 1), "T5 and Switch have workload graphs"),
        (("llava-1.5-7b", "inf", 16, 1), "T5 and Switch have workload graphs"),
        (("hunyuan-large", "inf", 16, 1), "Attention.shared_kv has no workload graph yet"),
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


def test_mixers_without_a_graph_are_refused_where_they_stand() -> None:
    with pytest.raises(InputError, match=r"^here: Mla\.indexer has no workload graph yet"):
        check_latent(Mla(4, None, 16, 8, 4, 8, indexer=Indexer(2, 8, 16)), "here")
    with pytest.raises(
        InputError, match=r"^here: the token mixer Rwkv4 has no workload graph; those of Attention, Mla,"
    ):
        check_layer(Layer(Rwkv4(64), Mlp(96)), "here")


def test_a_name_that_is_not_built_in() -> None:
    with pytest.raises(InputError, match="Unknown built-in model 'resnet-51'.*Did you mean resnet-50"):
        workload("resnet-51", "inf", 224, 1)


def test_every_shipped_model_has_a_graph_or_a_reason() -> None:
    """241 of those of this version have one."""
    built = 0
    for name in model_names():
        try:
            graph = load_workload(name, "train", 8, 1)
        except InputError as error:
            assert "workload graph" in str(error), name
        else:
            built += 1
            assert parameter_bytes(graph) > 0, name
    assert built >= 241


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
