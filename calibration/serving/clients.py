"""What benchmark clients ask for in the mean, from their documents, where a table states the most that they ask for.

InferenceMAX, later InferenceX (its README, "Benchmark Client Configuration"), has three scenarios of lengths and draws
both lengths of each request uniformly between RANDOM_RANGE_RATIO = 0.8 of what is stated and all of it.
"""

from __future__ import annotations

import re

DRAWING = re.compile(r"inference(?:max|x)", re.IGNORECASE)  # sources whose client draws lengths
SCENARIOS = frozenset({(1024.0, 1024.0), (1024.0, 8192.0), (8192.0, 1024.0)})
SMALLEST = 0.8  # of the stated length, of the lengths drawn
DRAWN = "the client of this source draws lengths from 80 % of the stated ones up to these: priced at the means"


def draws_lengths(source: str, prompt: float, output: float) -> bool:
    """Whether the client of a source draws the lengths of requests stated as `prompt` and `output` tokens."""
    return bool(DRAWING.search(source)) and (prompt, output) in SCENARIOS


def mean_length(stated: float) -> float:
    """Mean of lengths drawn uniformly up to the stated one [tokens]."""
    return round(0.5 * (SMALLEST + 1.0) * stated)
