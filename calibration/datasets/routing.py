"""How tables of expert layers were measured: their routing, what a rank does with copies that are not its own, and by
which rule its software cuts the products into tiles. From sources that are named here, but for `UNTUNED`, which the
measured times tell."""

from __future__ import annotations

import numpy as np

from calibration.datasets.names import BALANCED, POWER_LAW
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text, as_text
from calibration.datasets.tuned_experts import listed

# aiconfigurator's collector for SGLang 0.5.10 hands the rank those tokens that chose any of its experts, and gives
# their other copies to its first expert ("Clamp to 0", `run_op` of collector/sglang/collect_moe.py); later versions
# skip them.
REMOTE_FIRST = ("0.5.10",)
# How the collector repaired a power law whose rounded loads miss their sum (`_generate_power_law_distribution` of
# collector/helper.py): first with single rows for the experts from the most loaded on, then from the least loaded on,
# both in one run over all ranks; since then ranks take turns. Which rows are whose is told by what they name: the first
# version had one name for all of TensorRT-LLM's kernels, the second ran when vLLM 0.14.0 was measured.
FROM_MOST, FROM_LEAST = ("1.0.0", "moe_torch_flow"), ("0.14.0", "vllm_fused_moe")
# Whose down projection writes the rank's own rows alone: CUTLASS's kernels, which permute them first. Triton's and
# Marlin's write and add up every copy (`intermediate_cache3` of fused_moe.py).
PERMUTING = ("moe_torch_flow_cutlass", "moe_torch_flow_nongated", "flashinfer", "oaitriton")
PERMUTING_UNLESS_MXFP4 = ("moe_torch_flow",)  # TensorRT-LLM's name of both CUTLASS and, for MXFP4, Triton
# FlashInfer's CUTLASS kernels, which nobody tuned before they were measured, as their times tell (one of the same
# library that was tuned, vLLM's of 8-bit blocks, is five times as fast). They run the library's first candidate, which
# on Hopper has 128 rows and 16 columns (`calibration.kernels.expert_tiles`).
UNTUNED = ("sglang_flashinfer_cutlass_moe", "modeloptfp8moe_flashinfer_cutlass")
HOPPER = ("hopper", "hopper-h20")
# Layers without a gate (Nemotron), as their collectors name them.
UNGATED = ("nongated", "sglang_flashinfer_cutlass_moe")
BY_EXPERTS = ("sglang_fused_moe_triton", "vllm_fused_moe")  # see `calibration.kernels.expert_tiles`
BY_TOKENS = ("tritonexperts",)
BY_COPIES = ("marlin",)
# Architectures whose L2 is two partitions, each of which caches what the cores next to it read (NVIDIA's whitepapers on
# the A100 and the H100): what any core may read has half of it.
PARTITIONED = ("ampere-ga100", *HOPPER)
# SGLang's Triton layer converts MXFP4 weights to bf16 as it loads them (`upcast_from_mxfp`, quantization/mxfp4.py).
MXFP4 = ("w4a16_mxfp4",)


def routing(table: KernelTable, architecture: Text) -> dict[str, np.ndarray]:
    """The ways of a table of expert layers by name [R]: `skew` is the exponent of a power law, `tuned_files` a row of
    `tuned_experts.files`, others are 1 or 0."""
    distribution = table.text["distribution"] if "distribution" in table.text else [""] * len(table)
    mxfp4 = as_text(table.dtype).among(MXFP4).astype(float)
    sglang = as_text(table.framework).among(("sglang",))
    return {
        "balanced": np.array([text == BALANCED for text in distribution], float),
        "skew": np.array([_exponent(str(text)) for text in distribution], float),
        "remote_first": (sglang & as_text(table.version).among(REMOTE_FIRST)).astype(float),
        "repaired_from_most": _of(table, *FROM_MOST),
        "repaired_from_least": _of(table, *FROM_LEAST),
        "own_rows": np.maximum(_named(table, PERMUTING), _named(table, PERMUTING_UNLESS_MXFP4) * (1.0 - mxfp4)),
        "ungated": _named(table, UNGATED),
        "untuned": _named(table, UNTUNED) * architecture.among(HOPPER),
        "partitioned": architecture.among(PARTITIONED).astype(float),
        "in_blocks": as_text(table.dtype).among(("fp8_block",)).astype(float),
        "tiles_by_experts": _named(table, BY_EXPERTS),
        "tuned_files": listed(table) * _named(table, BY_EXPERTS),
        "unpacked": _named(table, BY_EXPERTS) * mxfp4,
        "tiles_by_tokens": _named(table, BY_TOKENS),
        "tiles_by_copies": _named(table, BY_COPIES),
    }


def _exponent(text: str) -> float:
    head, _, tail = text.partition(POWER_LAW)
    return float(tail) if not head and tail else 0.0


def _of(table: KernelTable, version: str, kernel: str) -> np.ndarray:
    return (as_text(table.version).among((version,)) & as_text(table.kernel).among((kernel,))).astype(float)


def _named(table: KernelTable, parts: tuple[str, ...]) -> np.ndarray:
    kernel = as_text(table.kernel)
    found = [any(part in name.lower() for part in parts) for name in kernel.values.tolist()]
    return np.array(found, float)[kernel.codes]
