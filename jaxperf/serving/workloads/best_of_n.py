"""Best-of-N: every prompt is sent several times at once, and each copy makes an output of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxperf.serving.simulator.workloads import draw_lengths
from jaxperf.serving.workloads.drawn import (
    Drawn,
    Text,
    check_parts,
    draw_repeats,
    generator,
    part_of,
    plain_part,
)


def draw_best_of_n(workload: Mapping[str, Any], where: str = "workload") -> Drawn:
    """`count` prompts, each of them `samples` times at the same moment; outputs are drawn one by one.

    **Arguments:** `workload`: the parts of a plain one, and `samples`, a distribution of whole numbers.
    **Raises:** `InputError` naming the part that is missing, unknown or out of range.
    """
    check_parts(workload, ("samples",), where)
    prompts, random = plain_part(workload, where), generator(workload)
    count = len(prompts.arrived)
    source = np.repeat(np.arange(count), draw_repeats(random, workload, "samples", count, where))
    output = draw_lengths(random, part_of(workload, "output", None, where), len(source), f"{where}: output")
    lengths = prompts.prompt[source]
    columns = enumerate(zip(source.tolist(), lengths.tolist(), output.tolist(), strict=True))
    texts: list[Text] = [
        [(length, ("prompt", prompt)), (length + made, ("copy", copy))] for copy, (prompt, length, made) in columns
    ]
    return Drawn(prompts.arrived[source], lengths, output, texts)
