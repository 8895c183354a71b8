"""vLLM v1 against the package's own scheduler, where that is installed."""

from __future__ import annotations

import pytest

from tests.serving.simulator.fuzz import Draw, compare, draw, draw_priorities

pytest.importorskip("vllm", reason="the package vllm (with a PyTorch for CPUs) is not installed")


@pytest.mark.parametrize("drawn", [draw, draw_priorities])
def test_fifty_small_traces_agree_step_for_step_with_the_package(drawn: Draw) -> None:
    """`python -m tests.serving.simulator.vllm_engine` compares a thousand, with cached prefixes too."""
    from tests.serving.simulator.vllm_engine import simulate

    assert not compare("vllm_v1", 50, 0, drawn, simulate)
