"""Megatron's options that tell layers apart: which have experts, and which recompute."""

from __future__ import annotations

import re
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.megatron.reader import Reader
from jaxperf.training.layout import MODULES

# moe-layer-freq as recipes write it where the first layers are dense, or none.
_LEADING = re.compile(r"\(?(?:\[0\]\*(\d+)\+)?\[1\]\*(\d+)\)?")


def leading_dense(reader: Reader, layers: int) -> int:
    """Layers before the first with experts, as far as `--moe-layer-freq` says it in the form ([0]*3+[1]*58).

    **Raises:** `InputError` where that is not as long as the model.
    """
    found = _leading(reader)
    if found is None:
        return 0
    dense, sparse = map(int, found.groups("0"))
    if dense + sparse != layers:
        raise InputError(
            f"{reader.source}: --moe-layer-freq has {dense + sparse} layers, where --num-layers is {layers}."
        )
    return dense


def recompute_fields(reader: Reader, layers: int, chunks: int) -> dict[str, Any]:
    """What recomputes: of method "block" so many layers of each of the `chunks` of a pipeline, else all."""
    if reader.flag("recompute_activations"):
        return {"recompute": "selective"}
    granularity = reader.word("recompute_granularity", ("full", "selective"))
    recompute = granularity or ("full" if reader.flag("checkpoint_activations") else "none")
    if recompute == "selective" and reader.flag("recompute_modules"):
        return {"recompute": recompute, "recompute_modules": _modules(reader)}
    if not _in_blocks(reader):
        return {"recompute": recompute}
    return {
        "recompute": recompute,
        "recomputed_share": min(reader.count("recompute_num_layers") * chunks / layers, 1.0),
    }


def _modules(reader: Reader) -> str:
    """What selective recomputation computes again, with spaces between."""
    names = reader.options["recompute_modules"]
    for name in names:
        if name not in MODULES:
            allowed = ", ".join(MODULES)
            raise InputError(f"{reader.source}: --recompute-modules has '{name}'; it may have {allowed}.")
    return " ".join(names)


def read_of(reader: Reader) -> tuple[str, ...]:
    """The options that are read where they have the form that this file understands."""
    blocks = ("recompute_method", "recompute_num_layers") if _in_blocks(reader) else ()
    return (*blocks, "moe_layer_freq") if _leading(reader) is not None else blocks


def _in_blocks(reader: Reader) -> bool:
    full = reader.options.get("recompute_granularity") == ["full"]
    return full and reader.options.get("recompute_method") == ["block"] and reader.flag("recompute_num_layers")


def _leading(reader: Reader) -> re.Match[str] | None:
    return _LEADING.fullmatch("".join(reader.options.get("moe_layer_freq", ())).replace(" ", ""))
