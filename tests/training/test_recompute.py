"""Recomputation by module against counts by hand, of DeepSeek-V3: 61 layers, the first three dense."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.training.compute import layer_compute
from jaxperf.training.efficiencies import assumed_training_efficiencies
from jaxperf.training.flops import step_flops
from jaxperf.training.layout import MODULES, Layout, module_fields, training_layout
from jaxperf.training.memory import dropped_activations, kept_activations, layer_activations, stage_memory
from jaxperf.training.model import TrainingModel
from jaxperf.training.model_build import training_model
from jaxperf.training.products import sustained_rates
from jaxperf.training.sweep import few_layouts
from tests.devices import H100

ROOFLINE = assumed_training_efficiencies("high")  # datasheet rates, no waves and no ramps
ONE = as_float(1.0)
TOKENS, HIDDEN, HEADS = 4096, 7168, 128
DENSE, SPARSE = 3 / 61, 58 / 61  # of the layers
QUERY, KEY_VALUE = HEADS * 192, HEADS * (192 + 128)
UP = HEADS * (1536 * 192 + 512 * (128 + 128))  # weights from the latents of queries, of keys and values
FFN, EXPERT, TOPK = 18432, 2048, 8
# Module -> bytes a token of the average layer in 16 bits that it keeps inside, or that the product behind it reads.
DROPPED = {
    "core_attn": 0,
    "layernorm": 2 * 2 * HIDDEN,
    "mla_up_proj": 2 * (QUERY + KEY_VALUE),
    "mlp": DENSE * 2 * 3 * FFN,
    "moe": SPARSE * 2 * (TOPK * (3 * EXPERT + 2 * HIDDEN) + 3 * EXPERT),
    "moe_act": SPARSE * 2 * TOPK * EXPERT,
    "shared_experts": SPARSE * 2 * 3 * EXPERT,
}
# Module -> FLOP a token of the average layer, forward.
FLOPS = {
    "core_attn": 2 * HEADS * (192 + 128) * TOKENS / 2,
    "layernorm": 0,
    "mla_up_proj": 2 * UP,
    "mlp": DENSE * 2 * 3 * HIDDEN * FFN,
    "moe": SPARSE * 2 * HIDDEN * (3 * (TOPK + 1) * EXPERT + 256),
    "moe_act": 0,
    "shared_experts": SPARSE * 2 * 3 * HIDDEN * EXPERT,
}


@functools.cache
def deepseek() -> TrainingModel:
    return training_model(load_model("deepseek-v3"))


def selective(*modules: str, **numbers: Any) -> Layout:
    fields: dict[str, Any] = {**module_fields(modules), **numbers}
    return training_layout(recompute="selective", sequence=TOKENS, **fields)


def test_modules_are_those_of_megatron_core() -> None:
    assert tuple(DROPPED) == MODULES
    assert selective("core-attn") == training_layout(recompute="selective", sequence=TOKENS)
    with pytest.raises(InputError, match="moe_act"):
        module_fields(["moe_activation"])


@pytest.mark.parametrize("module", MODULES)
def test_a_module_leaves_out_the_bytes_it_makes_again(module: str) -> None:
    model, layout = deepseek(), selective(module)
    dropped = float(dropped_activations(model, layout, ONE))
    assert dropped == pytest.approx(TOKENS * DROPPED[module], rel=1e-12)
    whole = float(layer_activations(model, layout, ONE))
    assert float(kept_activations(model, layout, ONE)) == pytest.approx(whole - dropped, rel=1e-12)
    if module != "core_attn":  # of the last stage one micro-batch is live, and a layer's at a time in full
        full, less = (stage_memory(model, each, ONE, ONE) for each in (training_layout(sequence=TOKENS), layout))
        assert float(full.activations - less.activations) == pytest.approx(61 * dropped, rel=1e-9)
        assert float(less.temporary - full.temporary) == pytest.approx(dropped, rel=1e-9)


@pytest.mark.parametrize("module", MODULES)
def test_issued_flops_count_a_module_once_more(module: str) -> None:
    useful, issued = step_flops(deepseek(), selective(module, recomputed_share=0.5))
    assert float(issued - useful) == pytest.approx(TOKENS * 61 * 0.5 * FLOPS[module], rel=1e-9)


# Elements a token that the module reads and writes between its products.
STREAMED = {
    "core_attn": 0,
    "layernorm": 2 * 2 * HIDDEN,
    "mla_up_proj": 2 * (QUERY + KEY_VALUE / 2),  # rotary embedding
    "mlp": DENSE * 3 * FFN,
    "moe": SPARSE * (TOPK * (3 * EXPERT + 4 * HIDDEN) + 3 * EXPERT),
    "moe_act": SPARSE * TOPK * 3 * EXPERT,
    "shared_experts": SPARSE * 3 * EXPERT,
}


@pytest.mark.parametrize("module", [name for name in MODULES if name != "moe"])  # its rows end in half a tile
def test_a_module_takes_its_forward_time_once_more(module: str) -> None:
    layout = selective(module)
    found = layer_compute(deepseek(), layout, sustained_rates(H100, layout, ROOFLINE), ONE)
    by_hand = TOKENS * (FLOPS[module] / 989.4e12 + 2 * STREAMED[module] / 3.35e12)
    assert float(found.again) == pytest.approx(by_hand, rel=1e-9)


def test_a_block_of_experts_has_its_modules_inside() -> None:
    model, layouts = deepseek(), (selective("moe"), selective("moe", "moe_act", "shared_experts"))
    one, all_of_them = (layer_compute(model, each, sustained_rates(H100, each, ROOFLINE), ONE) for each in layouts)
    assert float(one.again) == float(all_of_them.again)
    assert float(one.again) > float(one.experts.forward)
    kept = [float(kept_activations(model, each, ONE)) for each in layouts]
    assert kept[0] == kept[1]


def test_scores_that_are_computed_again_are_kept_by_the_other_layers() -> None:
    base = {"sequence": TOKENS, "flash": 0.0}
    none, half, whole = (
        float(kept_activations(deepseek(), training_layout(recompute="selective", recomputed_share=share, **base), ONE))
        for share in (0.0, 0.5, 1.0)
    )
    assert none - whole == pytest.approx(TOKENS * HEADS * TOKENS * 2 * 2, rel=1e-12)
    assert half == pytest.approx((none + whole) / 2, rel=1e-12)


def test_messages_of_a_module_are_sent_again() -> None:
    """Dispatch and combine of a block of experts, the all-reduce of a dense block and of the shared experts, the keys
    around a context group: one forward pass more; norms and activations send nothing."""
    base = selective(tensor=2.0, data=8.0, expert=8.0, context=2.0, global_batch=8.0, sequence_parallel=0.0)
    fields = [module_fields([name]) for name in MODULES]
    columns = {name: np.array([row[name] for row in fields]) for name in fields[0]}
    kinds = ("tensor", "context", "expert")
    metrics = [f"communication.{kind}" for kind in kinds]
    found = few_layouts(deepseek(), columns, H100, ROOFLINE, base=base, metrics=metrics)
    sent = np.array([found[name] for name in metrics])
    more = {kind: dict.fromkeys(MODULES, 1.0) for kind in kinds}
    more["context"]["core_attn"] = 4 / 3  # backward is twice forward
    more["expert"]["moe"] = 3 / 2
    more["tensor"] |= {"mlp": 1 + 3 / 122 / 2, "moe": 1 + 58 / 122 / 2, "shared_experts": 1 + 58 / 122 / 2}
    once = sent[:, [MODULES.index("layernorm")]]
    np.testing.assert_allclose(sent / once, [[more[kind][name] for name in MODULES] for kind in kinds], rtol=1e-9)
