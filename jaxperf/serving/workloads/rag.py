"""Retrieval-augmented generation: a question is embedded, documents are looked up, and then the engine is asked."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from hwspecs.errors import InputError
from jaxperf.models.checks import show
from jaxperf.serving.simulator.workloads import draw_lengths
from jaxperf.serving.workloads.drawn import (
    Drawn,
    Stage,
    Text,
    check_parts,
    draw_times,
    generator,
    part_of,
    plain_part,
    through_stage,
)

STAGES = ("embed", "retrieve")
MOST_SERVERS = 1 << 16


def draw_rag(workload: Mapping[str, Any], where: str = "workload") -> Drawn:
    """`count` questions, each asked of the engine when its stages are through, behind the document found for it.

    The document comes first in the prompt, so that questions about the same one share its blocks. Documents are popular
    as 1 / rank^skew (Zipf), as in RAGCache (Jin et al., 2024).

    **Arguments:** `workload`: the parts of a plain one, `prompt` being the question; `document`: its tokens;
    `documents`: how many there are (each question has its own where that is not given); `skew` (0); `embed` and
    `retrieve`: `servers` (1) and a `time` for each question [s].
    **Raises:** `InputError` naming the part that is missing, unknown or out of range.
    """
    check_parts(workload, ("document", "documents", "skew", *STAGES), where)
    questions, random = plain_part(workload, where), generator(workload)
    count = len(questions.arrived)
    documents = _number(workload, "documents", count, 1, 10**7, where)
    share = 1.0 / np.arange(1, int(documents) + 1) ** _number(workload, "skew", 0.0, 0.0, 10.0, where)
    found = random.choice(int(documents), count, p=share / share.sum()) if "documents" in workload else np.arange(count)
    tokens = draw_lengths(random, part_of(workload, "document", None, where), int(documents), f"{where}: document")[
        found
    ]
    stages = [_stage(workload, name, count, random, where) for name in STAGES if name in workload]
    arrived = functools.reduce(through_stage, stages, questions.arrived)
    order = np.argsort(arrived, kind="stable")
    prompt = tokens + questions.prompt
    texts: list[Text] = [
        [
            (int(tokens[one]), ("document", int(found[one]))),
            (int(prompt[one] + questions.output[one]), ("question", one)),
        ]
        for one in order.tolist()
    ]
    stages = [Stage(stage.seconds[order], stage.servers) for stage in stages]
    asked = questions.arrived[order]
    return Drawn(arrived[order], prompt[order], questions.output[order], texts, asked=asked, stages=stages)


def _stage(workload: Mapping[str, Any], name: str, count: int, random: np.random.Generator, where: str) -> Stage:
    stage, where = workload[name], f"{where}: {name}"
    if not isinstance(stage, Mapping):
        raise InputError(f"{where} is {show(stage)}; write it as an object with servers and time.")
    if unknown := set(stage) - {"servers", "time"}:
        raise InputError(f"{where}: '{min(unknown)}' is no part of a stage; it has servers and time.")
    servers = _number(stage, "servers", 1, 1, MOST_SERVERS, where)
    return Stage(draw_times(random, part_of(stage, "time", None, where), count, f"{where}: time"), int(servers))


def _number(part: Mapping[str, Any], name: str, default: float, low: float, high: float, where: str) -> float:
    """A number in a range, whole where its default is."""
    value = part.get(name, default)
    fits = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
    if not fits or (isinstance(default, int) and value != int(value)):
        kind = "whole number" if isinstance(default, int) else "number"
        raise InputError(f"{where}: {name} is {show(value)}; it must be a {kind} from {low:g} to {high:g}.")
    return value
