"""Settings files: Vidur's keys, the schedulers' defaults for null, and mistakes as sentences."""

from __future__ import annotations

from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.serving.simulator.cells import utilization_of
from jaxperf.serving.simulator.names import in_our_words
from jaxperf.serving.simulator.settings import parse_scheduler

VIDUR = {
    "num_blocks": 7424.0,
    "block_size": 16,
    "batch_size_cap": 128,
    "watermark_blocks": 74,
    "max_batch_size": 29.0,
    "max_blocks_per_seq": 256,
    "chunk_size": None,
    "max_tokens_in_batch": 4096,
    "model": "meta-llama/Llama-2-7b-hf",
    "tp": 1,
    "sim_s": 3.5,
}

SWAP = {"preemption": "swap", "swap_blocks": 0, "swap_bandwidth": 32e9, "block_bytes": 8e6}


def numbers(**given: Any) -> dict[str, int]:
    return dict(parse_scheduler({"num_blocks": 1000, **given}).numbers)


def test_a_file_of_vidur() -> None:
    scheduler = parse_scheduler({**VIDUR, "sched": "vllm"})
    assert scheduler.numbers == {
        **{"blocks": 7424, "block_size": 16, "watermark": 74, "cap": 128, "batch_tokens": 4096, "chunk": 512},
        **{"reserved": 256, "waiting_steps": 10},
    }
    assert (scheduler.model, scheduler.tensor_parallel, scheduler.notes) == ("meta-llama/Llama-2-7b-hf", 1, ())


def test_reservations_limit_the_batch_of_the_schedulers_that_reserve() -> None:
    caps = {name: parse_scheduler({**VIDUR, "sched": name}).numbers["cap"] for name in ("orca", "faster_transformer")}
    assert caps == {"orca": 29, "faster_transformer": 29}


def test_null_means_the_default_of_the_scheduler() -> None:
    assert numbers(sched="vllm", watermark_blocks=None)["watermark"] == 10
    assert numbers(sched="vllm", watermark_fraction=0.05)["watermark"] == 50
    assert numbers(sched="sarathi", chunk_size=None)["chunk"] == 512
    assert numbers(sched="lightllm")["block_size"] == 1
    v1 = numbers(sched="vllm_v1")
    assert (v1["chunk"], v1["cap"], v1["watermark"]) == (2048, 256, 0)
    assert numbers(sched="orca", block_size=32)["reserved"] == 128
    blocks = parse_scheduler({"sched": "orca", "max_batch_size": 109, "max_blocks_per_seq": 256}).numbers["blocks"]
    assert blocks == 27904  # as in Vidur's file of CodeLlama-34B


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sched": "vlm"}, ["'vlm'", "vllm"]),
        ({"sched": None}, ["no key 'sched'", "sarathi"]),
        ({"sched": "vllm", "num_blocks": None}, ["num_blocks", "max_batch_size"]),
        ({"sched": "vllm", "num_blocks": 0}, ["num_blocks is 0"]),
        ({"sched": "vllm", "num_blocks": 10.5}, ["num_blocks is 10.5"]),
        ({"sched": "vllm", "block_size": True}, ["block_size is true"]),
        ({"sched": "vllm", "block_size": "16"}, ['block_size is "16"']),
        ({"sched": "vllm", "watermark_fraction": 1.5}, ["watermark_fraction is 1.5"]),
        ({"sched": "vllm", "num_blocks": 2**28}, ["tokens; at most"]),
        ({"sched": "vllm_v1", "max_tokens_in_batch": 64}, ["less than batch_size_cap 256"]),
        ({"sched": "lightllm", "block_size": 16}, ["block_size is 16", "lightllm"]),
        ({"sched": "vllm", "model": 7}, ["model is 7"]),
        ({"sched": "vllm_v1", "enable_prefix_caching": 1}, ["enable_prefix_caching is 1"]),
        ({"sched": "vllm", "enable_prefix_caching": True}, ["only vllm_v1 caches prefixes"]),
        ({"sched": "vllm", "num_blocks": float("nan")}, ["num_blocks is NaN"]),
        ({"sched": "vllm", "preemption": "swp"}, ['preemption is "swp"', "recompute or swap", "Did you mean swap"]),
        ({"sched": "vllm_v1", **SWAP}, ["only vllm (v0) swaps", "vllm_v1"]),
        ({"sched": "vllm", **SWAP, "swap_bandwidth": 0}, ["swap_bandwidth is 0", "above zero"]),
        ({"sched": "vllm", **SWAP, "block_bytes": None}, ["no block_bytes"]),
        ({"sched": "vllm", "preemption": "swap"}, ["no swap_blocks, swap_bandwidth, block_bytes"]),
        ({"sched": "vllm", **SWAP, "pp": 2}, ["pp is 2", "swap"]),
        ({"sched": "vllm", "scheduling_policy": "priority"}, ["only vllm_v1 knows priorities", "vllm"]),
        ({"sched": "vllm_v1", "scheduling_policy": 1}, ["scheduling_policy is 1", "fcfs or priority"]),
        ({"sched": "vllm_v1", "scheduling_policy": "priority", "pp": 2}, ["pp is 2", "priority"]),
        ({"sched": "faster_transformer", "pp": 2}, ["pp is 2", "faster_transformer"]),
        ({"sched": "vllm", "async_scheduling": True}, ["only vllm_v1 schedules ahead", "vllm"]),
        ({"sched": "vllm", "pipeline_batches": "vllm_queue"}, ["only vllm_v1 has that queue", "vllm"]),
        ({"sched": "vllm_v1", "pipeline_batches": "eager"}, ["pipeline_batches", "as_they_come", "vllm_queue"]),
        ({"sched": "vllm_v1", "async_scheduling": 1}, ["async_scheduling is 1", "true or false"]),
        ({"sched": "vllm_v1", "async_scheduling": True, "pp": 2}, ["async_scheduling is true", "pp 1 only"]),
        ({"sched": "vllm", "pp": 65}, ["pp is 65", "at most 64"]),
        ({"sched": "vllm_v1", "pp": 2, "enable_prefix_caching": True}, ["enable_prefix_caching true", "pp 1 only"]),
    ],
)
def test_mistakes_are_sentences(given: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse_scheduler({"num_blocks": 1000, **given}, "s.json")
    assert str(caught.value).startswith("s.json: ")
    for word in words:
        assert word in str(caught.value)


def test_swapping_copies_a_block_in_its_bytes_over_the_bandwidth() -> None:
    scheduler = parse_scheduler({"sched": "vllm", "num_blocks": 10, **SWAP})
    assert scheduler.swap_seconds == 8e6 / 32e9 and scheduler.numbers["swap_blocks"] == 0
    arrays = scheduler.arrays(3)
    assert arrays.swap_seconds is not None and arrays.swap_seconds.tolist() == [8e6 / 32e9] * 3
    assert parse_scheduler({"sched": "vllm", "num_blocks": 10}).arrays().swap_blocks is None


def test_a_pipeline_caches_no_prefixes_and_says_so() -> None:
    scheduler = parse_scheduler({"sched": "vllm_v1", "num_blocks": 10, "pp": 4})
    assert (scheduler.pipeline_parallel, scheduler.tokens_per_hash) == (4, 0)
    assert scheduler.notes[0] == "prefixes are not cached with pp above 1"
    assert "vllm_queue looks for them when a batch ends" in scheduler.notes[1]
    stated = parse_scheduler({"sched": "vllm_v1", "num_blocks": 10, "pp": 4, "pipeline_batches": "vllm_queue"})
    assert stated.policy.queues and len(stated.notes) == 1


def test_what_is_assumed_of_scheduling_ahead_is_said() -> None:
    (note,) = parse_scheduler({"sched": "vllm_v1", "num_blocks": 10}).notes
    assert note == "async_scheduling is not stated: each step is formed after the one before it, as before vLLM 0.14"
    assert parse_scheduler({"sched": "vllm_v1", "num_blocks": 10, "async_scheduling": True}).notes == ()


def test_keys_of_a_mode_that_is_off_are_said() -> None:
    given = {"sched": "vllm", "num_blocks": 10, **SWAP}
    assert parse_scheduler(given).notes == ()
    off = parse_scheduler({**given, "preemption": "recompute"}).notes
    assert off == tuple(f"{key} is not used: preemption is recompute" for key in SWAP if key != "preemption")
    queue = {"sched": "vllm_v1", "num_blocks": 10, "pipeline_batches": "vllm_queue", "async_scheduling": False}
    assert parse_scheduler(queue).notes == ("pipeline_batches is not used: pp is 1",)


def test_vllm_v1_caches_prefixes_unless_told_not_to() -> None:
    given = {"num_blocks": 1000, "tokens_per_hash": 64}
    found = [{"sched": "vllm_v1"}, {"sched": "vllm_v1", "enable_prefix_caching": False}, {"sched": "vllm"}]
    assert [parse_scheduler(given | each).tokens_per_hash for each in found] == [64, 0, 0]


@pytest.mark.parametrize(
    ("key", "note"),
    [
        ("chunksize", "chunksize is not a setting. Did you mean chunk_size?"),
        ("tensor_paralell", "tensor_paralell is not a setting. Did you mean tp?"),
        ("max_num_seq", "max_num_seq is not a setting. Did you mean batch_size_cap?"),
        ("pool", "pool is not a setting. Did you mean pools?"),
        ("replica", "replica is not a setting"),
        ("data_parallel_size", "data_parallel_size is not a setting: an engine is split by tp and pp alone"),
        ("expert_parallel", "expert_parallel is not a setting: an engine is split by tp and pp alone"),
        ("ep", "ep is not a setting: an engine is split by tp and pp alone"),
        ("pipeline_paralel_size", "pipeline_paralel_size is not a setting. Did you mean pp?"),
        ("max_tokens", "max_tokens is not a setting. Did you mean max_tokens_in_batch?"),
    ],
)
def test_a_key_that_is_none_is_noted_with_the_nearest(key: str, note: str) -> None:
    assert parse_scheduler({"sched": "vllm", "num_blocks": 10, key: 4}).notes == (note,)


def test_arguments_of_vllm_are_ours() -> None:
    ours = {"sched": "vllm_v1", "num_blocks": 9, "batch_size_cap": 8, "max_tokens_in_batch": 512, "tp": 2, "pp": 2}
    theirs = {"scheduler": "vllm_v1", "num_blocks": 9, "max_num_seqs": 8, "max_num_batched_tokens": 512}
    theirs |= {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    assert parse_scheduler(theirs) == parse_scheduler(ours)
    assert in_our_words({"pools": {"decode": theirs}}) == {"pools": {"decode": ours}}
    for both in ({"tp": 2, "tensor_parallel_size": 4}, {"tensor_parallel_size": 4, "tensor_parallel": 4}):
        with pytest.raises(InputError, match=r"s\.json: tensor_parallel\w* and another name of tp are both given"):
            parse_scheduler({**ours, **both} if "tp" in both else {"sched": "vllm", "num_blocks": 9, **both}, "s.json")


@pytest.mark.parametrize("name", ["vllm", "vllm_v1", "sarathi", "orca", "faster_transformer", "lightllm"])
def test_a_key_that_only_others_use_is_noted(name: str) -> None:
    given = {"chunk_size": 300, "watermark_blocks": 3, "max_waiting_iters": 7, "max_tokens_in_batch": 512}
    stated = {"sched": name, "num_blocks": 600, "async_scheduling": False}
    noted = [note.split()[0] for note in parse_scheduler({**stated, "batch_size_cap": 8, **given}).notes]
    used = {
        "vllm": ["watermark_blocks", "max_tokens_in_batch"],
        "vllm_v1": ["max_tokens_in_batch"],
        "sarathi": ["chunk_size", "watermark_blocks"],
        "lightllm": ["max_waiting_iters", "max_tokens_in_batch"],
    }
    assert sorted(noted) == sorted(given.keys() - set(used.get(name, ())))
    assert parse_scheduler({**stated, **dict.fromkeys(given)}).notes == ()


def test_who_uses_a_key_is_said() -> None:
    (note, _) = parse_scheduler({"sched": "vllm_v1", "num_blocks": 600, "chunk_size": 300}).notes
    assert note == "chunk_size is not used by vllm_v1, but by sarathi and sarathi_fixed"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"sched": "orca"}, "batch_size_cap (or max_batch_size)"),
        ({"sched": "orca"}, "max_batch_size"),
        ({"sched": "vllm"}, "max_tokens_in_batch"),
        ({"sched": "vllm", "batch_size_cap": 8192}, "batch_size_cap"),
        ({"sched": "vllm_v1", "async_scheduling": False}, "max_tokens_in_batch"),
        ({"sched": "sarathi_fixed"}, "chunk_size"),
    ],
)
def test_lowering_the_setting_of_a_step_lowers_its_tokens(given: dict[str, Any], name: str) -> None:
    scheduler, key = parse_scheduler({"num_blocks": 600, **given}), name.split()[0]
    assert name in scheduler.step_setting
    lower = parse_scheduler({"num_blocks": 600, **given, key: 64 if "batch_size" in key else 256})
    assert lower.most_tokens() < scheduler.most_tokens() and lower.notes == ()


@pytest.mark.parametrize("name", ["orca", "faster_transformer"])
def test_requests_of_the_largest_step_are_as_long_as_blocks_are_reserved_for(name: str) -> None:
    """A key that is not used counts nothing; 4,096 tokens are reserved where nobody says otherwise."""
    given = {"sched": name, "num_blocks": 600, "batch_size_cap": 8}
    assert parse_scheduler(given).most_tokens() == 8 * 4096
    assert parse_scheduler({**given, "max_tokens_in_batch": 512}).most_tokens() == 8 * 4096
    assert parse_scheduler({**given, "max_blocks_per_seq": 32, "block_size": 8}).most_tokens() == 8 * 256
    assert parse_scheduler({**given, "pred_max_tokens": 1024}).most_tokens() == 8 * 1024
    assert parse_scheduler(given).most_tokens(100) == 800


def test_an_engine_may_take_all_of_the_memory() -> None:
    stated = [utilization_of({"gpu_memory_utilization": value}, "s.json") for value in (None, 0.45, 1, 1.0)]
    assert stated == [0.9, 0.45, 1.0, 1.0]
    for value in (0, -0.5, 1.01, float("nan"), True, "0.9"):
        with pytest.raises(InputError, match="gpu_memory_utilization is .* above 0, at most 1"):
            utilization_of({"gpu_memory_utilization": value}, "s.json")
