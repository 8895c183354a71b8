"""The hierarchy of names: known names have an index, unknown ones the index after the last."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from calibration.kernels.levels import LEVELS, NO_NAMES, spell
from tests.calibration.tables import blank_table


def test_spelling_names_the_stack_and_the_cell() -> None:
    table = blank_table("gemm", {"m": [1.0], "n": [2.0], "k": [3.0]}, np.array(["h100-sxm"], dtype=object))
    spelled = spell(table)
    assert spelled["stack"][0] == "vllm/1.0/linear/bf16//"
    assert spelled["cell"][0] == "h100-sxm/vllm/1.0/linear/bf16//"
    assert set(spelled) == set(LEVELS)


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=20), st.lists(st.sampled_from("abcdef"), min_size=1))
def test_known_names_keep_their_index_and_others_are_unknown(first: list[str], second: list[str]) -> None:
    def column(names: list[str]) -> dict[str, np.ndarray]:
        return {level: np.array(names, dtype=object) for level in LEVELS}

    names = NO_NAMES.extended(column(first))
    known = names.known["cell"]
    assert sorted(known) == sorted(set(first))
    index = names.index(column(second))["cell"]
    assert [int(at) for at in index] == [known.index(name) if name in known else len(known) for name in second]
    more = names.extended(column(second))
    assert more.known["cell"][: len(known)] == known
    assert set(more.known["cell"]) == {*first, *second}


def test_libraries_are_a_level_of_kernels_that_engines_share() -> None:
    """FlashAttention is one library in all engines; a kernel in Triton is its engine's own; products have none."""
    rows = {"heads": [8.0] * 4, "kv_heads": [8.0] * 4, "head_dim": [64.0] * 4, "window": [0.0] * 4, "prefix": [0.0] * 4}
    table = blank_table(
        "attention_prefill", rows | {"q_len": [64.0] * 4, "batch": [1.0] * 4}, np.full(4, "l40s", object)
    )
    kernels = np.array(["vllm_flash_attn_fa2", "fa3", "vllm_flashinfer_fiprefill", "triton"], object)
    spelled = spell(dataclasses.replace(table, kernel=kernels))
    assert spelled["library"].tolist() == ["flash-attention", "flash-attention", "flashinfer", "vllm"]
    product = spell(blank_table("gemm", {"m": [1.0], "n": [2.0], "k": [3.0]}, np.array(["l40s"], object)))
    assert NO_NAMES.extended(product).known["library"] == ()
