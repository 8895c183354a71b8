"""Time per configuration: llm-analysis 0.2.2 (PyPI), which evaluates one at a time, against a jaxperf sweep.

Both answer the same question, Llama-3-70B serving on A100 and H100, prefill and decode, memory included, by formulas of
their own, so the results are only checked to be plausible. llm-analysis gets its best: analyses built once per device
and layout, logging off, and only configurations that it accepts. It refuses a feed-forward width that is no multiple
of the hidden width, such as that of Llama-2-7B or Llama-3-70B, unless the ratio of the two is stated, as here.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable
from typing import Any

import jax

from benchmarks.grid import MODEL, large_devices, only
from benchmarks.table import Row
from benchmarks.timing import medians
from jaxperf.io.huggingface import load_model
from jaxperf.serving.study import Study
from jaxperf.sweeps import Sweep, linspace, powers

TARGET = ">= 1000"
VERSION = "0.2.2"
METRICS = ("ttft", "tpot", "tokens_per_second", "memory", "reason")
PEER_DEVICES = ("a100-sxm-80gb", "h100-sxm-80gb")
PEER_CONFIGURATIONS = {"tensor_parallel": (4, 8), "batch": (1, 2, 4, 8, 16), "prompt": tuple(range(256, 2304, 256))}
OUTPUT = 128


def run() -> list[Row]:
    """One row, or one that says why there is none."""
    try:
        from llm_analysis import analysis, config
    except ImportError as error:
        reason = f"skipped: llm-analysis cannot be imported ({error}); pip install 'jaxperf[bench]'"
        print(f"vs_llm_analysis {reason}", file=sys.stderr)
        return [Row("vs_llm_analysis", reason, math.nan, "x")]
    logging.getLogger("llm-analysis").setLevel(logging.ERROR)
    analysis.logger.setLevel(logging.ERROR)
    jax.config.update("jax_enable_x64", True)
    peer, configurations = peer_evaluation(analysis, config)
    sweep = serving_sweep()
    _assert_plausible(peer)
    seconds = medians({"peer": peer, "jaxperf": lambda: [None for _ in sweep.blocks()]}, rounds=5)
    each_peer, each = seconds["peer"] / configurations, seconds["jaxperf"] / sweep.plan.points
    what = (
        f"per configuration, Llama-3-70B prefill and decode: {each_peer * 1e6:.0f} us ({configurations} one by one) "
        f"against {each * 1e9:.1f} ns (sweep of {sweep.plan.points:,})"
    )
    return [Row("vs_llm_analysis", what, each_peer / each, "x", TARGET)]


def serving_sweep() -> Sweep:
    """Prefill and decode of the same model on every device, float64."""
    devices = large_devices()
    study = Study(load_model(MODEL), "serve", METRICS)
    values = {
        "device": list(devices),
        "tensor_parallel": [1, 2, 4, 8],
        "batch": powers(1, 512),
        "weights": ["bf16", "fp8", "int4"],
        "prompt": linspace(256, 16384, 64),
        "output": [128, 256, 512, 1024],
    }
    return Sweep(only(study.point(), METRICS), study.axes(values, devices), runs=10)


def peer_evaluation(analysis: Any, config: Any) -> tuple[Callable[[], list[dict]], int]:
    """A function that evaluates every accepted configuration once, and their number."""
    shape = load_model(MODEL)
    layer = shape.layers[0]
    model = config.ModelConfig(
        name="llama-3-70b",
        num_layers=len(shape.layers),
        n_head=layer.mixer.heads,
        hidden_dim=shape.hidden,
        vocab_size=shape.vocabulary,
        max_seq_len=shape.max_context,
        num_key_value_heads=layer.mixer.kv_heads,
        ffn_embed_dim=layer.ffn.intermediate,
        expansion_ratio=layer.ffn.intermediate / shape.hidden,
        model_type="llama",
    )
    accepted = []
    for device in PEER_DEVICES:
        for ranks in PEER_CONFIGURATIONS["tensor_parallel"]:
            one = analysis.LLMAnalysis(
                model,
                config.get_gpu_config_by_name(device),
                config.get_dtype_config_by_name("w16a16e16"),
                config.ParallelismConfig(tp_size=ranks),
            )
            for batch in PEER_CONFIGURATIONS["batch"]:
                for prompt in PEER_CONFIGURATIONS["prompt"]:
                    if _accepts(one, batch, prompt):
                        accepted.append((one, batch, prompt))

    def evaluate() -> list[dict]:
        return [one.inference(batch, prompt, OUTPUT) for one, batch, prompt in accepted]

    return evaluate, len(accepted)


def _accepts(one: Any, batch: int, prompt: int) -> bool:
    try:
        one.inference(batch, prompt, OUTPUT)
    except AssertionError:
        return False
    return True


def _assert_plausible(peer: Callable[[], list[dict]]) -> None:
    """The peer answers the question it is asked: decode steps of 5 to 200 ms."""
    latencies = [each["decode_latency"] for each in peer()]
    assert all(5e-3 < latency < 0.2 for latency in latencies), (min(latencies), max(latencies))
