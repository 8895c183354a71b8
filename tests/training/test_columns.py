"""Columns of layouts: the same answers as one by one, and one compile; `benchmarks training_sweep` times them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.training_plain import plain, plain_step
from hwspecs.errors import InputError
from jaxperf.io.huggingface import load_model
from jaxperf.sweeps.program import flatten
from jaxperf.training.efficiencies import assumed_training_efficiencies
from jaxperf.training.layout import Layout
from jaxperf.training.model_build import training_model
from jaxperf.training.sweep import METRICS, evaluate_block, evaluate_layouts, few_layouts, layout_blocks
from tests.devices import A100, H100

MODEL = training_model(load_model("llama-3-70b"))
NOMINAL = assumed_training_efficiencies()


def columns(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    names = ("tensor", "pipeline", "data", "microbatch")
    return {name: 2.0 ** rng.integers(0, 4, rows) for name in names} | {
        "zero": rng.integers(0, 4, rows),
        "global_batch": np.full(rows, 1024),
    }


def test_columns_agree_with_plain_python_and_compile_once() -> None:
    found = evaluate_layouts(MODEL, columns(700), H100, NOMINAL, block=256)
    base, numbers, device, e = plain(Layout()), plain(MODEL), plain(H100), plain(NOMINAL)
    rows = [dict(zip(columns(700), row, strict=True)) for row in zip(*columns(700).values(), strict=True)]
    for index in (0, 255, 256, 699):
        run = plain(base, rows[index])
        expected, memory = plain_step(numbers, run, device, e)
        assert found["unchecked_time"][index] == pytest.approx(expected, rel=1e-9)
        assert found["memory.total"][index] == pytest.approx(memory, rel=1e-9)
    compiled = evaluate_block._cache_size()
    other = training_model(load_model("gpt3-13b"))
    evaluate_layouts(other, columns(300), A100, NOMINAL, base=Layout(sequence=2048.0), block=256)
    assert evaluate_block._cache_size() == compiled  # another model, device and base: the same program


def test_few_layouts_are_not_compiled() -> None:
    compiled = evaluate_block._cache_size()
    few = few_layouts(MODEL, columns(700), H100, NOMINAL, metrics=METRICS)
    assert evaluate_block._cache_size() == compiled
    for name, found in evaluate_layouts(MODEL, columns(700), H100, NOMINAL, block=256).items():
        np.testing.assert_allclose(few[name], found, rtol=1e-12, err_msg=name)


def test_blocks_come_in_order_and_may_be_left() -> None:
    blocks = layout_blocks(MODEL, columns(700), H100, NOMINAL, block=256, metrics=("unchecked_time", "exposed.data"))
    rows, first = next(blocks)
    assert rows == slice(0, 256) and set(first) == {"unchecked_time", "exposed.data"}
    assert [rows for rows, _ in blocks] == [slice(256, 512), slice(512, 700)]
    started = layout_blocks(MODEL, columns(700), H100, NOMINAL, block=256, metrics=("unchecked_time", "exposed.data"))
    next(started)
    started.close()


@pytest.mark.parametrize(
    "bad, message",
    [
        ({"tensr": np.ones(3)}, "Did you mean tensor"),
        ({"tensor": np.ones(3), "data": np.ones(4)}, "equally long"),
        ({"tensor": np.ones((3, 2))}, "one-dimensional"),
        ({"tensor": np.ones(0)}, "empty"),
        ({}, "empty"),
    ],
)
def test_bad_columns_are_refused(bad: dict[str, np.ndarray], message: str) -> None:
    for evaluate in (evaluate_layouts, few_layouts):
        with pytest.raises(InputError, match=message):
            evaluate(MODEL, bad, H100, NOMINAL)


def test_the_program_of_a_block_is_plain() -> None:
    """So that its results may share loops (`jaxperf.core.compiler_options.JOINTLY`)."""
    fields = {name: each.astype(float) for name, each in columns(8).items()}
    given = (MODEL, Layout(), fields, H100, NOMINAL, METRICS)
    assert flatten(evaluate_block.trace(*given).jaxpr).plain
