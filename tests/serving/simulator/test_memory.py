"""Blocks that fit beside the weights, against a count by hand."""

from __future__ import annotations

import pytest

from hwspecs.errors import InputError
from jaxperf.api import load_device
from jaxperf.io.huggingface import load_model
from jaxperf.models.layers import transformer
from jaxperf.serving.simulator.composed import deployment_for
from jaxperf.serving.simulator.memory import CacheMemory, Placement, cache_memory

LLAMA_2_7B = 6_738_415_616  # parameters, as its checkpoint has them
TOKEN = 2 * 32 * 4096 * 2  # bytes of keys and values of its 32 layers, 4,096 wide, of two bytes


def blocks(
    tensor_parallel: int = 1,
    stages: int = 1,
    size: int = 16,
    utilization: float = 0.9,
    step: int = 2048,
    length: float | None = 3000.0,
    sequences: int = 256,
    name: str = "llama-2-7b",
) -> CacheMemory:
    model, device = load_model(name), load_device("a100-sxm-80gb")
    deployment = deployment_for(model, device, tensor_parallel, pipeline_parallel=stages)
    return cache_memory(
        Placement(deployment, transformer(model), size, step, sequences, length), utilization, "chunk_size"
    )


def test_llama_on_an_a100_by_hand() -> None:
    found = blocks()
    assert found.block_bytes == 16 * TOKEN
    alive = 2048 * (2 * 4096 + 3 * 11008) * 2.0  # residual, normed input, gate, up and their product, of two bytes
    left = 0.9 * 80e9 - 2.0 * LLAMA_2_7B - alive
    assert found.blocks == pytest.approx(left / (16 * TOKEN), rel=1e-3)
    assert "80 GB of memory, 13.48 GB of weights" in found.note


def test_windows_hold_less_of_a_long_request() -> None:
    """Gemma 3 27B: 10 of 62 layers see all tokens, the others the latest 1,024; keys and values of 16 x 128 each."""
    token = 2 * 62 * 16 * 128 * 2
    short, long = blocks(name="gemma-3-27b", length=1000.0), blocks(name="gemma-3-27b", length=16384.0)
    assert short.block_bytes == 16 * token and "windows" not in short.note
    held = (10 + 52 * 1024 / 16384) / 62
    assert long.block_bytes == pytest.approx(held * 16 * token)
    assert long.blocks == pytest.approx(short.blocks / held, rel=1e-3)
    assert "21 % of a request of 16,384 tokens kept (windows)" in long.note
    assert blocks(length=1.0) == blocks(length=100_000.0), "without windows a block is a block"


@pytest.mark.parametrize(("tensor_parallel", "stages"), [(2, 1), (1, 2), (2, 4)])
def test_ranks_and_stages_hold_their_share_of_a_block(tensor_parallel: int, stages: int) -> None:
    assert blocks(tensor_parallel, stages).block_bytes == 16 * TOKEN / (tensor_parallel * stages)
    assert blocks(tensor_parallel, stages).blocks > tensor_parallel * stages * blocks().blocks


def test_smaller_blocks_are_more_and_less_memory_is_fewer() -> None:
    assert 2 * blocks().blocks <= blocks(size=8).blocks <= 2 * blocks().blocks + 1
    assert blocks(utilization=0.5).blocks < blocks().blocks


def test_a_model_that_leaves_no_room_is_said_with_its_bytes() -> None:
    with pytest.raises(InputError, match="no memory is left for a block of KV cache: 80 GB of memory, 13.48 GB"):
        blocks(utilization=0.1)


def test_the_setting_of_a_step_is_named_where_its_activations_leave_no_room() -> None:
    """What two million tokens keep is more than the memory; weights that are too large are no step's fault."""
    with pytest.raises(InputError, match=r"a step of 2,097,152 tokens.*: lower chunk_size\.$"):
        blocks(step=2**21)
    with pytest.raises(InputError, match=r"0\.1 of the memory used\.$"):
        blocks(utilization=0.1)


def test_a_format_that_is_empty_is_none_and_not_the_models_own() -> None:
    with pytest.raises(InputError, match="Unknown number format ''"):
        deployment_for(load_model("gpt2"), load_device("a100-sxm-80gb"), 1, weights="")


def test_each_sequence_of_a_step_has_one_row_of_logits() -> None:
    """As vLLM's own profile of a step has it: GPT-2's vocabulary is wider than its layers by far."""
    few, many = (blocks(name="gpt2", sequences=count) for count in (1, 2048))
    logits = (2048 * 50257 * 4.0 - 2048 * (2 * 768 + 2 * 3072) * 4.0) / many.block_bytes
    assert few.blocks - many.blocks == pytest.approx(logits, abs=1.0)


def test_states_of_recurrent_layers_are_part_of_a_request_or_said_to_be_left_out() -> None:
    """Jamba: its Mamba layers keep as much as a thousand tokens, whatever the length of a request."""
    short, long, plain = (blocks(4, name="jamba-v0.1", length=each) for each in (160.0, 1.6e6, None))
    states = (short.block_bytes - plain.block_bytes) * 10
    assert states > 10 * plain.block_bytes and long.block_bytes == pytest.approx(plain.block_bytes, rel=1e-2)
    assert f"{states / 1e6:.3g} MB of states a request" in short.note and "left out" not in short.note
    assert plain.note.endswith("MB of states a request, which is left out")
