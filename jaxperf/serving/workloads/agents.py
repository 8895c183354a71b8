"""Agent loops and conversations: each turn's prompt is all that was said so far and what is new."""

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
    draw_times,
    generator,
    part_of,
    plain_part,
)


def draw_agents(workload: Mapping[str, Any], where: str = "workload") -> Drawn:
    """`count` sessions that begin as `arrivals` say; a turn is sent some time after the one before has ended.

    prompt_k = system + sum_(i<k) (new_i + output_i) + new_k, so all but new_k may be in the cache of the replica that
    computed turn k - 1. Turns that follow wait for the simulation: their time of arrival is not known before.

    **Arguments:** `workload`: the parts of a plain one, `prompt` being what is new in a turn; `turns` of a session;
    `system`: tokens that all sessions begin with (none); `think`: time between turns, of a tool or a person [s].
    **Raises:** `InputError` naming the part that is missing, unknown or out of range.
    """
    check_parts(workload, ("turns", "system", "think"), where)
    sessions, random = plain_part(workload, where), generator(workload)
    count = len(sessions.arrived)
    turns = draw_repeats(random, workload, "turns", count, where)
    session = np.repeat(np.arange(count), turns)
    first = np.diff(session, prepend=-1) > 0
    new, output = (
        draw_lengths(random, part_of(workload, name, None, where), len(session), f"{where}: {name}")
        for name in ("prompt", "output")
    )
    system = 0
    if "system" in workload:
        system = int(draw_lengths(random, part_of(workload, "system", None, where), 1, f"{where}: system")[0])
    said = np.cumsum(new + output)
    before = np.repeat((said - new - output)[first], turns)  # what the sessions above said
    prompt = system + said - output - before
    think = part_of(workload, "think", {"kind": "fixed", "mean": 0.0}, where)
    texts: list[Text] = [
        [(system, "system"), (length, ("session", one))]
        for one, length in zip(session.tolist(), (prompt + output).tolist(), strict=True)
    ]
    return Drawn(
        arrived=sessions.arrived[session],
        prompt=prompt,
        output=output,
        texts=texts,
        after=np.where(first, -1, np.arange(len(session)) - 1),
        delay=np.where(first, 0.0, draw_times(random, think, len(session), f"{where}: think")),
    )
