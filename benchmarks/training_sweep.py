"""Training layouts a second: columns of full configurations through one compiled step, against a plain Python loop.

Every configuration is evaluated in full: time, memory of the fullest stage, utilization, bubble, energy, reasons. The
contenders have random dense columns (each row its own tensor, pipeline, context, expert, data, interleave, micro-batch,
ZeRO stage, recomputation, sequence parallelism) of DeepSeek-V3 on H100, as a search does. The loop is
`training_plain`: the same equations one configuration at a time, as tools such as Calculon work; both agree to 1e-9
before they are timed. Traffic of the columns beside a copy shows how far the formula is from the memory's limit: it
computes some two thousand operations a row, so it is far.
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.table import Row
from benchmarks.timing import medians
from benchmarks.training_plain import plain, plain_step
from jaxperf.core.device import load_device
from jaxperf.io.huggingface import load_model
from jaxperf.training.efficiencies import assumed_training_efficiencies
from jaxperf.training.layout import Layout
from jaxperf.training.model_build import training_model
from jaxperf.training.sweep import BLOCK, METRICS, evaluate_block

ROWS = 2**18
PLAIN_ROWS = 1000
CHECKED = 50
COPY_BYTES = 2**28
FIXED = Layout(global_batch=4096.0, deduplicate=0.0)


def run() -> list[Row]:
    """Rates in both precisions and their ratios to the loop, on one core."""
    rows = []
    for wide in (False, True):
        jax.config.update("jax_enable_x64", wide)
        rows += _precision(wide)
    return rows


def _precision(wide: bool) -> list[Row]:
    model, device = training_model(load_model("deepseek-v3")), load_device("h100-sxm")
    efficiencies, base = assumed_training_efficiencies(), Layout(**vars(FIXED))
    columns = random_layouts(ROWS)
    blocks = [
        {name: jnp.asarray(each[start : start + BLOCK], jnp.result_type(float)) for name, each in columns.items()}
        for start in range(0, ROWS, BLOCK)
    ]
    begin = time.process_time()
    first = evaluate_block(model, base, blocks[0], device, efficiencies, METRICS)
    jax.block_until_ready(first)
    compile_time = time.process_time() - begin
    numbers = [plain(each) for each in (model, device, efficiencies)]
    runs = [plain(base, {name: float(each[row]) for name, each in columns.items()}) for row in range(PLAIN_ROWS)]
    _assert_same(first, numbers, runs[:CHECKED], 1e-9 if wide else 2e-5)
    source = np.ones(COPY_BYTES // 8)
    target = np.zeros_like(source)

    def sweep() -> None:
        for block in blocks:
            jax.block_until_ready(evaluate_block(model, base, block, device, efficiencies, METRICS))

    def loop() -> None:
        for each in runs:
            plain_step(numbers[0], each, numbers[1], numbers[2])

    contenders = {"sweep": sweep, "loop": loop, "copy": lambda: np.copyto(target, source)}
    seconds = medians(contenders, rounds=5)
    rate, plain_rate = ROWS / seconds["sweep"], PLAIN_ROWS / seconds["loop"]
    traffic = rate * (len(columns) + len(METRICS)) * (8 if wide else 4)
    copy = 2 * COPY_BYTES / seconds["copy"]
    name = "float64" if wide else "float32"
    return [
        Row("training_sweep", f"full training configurations a second and core, {name}", rate / 1e6, "M/s", ">= 0.5"),
        Row(
            "training_sweep",
            f"times a plain Python loop of the same equations ({plain_rate:,.0f}/s), {name}",
            rate / plain_rate,
            "x",
            ">= 50",
        ),
        Row("training_sweep", f"of copy bandwidth ({copy / 1e9:.1f} GB/s), {name}", 100 * traffic / copy, "%"),
        Row("training_sweep", f"CPU time to trace and compile the step, {name}", compile_time, "s"),
    ]


def random_layouts(rows: int) -> dict[str, np.ndarray]:
    """One column a varying field; powers of two where ranks are meant."""
    rng = np.random.default_rng(0)
    powers = {"tensor": 4, "pipeline": 5, "context": 3, "expert": 7, "data": 8, "microbatch": 3}
    columns = {name: 2.0 ** rng.integers(0, limit, rows) for name, limit in powers.items()}
    interleave = 2.0 ** rng.integers(0, 3, rows)
    return columns | {
        "interleave": interleave,
        "schedule": np.where(interleave > 1, 2.0, 1.0),
        "zero": rng.integers(0, 4, rows).astype(float),
        "recompute": rng.integers(0, 3, rows).astype(float),
        "sequence_parallel": rng.integers(0, 2, rows).astype(float),
    }


def _assert_same(found: dict[str, jax.Array], numbers: list, runs: list, tolerance: float) -> None:
    """Time and memory of the first rows, by the loop; rows whose groups cannot exist have no meaning there."""
    model, device, efficiencies = numbers
    for row, each in enumerate(runs):
        if each.expert > each.tensor * each.context * each.data:
            continue
        expected = plain_step(model, each, device, efficiencies)
        got = [float(found[name][row]) for name in ("unchecked_time", "memory.total")]
        np.testing.assert_allclose(got, expected, rtol=tolerance, err_msg=str(each))
