"""Tables are priced as their parameters were fitted: experts of any group."""

from __future__ import annotations

from calibration.serving.spelled import Models
from calibration.training.models import shipped_model
from calibration.ungrouped import ungrouped
from jaxperf.io.huggingface import load_model
from jaxperf.models.config import ModelConfig
from jaxperf.models.feedforward import Moe


def groups(model: ModelConfig) -> set[int]:
    return {layer.ffn.groups for layer in (*model.layers, *model.mtp_layers) if isinstance(layer.ffn, Moe)}


def test_models_of_tables_have_no_groups() -> None:
    model, mixtral = load_model("deepseek-v3"), load_model("mixtral-8x7b")
    assert groups(model) == {8} and ungrouped(mixtral) is mixtral
    trained, served = shipped_model("deepseek-ai/DeepSeek-V3"), Models().of("deepseek-ai/DeepSeek-R1")[0]
    assert trained is not None and groups(trained) == groups(served) == groups(ungrouped(model)) == {1}
