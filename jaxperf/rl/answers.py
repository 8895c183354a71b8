"""The answers of one iteration: several to every prompt, of drawn lengths, dealt out to replicas."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxperf.serving.simulator.workloads import Requests, draw_lengths


@dataclass(frozen=True)
class Answers:
    """N answers in the order of their prompts: `source` [N] which prompt, `prompt` and `output` [N] tokens; `cut`:
    how many were longer than they may be."""

    source: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    cut: int = 0

    @property
    def lengths(self) -> np.ndarray:
        """Prompt and output together [N] tokens."""
        return self.prompt + self.output

    @property
    def equalized(self) -> Answers:
        """The same answers, all as long as the mean."""
        mean = max(1, round(float(self.output.mean())))
        return dataclasses.replace(self, output=np.full_like(self.output, mean))


def draw_answers(
    prompts: int,
    samples: int,
    prompt: Mapping[str, Any],
    output: Mapping[str, Any],
    longest: int | None,
    seed: int,
    where: str,
) -> Answers:
    """`samples` answers to each of `prompts`, cut where they have `longest` tokens; the same seed draws the same.

    **Arguments:** `prompt`, `output`: distributions as `draw_lengths` knows them.
    **Raises:** `InputError` as `draw_lengths` does.
    """
    random = np.random.default_rng(seed)
    source = np.repeat(np.arange(prompts), samples)
    asked = draw_lengths(random, prompt, prompts, f"{where}: prompt")[source]
    drawn = draw_lengths(random, output, len(source), f"{where}: output")
    made = drawn if longest is None else np.minimum(drawn, longest)
    return Answers(source, asked, made, int((made < drawn).sum()))


def dealt(answers: Answers, replicas: int, block_size: int | None) -> list[Requests]:
    """What each replica generates, all asked at once: prompts go round, and all answers to one prompt stay together.

    **Arguments:** `block_size`: of a cache in which the answers find their prompt, None where there is none [tokens].
    **Returns:** at most `replicas`; those without a prompt are left out.
    """
    found = []
    for replica in range(min(replicas, int(answers.source.max()) + 1)):
        own = answers.source % replicas == replica
        prompt, output = answers.prompt[own], answers.output[own]
        path = None if block_size is None else _prompt_paths(answers.source[own], prompt, block_size)
        found.append(Requests(np.zeros(len(prompt)), prompt, output, path))
    return found


def _prompt_paths(source: np.ndarray, prompt: np.ndarray, block_size: int) -> np.ndarray:
    """Nodes of the full blocks of each request [R, P], -1 behind the last: those of one prompt are the same.

    What comes behind the prompt is nobody else's, so it has no nodes; an answer that was evicted computes it again even
    where its own blocks would still be there.
    """
    blocks = prompt // block_size
    _, first = np.unique(source, return_index=True)
    starts = np.cumsum(blocks[first]) - blocks[first]
    start = np.repeat(starts, np.diff(np.append(first, len(source))))
    place = np.arange(max(1, int(blocks.max())))
    return np.where(place < blocks[:, None], start[:, None] + place, -1)
