"""Keys of a settings file by other names: those that mean one of ours, and the nearest of ours to one that is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwspecs.errors import InputError, nearest

# Names that mean one of our keys elsewhere: in the rest of this project, and vLLM's engine arguments.
SPELLINGS = {
    **dict.fromkeys(("tensor_parallel", "tensor_parallel_size"), "tp"),
    **dict.fromkeys(("pipeline_parallel", "pipeline_parallel_size"), "pp"),
    **{"max_num_seqs": "batch_size_cap", "max_num_batched_tokens": "max_tokens_in_batch", "scheduler": "sched"},
}
# Layouts that estimate, rank and plan serve have and an engine of the simulator has not: more than an unknown name.
ELSEWHERE = frozenset(
    f"{kind}_parallel{end}" for kind in ("expert", "data", "enable_expert", "context") for end in ("", "_size")
) | {"ep", "dp", "cp"}
ALIKE = 0.6  # of a name that is left out of the run: less alike than a slip of the pen, a hint would only mislead


def in_our_words(data: Mapping[str, Any], where: str = "settings") -> dict[str, Any]:
    """Settings with vLLM's names of engine arguments as ours, those of pools too.

    **Raises:** `InputError` where one number has two names.
    """
    found: dict[str, Any] = {}
    for name, value in data.items():
        key = SPELLINGS.get(name, name)
        if key in found or (key != name and key in data):
            raise InputError(f"{where}: {name} and another name of {key} are both given; leave one out.")
        pools = isinstance(value, Mapping) and name in ("pools", "prefill", "decode")
        found[key] = in_our_words(value, f"{where}: {name}") if pools else value
    return found


def unknown_keys(data: Mapping[str, Any], known: Sequence[str]) -> tuple[str, ...]:
    """A sentence for every key of `data` that is not among those `known` at its place, with the nearest of them."""
    spelled = {name: key for name, key in SPELLINGS.items() if key in known} | {key: key for key in known}
    found = {key: [name for name in nearest(key, spelled, 1, ALIKE) if _alike(key, name)] for key in data}
    return tuple(
        f"{key} is not a setting"
        + (": an engine is split by tp and pp alone" if key in ELSEWHERE else "")
        + "".join(f". Did you mean {spelled[name]}?" for name in near)
        for key, near in found.items()
        if key not in known
    )


def _alike(given: str, name: str) -> bool:
    """Whether two names are alike in the words that they do not share: data and tensor, of *_parallel_size, are not."""
    words, others = given.split("_"), name.split("_")
    rest = "_".join(word for word in words if word not in others)
    other = "_".join(word for word in others if word not in words)
    return not rest or not other or bool(nearest(rest, [other], 1, ALIKE))
