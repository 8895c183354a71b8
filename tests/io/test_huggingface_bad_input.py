"""Every mistake in a config is one plain sentence that names the file, the field and what is allowed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.io.families import FAMILIES, REFUSED
from jaxperf.io.huggingface import LARGEST_FILE, load_model, read_config
from jaxperf.models.parameters import parameter_count

GOOD: dict[str, Any] = {
    "architectures": ["Qwen2MoeForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 1000,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 0,
    "decoder_sparse_step": 2,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
LLAMA = GOOD | {"architectures": ["LlamaForCausalLM"]}
REQUIRED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size", "num_experts")
SIZES = ("hidden_size", "num_hidden_layers", "num_key_value_heads", "moe_intermediate_size", "decoder_sparse_step")


def refusal(source: Any) -> str:
    with pytest.raises(InputError) as caught:
        read_config(source)
    message = str(caught.value)
    assert "\n" not in message and message.endswith((".", "?")) and len(message) < 800
    return message


def write(directory: Path, text: str | bytes) -> Path:
    path = directory / "config.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_the_base_of_these_tests_is_good() -> None:
    assert len(read_config(GOOD).layers) == len(read_config(LLAMA).layers) == 4


def test_missing_file_and_directory_without_config(tmp_path: Path) -> None:
    assert "No file or directory" in refusal(tmp_path / "nowhere.json")
    assert "has no config.json" in refusal(tmp_path)
    assert "No file or directory" in refusal("")
    assert "No file or directory" in refusal("a\0b")
    assert "No file or directory" in refusal("x" * 5000)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refusal(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ('{"hidden_size": 64,\n  "x": }', "line 2 column 8"),
        ('{"hidden_size": 64', "not valid JSON: Expecting ',' delimiter: line 1"),
        ("[1, 2]", "holds a list of 2; it must hold a JSON object"),
        ("null", "holds null"),
        ('"llama"', 'holds "llama"'),
        ("{}", "the field architectures is missing"),
        ("[" * 100_000, "brackets nest too deep"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "a number is too long"),
        ('{"hidden_size": 64, "x": {"hidden_size": 1}, "hidden_size": 32}', "the key 'hidden_size' is given twice"),
        ('{"model_type": "\\ud800"}', "has \\ud800, half a character"),
        (b"\x93NUMPY\xff\x00", "not a text file in UTF-8; save it as one."),
        (b"{} " + b" " * LARGEST_FILE, "are read of such a file"),
    ],
    ids=range(14),
)
def test_files_that_are_not_a_config(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = write(tmp_path, text)
    said = refusal(path)
    assert message in said and str(path) in said


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = write(tmp_path, b"\xef\xbb\xbf" + json.dumps(GOOD).encode())
    assert read_config(path).hidden == 64


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads every file")
def test_unreadable_file(tmp_path: Path) -> None:
    path = write(tmp_path, "{}")
    path.chmod(0)
    assert "cannot be read" in refusal(path)


@pytest.mark.parametrize("field", REQUIRED)
@pytest.mark.parametrize("how", ["absent", "null"])
def test_missing_required_field_is_named_with_its_spellings(field: str, how: str) -> None:
    fields = {key: value for key, value in GOOD.items() if key != field} | ({field: None} if how == "null" else {})
    said = refusal(fields)
    assert f"the required field {field}" in said and "is missing; Qwen2MoeForCausalLM needs" in said
    if field == "num_hidden_layers":
        assert "(also read as n_layer, n_layers, num_layers)" in said


BAD_NUMBERS = ["32", 64.0, -4, 0, 2**40 + 1, True, False, float("nan"), float("inf"), [64], {"a": 1}, 10**4000]


@pytest.mark.parametrize("field", SIZES)
@pytest.mark.parametrize("value", BAD_NUMBERS, ids=range(len(BAD_NUMBERS)))
def test_bad_numbers_are_refused_with_the_field(tmp_path: Path, field: str, value: Any) -> None:
    path = write(tmp_path, json.dumps(GOOD | {field: value}))
    said = refusal(path)
    assert said.startswith(f"{path}: {field} is ") and "it must be an integer from 1 to" in said


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 66}, "the hidden size 66 is not a multiple of the 4 attention heads; give head_dim"),
        ({"num_key_value_heads": 3}, "num_attention_heads is 4 and num_key_value_heads is 3"),
        ({"num_key_value_heads": 8}, "must divide the attention heads"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok is 9 and the number of experts is 8"),
        ({"num_experts_per_tok": None}, "the required field num_experts_per_tok (also read as"),
        ({"num_key_value_heads": None}, "the required field num_key_value_heads"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types has 3 items; it must have 4"),
        ({"layer_types": ["linear_attention"] * 4}, 'layer_types contains "linear_attention"; only full_attention'),
        ({"layer_types": "full_attention"}, 'layer_types is "full_attention"; it must be a list of texts'),
        ({"layer_types": [1, 2, 3, 4]}, "it must be a list of texts"),
        ({"layer_types": ["sliding_attention"] * 4}, "the required field sliding_window"),
        (
            {"layer_types": ["sliding_attention"] * 4, "sliding_window": 8, "use_sliding_window": False},
            "make them agree",
        ),
        ({"use_sliding_window": 1}, "use_sliding_window is 1; it must be true or false"),
        ({"use_sliding_window": True}, "the required field sliding_window"),
        ({"use_sliding_window": True, "sliding_window": 8}, "the required field max_window_layers"),
        ({"mlp_only_layers": [4]}, "An item of mlp_only_layers is 4; it must be an integer from 0 to 3"),
        ({"mlp_only_layers": [True]}, "mlp_only_layers is a list of 1; it must be a list of integers"),
        ({"tie_word_embeddings": "false"}, 'tie_word_embeddings is "false"; it must be true or false'),
        ({"torch_dtype": "int3"}, 'torch_dtype is "int3"; it must be one of float32'),
        ({"torch_dtype": 16}, "torch_dtype is 16; it must be one of"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000; it must be an integer from 1 to 10000"),
        ({"max_position_embeddings": -1}, "max_position_embeddings is -1"),
        ({"head_dim": 0}, "head_dim is 0"),
        (
            {"max_position_embeddings": 8, "rope_scaling": {"type": "yarn", "factor": "4"}},
            'rope_scaling.factor is "4"; YaRN scaling needs a number from 1',
        ),
        ({"architectures": "LlamaForCausalLM"}, "architectures is "),
        ({"architectures": []}, "architectures is a list of 0"),
        ({"architectures": ["not a class"]}, "it must be a list with the name of a model class"),
        ({"architectures": [None]}, "it must be a list with the name of a model class"),
    ],
)
def test_other_mistakes(changes: dict[str, Any], message: str) -> None:
    assert message in refusal(GOOD | changes)


def test_heads_need_not_fill_the_hidden_size_when_head_dim_is_given() -> None:
    config = read_config(LLAMA | {"hidden_size": 66, "head_dim": 20})
    assert config.layers[0].mixer.head_dim == 20


def test_gpt2_mistakes() -> None:
    fields = {"architectures": ["GPT2LMHeadModel"], "n_embd": 65, "n_layer": 1, "n_head": 4, "vocab_size": 10}
    assert "the required field max_position_embeddings (also read as n_positions" in refusal(fields)
    fields["n_positions"] = 8
    assert "not a multiple of the 4 attention heads; give sizes that divide." in refusal(fields)
    assert "only decoder-only GPT-2" in refusal(fields | {"n_embd": 64, "add_cross_attention": True})


def test_unknown_architecture_names_the_nearest_and_where_all_are_listed() -> None:
    said = refusal(GOOD | {"architectures": ["LlamaForSequenceLabels"]})
    assert 'the architecture "LlamaForSequenceLabels" is not supported' in said
    assert f"`jaxperf models --classes` lists the {len(FAMILIES)} that are" in said
    assert "LlamaForCausalLM" in said.split("Did you mean")[1]
    assert "not supported" in refusal({"model_type": "spaceship"})
    assert "architectures is missing" in refusal({"model_type": 3})


@pytest.mark.parametrize("name", REFUSED)
def test_architectures_that_are_known_and_refused_say_why(name: str) -> None:
    by_class = refusal(GOOD | {"architectures": ["Unknown" if name.islower() else name], "model_type": name})
    assert "is not supported" in by_class and REFUSED[name] in by_class
    assert name not in FAMILIES


# --- encoders, towers and encoder-decoder models ----------------------------------------------------------------------

BERT: dict[str, Any] = {
    "architectures": ["BertModel"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 1000,
    "max_position_embeddings": 128,
    "torch_dtype": "float32",
}
VIT: dict[str, Any] = {**BERT, "architectures": ["ViTModel"], "image_size": 32, "patch_size": 8}
T5: dict[str, Any] = {
    "architectures": ["T5ForConditionalGeneration"],
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 96,
    "num_layers": 2,
    "num_heads": 4,
    "vocab_size": 1000,
    "relative_attention_num_buckets": 32,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}
BART: dict[str, Any] = {
    "architectures": ["BartModel"],
    "d_model": 64,
    **{f"{part}_{name}": value for part in ("encoder", "decoder") for name, value in (("layers", 2), ("ffn_dim", 96))},
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 128,
    "torch_dtype": "float32",
}
TEXT: dict[str, Any] = {key: value for key, value in LLAMA.items() if key != "architectures"} | {"head_dim": 16}
LLAVA: dict[str, Any] = {
    "architectures": ["LlavaForConditionalGeneration"],
    "text_config": TEXT | {"model_type": "llama", "max_position_embeddings": 4096},
    "vision_config": {key: VIT[key] for key in VIT if key not in ("architectures", "vocab_size", "torch_dtype")},
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize("fields", [BERT, VIT, T5, BART, LLAVA], ids=["bert", "vit", "t5", "bart", "llava"])
def test_the_bases_are_good(fields: dict[str, Any]) -> None:
    assert read_config(fields).assumptions == ()


@pytest.mark.parametrize(
    ("fields", "changes", "message"),
    [
        (BERT, {"hidden_size": 66}, "the hidden size 66 is not a multiple of the 4 attention heads"),
        (BERT, {"max_position_embeddings": None}, "the required field max_position_embeddings"),
        (BERT, {"type_vocab_size": "2"}, 'type_vocab_size is "2"; it must be an integer from 0'),
        (BERT, {"architectures": ["BertForTokenClassification"], "num_labels": 0}, "num_labels is 0"),
        (BERT, {"architectures": ["BertForTokenClassification"], "id2label": {}}, "The length of id2label is 0"),
        (BERT, {"architectures": ["AlbertModel"], "num_hidden_groups": 3}, "num_hidden_groups is 3 and num_hidden"),
        (BERT, {"architectures": ["AlbertModel"], "num_hidden_groups": 1, "inner_group_num": 2}, "inner_group_num"),
        (BERT, {"architectures": ["RobertaModel"], "max_position_embeddings": 2}, "max_position_embeddings is 2"),
        (BERT, {"architectures": ["ModernBertModel"], "layer_types": ["linear"] * 2}, 'layer_types contains "linear"'),
        (BERT, {"architectures": ["DebertaV2Model"], "position_buckets": 0}, "position_buckets is 0"),
        (BERT, {"architectures": ["Wav2Vec2Model"], "conv_dim": [8]}, "conv_dim has 1 items and conv_kernel 7"),
        (BERT, {"architectures": ["Wav2Vec2Model"], "feat_extract_norm": "rms"}, 'it must be "group" or "layer"'),
        (BERT, {"architectures": ["HubertModel"], "num_conv_pos_embedding_groups": 7}, "they must divide"),
        (BERT, {"architectures": ["HubertModel"], "add_adapter": True}, "add_adapter is true"),
        (VIT, {"patch_size": 64}, "patch_size is 64 and image_size is 32; a patch cannot be larger than the image"),
        (VIT, {"image_size": [32, 16]}, "it must be an integer or a list of two equal integers"),
        (VIT, {"image_size": None}, "the required field image_size"),
        (VIT, {"qkv_bias": 1}, "qkv_bias is 1; it must be true or false"),
        (T5, {"d_kv": None}, "the required field d_kv"),
        (T5, {"feed_forward_proj": "gated"}, None),
        (T5, {"feed_forward_proj": "a-b-c"}, 'feed_forward_proj is "a-b-c"; it must be an activation'),
        (T5, {"feed_forward_proj": 1}, "feed_forward_proj is 1; it must be an activation"),
        (T5, {"num_decoder_layers": 10**6}, "num_decoder_layers is 1000000"),
        (T5, {"architectures": ["SwitchTransformersModel"], "num_experts": 2}, "num_sparse_encoder_layers is missing"),
        (BART, {"decoder_attention_heads": 5}, "the hidden size 64 is not a multiple of the 5 attention heads"),
        (BART, {"encoder_layers": None}, "the required field encoder_layers"),
        (LLAVA, {"text_config": "llama"}, "the required field"),
        (LLAVA, {"vision_config": [1]}, "vision_config is a list of 1; it must be an object"),
        (LLAVA, {"vision_config": {"model_type": "swin"}}, 'vision_config.model_type is "swin"; towers of this class'),
        (LLAVA, {"text_config": TEXT | {"model_type": "spaceship"}}, 'text_config is of the class "spaceship"'),
        (LLAVA, {"text_config": TEXT | {"model_type": "llama", "hidden_size": -1}}, "hidden_size is -1"),
        (
            LLAVA,
            {"text_config": TEXT | {"architectures": ["LlavaForConditionalGeneration"]}},
            "no language model by itself",
        ),
        (LLAVA, {"text_config": BERT}, "text_config is of the class BertModel, which is no language model by itself"),
        (LLAVA, {"multimodal_projector_bias": "no"}, 'multimodal_projector_bias is "no"; it must be true or false'),
    ],
    ids=range(34),
)
def test_mistakes_in_models_of_several_parts(
    fields: dict[str, Any], changes: dict[str, Any], message: str | None
) -> None:
    if message is None:
        assert read_config(fields | changes)
    else:
        assert message in refusal(fields | changes)


def test_what_a_wrapper_leaves_out_is_taken_from_its_classes_and_said() -> None:
    """The published LLaVA 1.5 writes hardly more of its language part than the vocabulary."""
    config = read_config(LLAVA | {"text_config": {"model_type": "llama", "vocab_size": 32064}, "vision_config": None})
    assert (config.hidden, len(config.layers), config.vocabulary) == (4096, 32, 32064)
    assert config.encoders[0].hidden == 768
    said = " ".join(config.assumptions)
    assert "text_config leaves out hidden_size, intermediate_size, num_hidden_layers" in said
    assert "vision_config is absent; the defaults of its Hugging Face class were used" in said


def test_the_quantization_of_a_wrapper_is_that_of_its_language_part() -> None:
    config = read_config(LLAVA | {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}})
    assert (config.weight_format, config.architecture) == ("int4_asym", "LlavaForConditionalGeneration")


def test_unknown_wrappers_are_described_by_their_language_part_and_say_so() -> None:
    config = read_config(LLAVA | {"architectures": ["NewForConditionalGeneration"]})
    assert (
        config.assumptions
        == (
            "architectures is absent; model_type was read as LlamaForCausalLM.",
            "the class NewForConditionalGeneration wraps LlamaForCausalLM; only its text_config is described.",
        )[1:]
    )
    assert "wraps a language model of an unnamed class" in refusal({"text_config": {}, "architectures": ["New"]})


PARTS = ["text_config", "vision_config", "id2label", "num_labels", "image_size", "patch_size", "feed_forward_proj"]
PARTS += ["num_hidden_groups", "cross_attention_layers", "vision_feature_layer", "mlp_ratio", "pos_att_type", "d_kv"]
PARTS += ["encoder_layers", "num_sparse_encoder_layers", "layer_types", "norm_type", "embedding_size", "scale_factor"]
GARBAGE = [None, True, -1, 0, 2**41, 1.5, float("nan"), "", "32", [], [1], [[1]], {}, {"a": 1}, {"model_type": "llama"}]
SEVERAL = [name for name in FAMILIES if not name.endswith("ForCausalLM")]


@given(st.sampled_from(sorted(SEVERAL)), st.dictionaries(st.sampled_from(PARTS), st.sampled_from(GARBAGE), max_size=5))
def test_garbage_in_any_part_is_described_or_refused_but_never_crashes(name: str, changes: dict[str, Any]) -> None:
    base = {**BERT, **VIT, **T5, **BART, **LLAVA}
    try:
        config = read_config(base | changes | {"architectures": [name]})
    except InputError as error:
        assert "\n" not in str(error) and len(str(error)) < 800
    else:
        assert parameter_count(config) > 0


@pytest.mark.parametrize("name", ["lama-3-70b", "meta-llama/Llama-3-71B", "gpt5-xl"])
def test_unknown_names_get_the_nearest(name: str) -> None:
    with pytest.raises(InputError, match="No model or path .* Did you mean .*"):
        load_model(name)


@pytest.mark.parametrize("name", ["", " ", "\0", "@@@@@@", "x" * 5000, "missing/config.json"])
def test_names_like_nothing_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="No (model or path|file or directory)"):
        load_model(name)
