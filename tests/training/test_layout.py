"""Layouts from names, the sizes that follow from them, and why one cannot run."""

from __future__ import annotations

import dataclasses

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.core.formats import COMPUTE_FORMATS
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.training.efficiencies import TrainingEfficiencies, assumed_table, assumed_training_efficiencies
from jaxperf.training.layout import Layout, format_fields, training_layout
from jaxperf.training.layout_checks import SENTENCES, TrainingReason, layout_reasons, reason_sentences
from jaxperf.training.model_build import training_model
from tests.devices import H100

LLAMA = training_model(load_model("llama-3-70b"))
MIXTRAL = training_model(load_model("mixtral-8x7b"))
PHI = training_model(load_model("phi-4"))  # 40 heads, 10 of keys and values
QWEN_NEXT = training_model(load_model("qwen3-next-80b-a3b"))  # recurrent layers of 16 heads of keys, 2 groups
reasons = jax.jit(layout_reasons)


def why(model=LLAMA, device=H100, memory: float = 1e9, **fields) -> TrainingReason:
    layout = training_layout(**{"global_batch": 64, **fields})
    return TrainingReason(int(reasons(model, layout, device, as_float(memory), as_float(0.0))))


@pytest.mark.parametrize(
    "fields, reason",
    [
        ({}, TrainingReason(0)),
        ({"tensor": 8, "pipeline": 5, "data": 2, "interleave": 4, "schedule": "interleaved"}, TrainingReason(0)),
        ({"pipeline": 3, "uneven": 1}, TrainingReason(0)),
        ({"pipeline": 3, "uneven": 0}, TrainingReason.STAGES),
        ({"pipeline": 81}, TrainingReason.STAGES),
        ({"tensor": 2, "devices": 3}, TrainingReason.WORLD),
        ({"tensor": 2, "pipeline": 4, "devices": 8}, TrainingReason(0)),
        ({"tensor": 3, "sequence_parallel": 0}, TrainingReason.TENSOR),
        ({"model": PHI, "tensor": 5, "sequence_parallel": 0}, TrainingReason(0)),
        ({"model": PHI, "tensor": 20, "sequence": 4000}, TrainingReason(0)),
        ({"model": PHI, "tensor": 4}, TrainingReason.TENSOR),
        ({"model": QWEN_NEXT, "tensor": 16}, TrainingReason(0)),
        ({"model": QWEN_NEXT, "tensor": 32}, TrainingReason.TENSOR),
        ({"context": 3}, TrainingReason.CONTEXT),
        ({"tensor": 8, "sequence": 4100}, TrainingReason.CONTEXT),  # rows of a norm, which sequence parallelism splits
        ({"tensor": 8, "sequence": 4100, "sequence_parallel": 0}, 0),
        ({"context": 16, "tensor": 8, "context_method": "ulysses"}, TrainingReason.CONTEXT),
        ({"context": 8, "tensor": 8, "context_method": "ulysses"}, TrainingReason(0)),
        ({"model": PHI, "context": 5, "sequence": 5120, "context_method": "ulysses"}, TrainingReason(0)),
        ({"model": PHI, "context": 4, "context_method": "ulysses"}, TrainingReason.CONTEXT),
        ({"expert": 2, "data": 2}, TrainingReason.EXPERTS),
        ({"data": 3}, TrainingReason.BATCH),
        ({"microbatch": 5}, TrainingReason.BATCH),
        ({"interleave": 2, "pipeline": 2}, TrainingReason.SCHEDULE),
        ({"schedule": "zb-h1"}, TrainingReason.SCHEDULE),
        ({"schedule": "dualpipe", "pipeline": 8}, TrainingReason(0)),
        ({"schedule": "dualpipe", "pipeline": 5}, TrainingReason.SCHEDULE),
        ({"schedule": "dualpipe", "pipeline": 8, "data": 8}, TrainingReason.SCHEDULE),
        ({"schedule": "dualpipe", "pipeline": 2, "global_batch": 7}, TrainingReason.SCHEDULE),
        ({"data": 8, "shard_group": 3}, TrainingReason.SHARD_GROUP),
        ({"memory": 81e9}, TrainingReason.MEMORY),
        ({"model": MIXTRAL, "expert": 3, "data": 3, "global_batch": 3}, TrainingReason.EXPERTS),
        ({"model": MIXTRAL, "expert_tensor": 3, "data": 3, "global_batch": 3}, TrainingReason.EXPERTS),
        ({"model": MIXTRAL, "expert": 8, "data": 4}, TrainingReason.EXPERT_GROUP),
        ({"model": MIXTRAL, "expert": 8, "tensor": 2, "data": 4}, TrainingReason(0)),
        ({"device": H100.replace(network_bandwidth=0), "data": 16}, TrainingReason.NETWORK),
        (
            {"device": H100.replace(network_bandwidth=0), "tensor": 16},
            TrainingReason.NETWORK | TrainingReason.TENSOR_LINK,
        ),
        ({"device": H100.replace(peak_flops=[0.0] * len(COMPUTE_FORMATS))}, TrainingReason.FORMAT),
    ],
)
def test_why_a_layout_cannot_run(fields: dict, reason: TrainingReason) -> None:
    assert why(**fields) == reason


@pytest.mark.parametrize(
    ("name", "value"),
    [("zero", 7), ("zero", -1), ("global_batch", 0), ("tensor", -1), ("sequence", 0), ("interleave", 0), ("data", 0.5)],
)
def test_numbers_that_no_run_can_have(name: str, value: float) -> None:
    """A plain number is refused; one that is traced has its reason."""
    with pytest.raises(InputError, match=rf"Layout\.{name} is {value}; it must be"):
        training_layout(**{name: value})  # type: ignore[arg-type]
    layout = dataclasses.replace(training_layout(global_batch=64), **{name: value})
    found = TrainingReason(int(reasons(LLAMA, layout, H100, as_float(1e9), as_float(0.0))))
    assert TrainingReason.COUNT in found


@pytest.mark.parametrize(("rank", "wide"), [(8192, False), (8193, True)])
def test_adapters_are_no_wider_than_the_model(rank: int, wide: bool) -> None:
    layout = training_layout(global_batch=64, lora_rank=rank, frozen=1)
    found = TrainingReason(int(reasons(LLAMA, layout, H100, as_float(1e9), as_float(0.0))))
    assert (TrainingReason.ADAPTERS in found) == wide


@pytest.mark.parametrize(("name", "value"), [("zero", 2.5), ("sequence_parallel", 2)])
def test_choices_are_no_ranges(name: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"Layout\.{name} is {value}; it must be"):
        training_layout(**{name: value})  # type: ignore[arg-type]


def test_every_reason_has_its_sentence() -> None:
    assert set(SENTENCES) == set(TrainingReason)
    assert reason_sentences(0) == []
    assert reason_sentences(5) == [SENTENCES[TrainingReason.MEMORY], SENTENCES[TrainingReason.TENSOR]]


@given(st.integers(1, 16), st.integers(1, 16), st.integers(1, 8), st.integers(1, 64), st.integers(1, 8))
def test_sizes_follow_from_the_layout(tensor: int, pipeline: int, context: int, data: int, micro: int) -> None:
    layout = Layout(
        tensor=tensor, pipeline=pipeline, context=context, data=data, microbatch=micro, global_batch=6 * data * micro
    )
    assert float(layout.world) == tensor * pipeline * context * data
    assert float(layout.microbatches) == 6
    assert float(layout.tokens) == pytest.approx(micro * 4096 / context)
    assert float(layout.shard) == data * context


@pytest.mark.parametrize(
    "dtype, compute, plain, operand, optimizer, quantized",
    [
        ("bf16", "bf16", "bf16", 2, 12, 0),
        ("fp16", "fp16", "fp16", 2, 12, 0),
        ("fp32", "fp32", "fp32", 4, 8, 0),
        ("fp8", "fp8", "bf16", 1, 12, 1),
        ("mxfp8", "fp8", "bf16", 33 / 32, 12, 1),
        ("nvfp4", "fp4", "bf16", 9 / 16, 12, 1),
    ],
)
def test_formats_of_mixed_precision(
    dtype: str, compute: str, plain: str, operand: float, optimizer: float, quantized: float
) -> None:
    fields = format_fields(dtype)
    assert fields["compute_format"] == COMPUTE_FORMATS.index(compute)
    assert fields["plain_format"] == COMPUTE_FORMATS.index(plain)
    found = [fields[name] for name in ("operand_bytes", "optimizer_bytes", "quantized")]
    assert found == [operand, optimizer, quantized]


@pytest.mark.parametrize(
    ("dtype", "itemsize", "gradient", "optimizer"),
    [("bf16", 2, 4, 12), ("fp8", 2, 4, 12), ("tf32", 4, 4, 8), ("fp32", 4, 4, 8), ("fp64", 8, 8, 16)],
)
def test_bytes_of_states_and_messages(dtype: str, itemsize: float, gradient: float, optimizer: float) -> None:
    """Weights and messages in the wide format of a run, gradients and two moments in fp32 at least, a master copy where
    the weights are shorter."""
    fields = format_fields(dtype)
    assert {fields[f"{name}_bytes"] for name in ("weight", "activation", "dispatch")} == {itemsize}
    assert (fields["gradient_bytes"], fields["optimizer_bytes"]) == (gradient, optimizer)


@pytest.mark.parametrize(
    "names, hint",
    [
        ({"schedule": "1f1"}, "1f1b"),
        ({"recompute": "selectiv"}, "selective"),
        ({"context_method": "rings"}, "ring"),
        ({"dtype": "bf61"}, "bf16"),
        ({"tensr": 2}, "tensor"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(names: dict, hint: str) -> None:
    with pytest.raises(InputError, match=f"Did you mean .*{hint}"):
        training_layout(**names)


@pytest.mark.parametrize("name", ["recomputed_share", "offload", "offload_optimizer", "recompute_moe_act"])
def test_a_share_is_from_0_to_1(name: str) -> None:
    for value in (-0.1, 1.5, float("nan")):
        with pytest.raises(InputError, match=f"Layout.{name} is {value}; it must be a number from 0 to 1"):
            training_layout(**{name: value})
    assert float(getattr(training_layout(**{name: 0.5}), name)) == 0.5


def test_assumptions_bracket_the_nominal_value_and_have_reasons() -> None:
    table = assumed_table()
    assert set(table) == {field.name for field in dataclasses.fields(TrainingEfficiencies)}
    for name, entry in table.items():
        assert entry["reason"], name
        assert min(entry["low"], entry["high"]) <= entry["nominal"] <= max(entry["low"], entry["high"]), name
    with pytest.raises(InputError, match="nominal"):
        assumed_training_efficiencies("nominl")
