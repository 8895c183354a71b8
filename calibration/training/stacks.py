"""The software that ran a training step: who its scalars are shared with, and what it does where a table is silent."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from calibration.datasets.training import Run

UNKNOWN = "unknown"
UNFUSED, FLASH_1, TUNED = "unfused", "flash-1", "tuned"  # attention: scores in memory; the first flash; of the device
NEVER, SOME, ALL = "never", "some", "all"
NEWEST = "newest"  # of releases that are not stated; sorts after every one that is
# A release named by year and month, as NVIDIA's containers are: "26.04.01 NeMo Container", "v25.03".
_MONTH = r"(2\d\.[01]\d(?:\.\d\d)?)"
_RELEASE = re.compile(rf"\b(?:v|nemo[ :]?){_MONTH}\b|\b{_MONTH} nemo", re.IGNORECASE)
_PLAIN = re.compile(rf"(?<![\d.]){_MONTH}(?![\d.])")  # of a source, which has no other numbers of this form
_CORE = re.compile(r"(?<![a-z])(?:m-?core|core|megatron-?lm)[ _:/@(=-]*[rv]?0\.(\d{1,3})(?!\d)", re.IGNORECASE)
# Minor version of Megatron-Core 0 -> the container that came with it (docs/releases/software-versions.md of
# Megatron-Bridge). Older ones are before all of these, newer ones after them.
CONTAINERS = {14: "25.09", 15: "25.11", 16: "26.02", 17: "26.04"}


@dataclass(frozen=True)
class Stack:
    """What a training framework does.

    `attention`: `UNFUSED`, `FLASH_1` or `TUNED`; `compiled`: whether elementwise operations are fused, by a compiler or
    by hand; `interleaves`: whether a pipeline has chunks where a table does not say; `accumulates`: whether a replica
    works through several micro-batches (XLA programs take the whole batch of a replica at once); `tensor_overlap`:
    whether tensor-parallel collectives are cut into pieces beside their products: `NEVER`, `SOME` or, by the compiler,
    `ALL` of them; `deduplicates`: whether a token is sent to a rank and to a node once for all its experts there;
    `recompute`: its default; `released`: whether what it gains from release to release is fitted.
    """

    name: str
    attention: str = TUNED
    compiled: bool = True
    interleaves: bool = True
    accumulates: bool = True
    tensor_overlap: str = SOME
    deduplicates: bool = False
    recompute: str = "none"
    released: bool = False


# The Megatron of 2021 and what was built on it had no flash attention (arXiv:2104.04473, 2201.11990, 2205.05198);
# llm-foundry installed version 1 until March 2024 (its pull request 1023); XLA overlaps collectives with the products
# they feed (Wang et al. 2023, ASPLOS); MaxText recomputes everything unless told otherwise (remat_policy of its
# base.yml). Megatron-Core can exchange tokens by DeepEP from 0.12 on (README.md of its moe folder); NVIDIA's dispatcher
# selection guide for Megatron-Bridge puts DeepEP first on H100 and B200, HybridEP on GB200.
STACKS = (
    Stack("maxtext", accumulates=False, tensor_overlap=ALL, recompute="full"),
    Stack("megatron-deepspeed", UNFUSED, interleaves=False, tensor_overlap=NEVER),
    Stack("deepspeed-zero3", UNFUSED, interleaves=False, tensor_overlap=NEVER),
    Stack("eager", UNFUSED, compiled=False, interleaves=False, tensor_overlap=NEVER),
    Stack("composer-fsdp", FLASH_1, compiled=False),
    Stack("llama"),
    Stack("megatron-2021", UNFUSED, tensor_overlap=NEVER),
    Stack("megatron-core", deduplicates=True, released=True),
)
# What names a stack, as a whole word; the first that occurs. Training frameworks come before the libraries and ways of
# execution that they are built on. Megatron-LM alone is that of 2021; with Megatron-Core or a release of it beside its
# name ("core_r0.12", "v0.12", "24.09"), it is Megatron-Core.
NAMES = (
    ("maxtext|t5x|axlearn", "maxtext"),
    ("mt-nlg|megatron-deepspeed", "megatron-deepspeed"),
    (r"nemo|dgxc|m-?core|core_[rv]\d|megatron[ _-]?core", "megatron-core"),
    (r"megatron[ _-]?lm[ :@/,(_-]*(?:core|[rv]?0\.\d|v?2\d\.[01]\d)", "megatron-core"),
    ("neusight", "eager"),
    ("llm-foundry|composer|torchtitan", "composer-fsdp"),
    ("llama3-herd|llama-herd", "llama"),
    ("deepspeed", "megatron-deepspeed"),
    ("megatron-sc21|korthikanti|megatron[ _-]?lm", "megatron-2021"),
    ("megatron", "megatron-core"),
    ("fsdp", "composer-fsdp"),
    ("eager|accelerate|hugging ?face|transformers", "eager"),
)
# A release may follow a name at once ("nemo25.04", "fsdp2").
_NAMES = tuple((re.compile(rf"(?<![a-z0-9])(?:{names})(?![a-z])"), stack) for names, stack in NAMES)
_FLASH = re.compile(r"(?<!no )(?<!without )\bflash[ _-]?att")
ZERO3_OF = {"megatron-2021": "deepspeed-zero3"}  # that Megatron had no ZeRO-3; its paper ran DeepSpeed's beside it
BY_NAME = {stack.name: stack for stack in STACKS}


def stack_of(run: Run) -> Stack:
    """The software of a run: by its source, else by the model's spelling and the notes. Software that had no flash
    attention has it where the source or the notes say so."""
    found = _named(run)
    if found.attention == UNFUSED and _FLASH.search(f"{run.source} {run.notes}".lower()):
        return replace(found, attention=TUNED)
    return found


def _named(run: Run) -> Stack:
    if "maxtext" in run.model.lower():
        return BY_NAME["maxtext"]
    for text in (run.source, run.notes):
        name = next((stack for names, stack in _NAMES if names.search(text.lower())), None)
        if name is not None:
            return BY_NAME[ZERO3_OF[name] if name in ZERO3_OF and run.layout["zero"] >= 3.0 else name]
    return Stack(UNKNOWN)


def stack_note(stack: Stack) -> str:
    """Which software was taken, "" where none is known, which is said where the run is resolved."""
    if stack.name == UNKNOWN:
        return ""
    return f"software taken as {stack.name}" + (": attention scores in memory" if stack.attention == UNFUSED else "")


def release_of(run: Run, stack: Stack) -> str:
    """The release by a run's notes or source: of a container, such as "26.04.01", or of Megatron-Core as the container
    that came with it; else `NEWEST`; "" of software whose releases are as one. They sort by age."""
    if not stack.released:
        return ""
    found = _RELEASE.search(run.notes) or _RELEASE.search(run.source) or _PLAIN.search(run.source)
    if found:
        return next(filter(None, found.groups()))
    core = _CORE.search(run.notes) or _CORE.search(run.source)
    return _container(int(core[1])) if core else NEWEST


def _container(minor: int) -> str:
    """The container of a Megatron-Core, or a text that sorts before or after all that are known of."""
    if minor in CONTAINERS:
        return CONTAINERS[minor]
    return f"0.{minor:03d}" if minor < min(CONTAINERS) else f"core 0.{minor:03d}"
