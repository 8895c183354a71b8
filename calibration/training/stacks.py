"""The software that ran a training step: who its scalars are shared with, and what it does where a table is silent."""

from __future__ import annotations

import re
from dataclasses import dataclass

from calibration.datasets.training import Run

UNKNOWN = "unknown"
UNFUSED, FLASH_1, TUNED = "unfused", "flash-1", "tuned"  # attention: scores in memory; the first flash; of the device
NEVER, SOME, ALL = "never", "some", "all"
NEWEST = "newest"  # of releases that are not stated; sorts after every one that is
# A release named by year and month, as NVIDIA's containers are: "26.04.01 NeMo Container", "v25.03".
_MONTH = r"(2\d\.[01]\d(?:\.\d\d)?)"
_RELEASE = re.compile(rf"\b(?:v|nemo[ :]?){_MONTH}\b|\b{_MONTH} nemo", re.IGNORECASE)


@dataclass(frozen=True)
class Stack:
    """What a training framework does.

    `words`: any of them in the source, model or notes of a run names it; `attention`: `UNFUSED`, `FLASH_1` or `TUNED`;
    `compiled`: whether elementwise operations are fused, by a compiler or by hand; `interleaves`: whether a pipeline
    has chunks where a table does not say; `accumulates`: whether a replica works through several micro-batches (XLA
    programs take the whole batch of a replica at once); `tensor_overlap`: whether tensor-parallel collectives are cut
    into pieces beside their products: `NEVER`, `SOME` or, by the compiler, `ALL` of them; `deduplicates`: whether a
    token is sent to a rank and to a node once for all its experts there; `recompute`: its default; `released`: whether
    what it gains from release to release is fitted.
    """

    name: str
    words: tuple[str, ...] = ()
    attention: str = TUNED
    compiled: bool = True
    interleaves: bool = True
    accumulates: bool = True
    tensor_overlap: str = SOME
    deduplicates: bool = False
    recompute: str = "none"
    released: bool = False


# The first whose word occurs; a word is looked for in lower case. The Megatron of 2021 and what was built on it had no
# flash attention (arXiv:2104.04473, 2201.11990, 2205.05198); llm-foundry installed version 1 until March 2024 (its pull
# request 1023); XLA overlaps collectives with the products they feed (Wang et al. 2023, ASPLOS); MaxText recomputes
# everything unless told otherwise (remat_policy of its base.yml). Megatron-Core can exchange tokens by DeepEP from 0.12
# on (README.md of its moe folder); NVIDIA's dispatcher selection guide for Megatron-Bridge puts DeepEP first on H100
# and B200, HybridEP on GB200.
STACKS = (
    Stack("maxtext", ("maxtext", "t5x", "axlearn"), accumulates=False, tensor_overlap=ALL, recompute="full"),
    Stack(
        "megatron-deepspeed",
        ("mt-nlg", "megatron-deepspeed", "deepspeed"),
        UNFUSED,
        interleaves=False,
        tensor_overlap=NEVER,
    ),
    Stack("deepspeed-zero3", (), UNFUSED, interleaves=False, tensor_overlap=NEVER),
    Stack(
        "eager",
        ("neusight", "eager", "accelerate", "huggingface", "transformers"),
        UNFUSED,
        compiled=False,
        interleaves=False,
        tensor_overlap=NEVER,
    ),
    Stack("composer-fsdp", ("llm-foundry", "composer", "fsdp", "torchtitan"), FLASH_1, compiled=False),
    Stack("llama", ("llama3-herd", "llama-herd")),
    Stack("megatron-2021", ("megatron-sc21", "korthikanti", "megatron-lm"), UNFUSED, tensor_overlap=NEVER),
    Stack("megatron-core", ("megatron", "nemo", "dgxc"), deduplicates=True, released=True),
)
ZERO3_OF = {"megatron-2021": "deepspeed-zero3"}  # that Megatron had no ZeRO-3; its paper ran DeepSpeed's beside it
BY_NAME = {stack.name: stack for stack in STACKS}


def stack_of(run: Run) -> Stack:
    """The software of a run: by its source, else by the model's spelling and the notes."""
    if "maxtext" in run.model.lower():
        return BY_NAME["maxtext"]
    for text in (run.source, run.notes):
        found = next((stack for stack in STACKS if any(word in text.lower() for word in stack.words)), None)
        if found is not None:
            zero3 = ZERO3_OF.get(found.name)
            return BY_NAME[zero3] if zero3 and run.layout["zero"] >= 3.0 else found
    return Stack(UNKNOWN)


def release_of(run: Run, stack: Stack) -> str:
    """The release by a run's notes, such as "26.04.01", else `NEWEST`; "" of software whose releases are as one."""
    if not stack.released:
        return ""
    found = _RELEASE.search(run.notes)
    return (found[1] or found[2]) if found else NEWEST
