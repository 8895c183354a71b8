"""`jaxperf simulate`: every mistake is one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.simulate_case import REQUESTS, SETTINGS, step_time_arrays, write_case


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    return step_time_arrays()


@pytest.fixture
def files(own_folder: Path, arrays: dict[str, np.ndarray]) -> tuple[str, ...]:
    return write_case(own_folder, arrays)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_blocks": None, "device": "h100-sxn"}, "s.json: 'h100-sxn' is not a known device. Did you mean h100-sxm"),
        ({"num_blocks": None, "device": "h" * 5000}, f"s.json: '{'h' * 60}...' is not a known device"),
        ({"num_blocks": None, "model": "gpt22"}, 's.json: No model or path "gpt22"'),
        ({"sched": ["vllm_v1"]}, "s.json: sched: a list of 1 is not a scheduler. Known: "),
        ({"sched": "vllm_1"}, "'vllm_1' is not a scheduler. Did you mean vllm_v1"),
        ({"model": "gpt22"}, 's.json: No model or path "gpt22"'),
        ({"model": None}, "the settings name no model"),
        ({"num_blocks": -1}, "num_blocks is -1"),
        ({"num_blocks": None, "device": None}, "no num_blocks: the settings name no device"),
        ({"num_blocks": None, "tp": 5}, "no num_blocks: tensor_parallel 5 does not divide"),
        ({"pp": 13}, "pp 13 is more than the 12 layers"),
        ({"num_blocks": None, "pp": 13}, "pp 13 is more than the 12 layers"),
        ({"num_blocks": None, "gpu_memory_utilization": 1.5}, "s.json: gpu_memory_utilization is 1.5"),
        ({"num_blocks": None, "model": "bert-base"}, "bert-base is an encoder"),
        ({"num_blocks": float("nan")}, "num_blocks is NaN"),
        ({"num_blocks": 10**400}, "num_blocks is 1000"),
        ({"preemption": []}, "preemption is a list of 0; it is recompute or swap"),
        ({"scheduling_policy": {}}, "scheduling_policy is an object; it is fcfs or priority"),
        ({"enable_prefix_caching": "yes"}, 'enable_prefix_caching is "yes"'),
        ({"sched": "vllm", "preemption": "swap", "swap_blocks": 4, "swap_bandwidth": "1GB/s"}, "swap_bandwidth is"),
        ({"sched": "lightllm", "block_size": 1, "pp": 2}, "lightllm has no batch under way beside another"),
    ],
)
def test_mistakes_in_settings(
    refuse, files: tuple[str, ...], own_folder: Path, settings: dict[str, Any], words: str
) -> None:
    (own_folder / "s.json").write_text(json.dumps(SETTINGS | settings))
    assert words in refuse("simulate", *files, "-o", "out.csv")
    assert not (own_folder / "out.csv").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("-o", "requests.csv"), "is the input"),
        (("-o", "s.json"), "is the input"),
        (("-o", "out.txt"), "ending must be one of"),
        (("-o", "out.csv", "--slo", "tftt=1s"), "Did you mean ttft"),
        (("-o", "out.csv", "--warm-up", "-1"), '--warm-up: "-1"'),
        (("-o", "out.csv", "--warm-up", "nan"), '--warm-up: "nan"'),
        (("-o", "out.csv", "--warm-up", "1 W"), "write a time such as"),
        (("-o", "out.csv", "--concurrency", "0"), "--concurrency: 0"),
        (("-o", "out.csv", "--routing", "rr"), "'rr' is no routing"),
        (("-o", "out.csv", "--adapt", "no.csv"), "Cannot read 'no.csv'"),
        (("-o", "out.csv", "--warm-up", "100"), "no request is sent 100 s or more after the first"),
        (("-o", "out.csv", "--warm-up", "20000ms"), "no request is sent 20 s or more after the first"),
        (("-o", "out.csv", "--replicas", "0"), "--replicas: 0"),
    ],
)
def test_mistakes_in_options(
    refuse, files: tuple[str, ...], own_folder: Path, more: tuple[str, ...], words: str
) -> None:
    assert words in refuse("simulate", *files, *more)
    assert (own_folder / "requests.csv").read_text() == REQUESTS


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mlp_up_proj": None}, "lacks mlp_up_proj"),
        ({"mlp_up_proj": np.zeros(513)}, "times that are zero"),
        ({"add": np.full(513, np.nan)}, "add has times that are negative or not numbers"),
        ({"attn_rope": np.zeros(7)}, "attn_rope has shape"),
        ({"attn_decode_bs": np.array([1, 2, 4, 8])}, "attn_decode_bs must be 1, 2"),
        ({"attn_prefill_kv": np.arange(17) * 32}, "of one step b"),
        ({"attn_decode": np.zeros((4, 3))}, "does not go with attn_decode_kv"),
        ({"add": np.array(["a"])}, "not an .npz file of numbers"),
        ({"add": np.float64(1.0)}, "add has shape ()"),
        ({"attn_decode_kv": np.float64(1.0)}, "does not go with attn_decode_kv"),
        ({"attn_prefill": np.zeros((17, 0))}, "does not go with attn_prefill_kv"),
    ],
)
def test_mistakes_in_a_table_of_step_times(
    refuse, files: tuple[str, ...], own_folder: Path, arrays: dict[str, np.ndarray], change: dict[str, Any], words: str
) -> None:
    changed = {name: values for name, values in (arrays | change).items() if values is not None}
    np.savez(own_folder / "t.npz", **changed)
    assert words in refuse("simulate", *files, "-o", "out.csv")


def test_files_that_are_no_tables(refuse, files: tuple[str, ...], own_folder: Path) -> None:
    (own_folder / "t.npz").write_text("nonsense")
    assert "t.npz is not an .npz file" in refuse("simulate", *files, "-o", "out.csv")
    (own_folder / "t.npz").unlink()
    assert "Cannot read 't.npz'" in refuse("simulate", *files, "-o", "out.csv")
    (own_folder / "s.json").write_text("{")
    assert "not valid JSON" in refuse("simulate", *files, "-o", "out.csv")
    (own_folder / "s.json").write_text('{"sched": []}')
    assert "is not a scheduler" in refuse("simulate", *files, "-o", "out.csv")
    (own_folder / "s.json").write_text('{"sched": "vllm", "pools": {"decode": {"tp": 1, "pp": 1, "tp": 2}}}')
    assert "s.json: the key 'tp' is given twice in an object of" in refuse("simulate", *files, "-o", "out.csv")
    (own_folder / "s.json").write_text("[]")
    assert "settings are an object" in refuse("simulate", *files, "-o", "out.csv")


HEADER = "arrived_at,prefill_tokens,decode_tokens"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{HEADER},DECODE_TOKENS\n0,8,8,1\n", "the columns 'decode_tokens' and 'DECODE_TOKENS' mean the same"),
        (f"\n{HEADER}\n0,8,8\n", "line 1 is empty, but must name the columns"),
        (f"# mine\n{HEADER}\n0,8,8\n", "line 1 is a comment"),
        (f"sep=,\n{HEADER}\n0,8,8\n", "line 1 is 'sep=,'"),
        (f'{HEADER}\n0,"8,8\n', "requests.csv, line 2: a quote is opened and never closed"),
        ("", "requests.csv is empty"),
    ],
)
def test_mistakes_in_the_text_of_requests(
    refuse, files: tuple[str, ...], own_folder: Path, text: str, words: str
) -> None:
    (own_folder / "requests.csv").write_text(text)
    assert words in refuse("simulate", *files, "-o", "out.csv")


def test_requests_in_another_encoding(refuse, files: tuple[str, ...], own_folder: Path) -> None:
    (own_folder / "requests.csv").write_text(f"{HEADER}\n0,8,8\n", encoding="utf-16")
    assert "requests.csv is UTF-16 text; save it as UTF-8." in refuse("simulate", *files, "-o", "out.csv")
