"""Megatron's options of pipeline stages: into how many chunks each is cut."""

from __future__ import annotations

import re

from hwspecs.errors import InputError
from jaxperf.io.megatron.reader import Reader

LAYOUT = "pipeline_model_parallel_layout"
_MOST = 10_000  # stages and layers of a layout; beyond, a number of repeats is a mistake
_REPEATED = re.compile(r"(?:\[([^][]*)\]|([^][*]))\*(\d{1,3})")  # "[tt/]*29" or "t*3", as `options` leaves brackets
_COUNTED_AS_LAYERS = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")


def interleave_of(reader: Reader, pipeline: int) -> int:
    """Chunks of a stage: as stated, of so many layers (the embedding and the loss count as one each where options say
    so), or as many as a layout draws.

    **Raises:** `InputError` where the stages do not share these equally.
    """
    reader.refuse(("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank"))
    if reader.flag(LAYOUT):
        return _drawn(reader, pipeline)
    layers = reader.optional_count("num_layers_per_virtual_pipeline_stage")
    if layers is None:
        return reader.count("num_virtual_stages_per_pipeline_rank", 1)
    beside = sum(map(reader.flag, _COUNTED_AS_LAYERS))
    total = reader.count("num_layers") + beside
    if total % (layers * pipeline):
        told = f" and {beside} counted as such" if beside else ""
        raise InputError(
            f"{reader.source}: --num-layers {total - beside}{told} is no multiple of "
            f"--num-layers-per-virtual-pipeline-stage {layers} x --pipeline-model-parallel-size {pipeline}."
        )
    return total // (layers * pipeline)


def _drawn(reader: Reader, pipeline: int) -> int:
    """Chunks of a layout such as "Et*3|(tt|)*29m|L", whose bars are between them."""
    text = "".join(reader.options[LAYOUT])
    while (longer := _REPEATED.sub(lambda found: (found[1] or found[2] or "") * int(found[3]), text, 1)) != text:
        text = longer
        if len(text) > _MOST:
            break
    if not re.fullmatch("[EtmL/]+", text) or len(text) > _MOST:
        raise InputError(f"{reader.source}: --pipeline-model-parallel-layout is no layout such as 'Et*3|(tt|)*29m|L'.")
    stages = text.count("/") + 1
    if stages % pipeline:
        raise InputError(
            f"{reader.source}: --pipeline-model-parallel-layout has {stages} stages, no multiple of "
            f"--pipeline-model-parallel-size {pipeline}."
        )
    return stages // pipeline
