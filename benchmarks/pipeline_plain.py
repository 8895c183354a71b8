"""Pipelines in plain Python: every walk through the passes that can be the longest, by how often it takes each."""

from __future__ import annotations

from collections.abc import Sequence


def in_turn(stages: Sequence[float], m: int, forward: float) -> float:
    """1F1B of `m` micro-batches, each stage the bottleneck in turn; `forward`: share of a stage's time."""
    longest = sum(stages) + (m - 1) * stages[-1]
    for place, own in enumerate(stages[:-1]):
        ahead, behind, others = sum(stages[:place]), sum(stages[place + 1 :]), len(stages) - 1 - place
        f, b = forward * own, (1 - forward) * own
        if m > others:
            walk = (m - others) * own + max(others * f, behind) + max(others * b, behind)
        else:
            walk = own + max((m - 1) * own, behind + (m - 1) * max(f, b))
        longest = max(longest, ahead + walk)
    return longest


def chunked(first: float, chunk: float, last: float, rest: float, p: int, v: int, m: int, forward: float) -> float:
    """Interleaved: the `first` and the `last` chunk, each other one, `rest` for all of these once."""
    f, b = forward, 1 - forward
    n = m * (v - 1)
    beyond = rest - (p * v - 2) * chunk  # nothing but where stages between the ends lack layers
    longer = max(first - chunk, 0)
    if m < p:
        walks = [
            (m - 1) * last,
            (m - 1) * b * max(first, chunk),
            (m - 1) * max(first, chunk) - min(last, 2 * f * chunk),
        ]
        return first + last + rest + max(walks)
    walks = [beyond + first + (n + p - 2) * chunk + m * last + (p - 1) * longer, m * first + n * chunk]
    if p > 2:
        walks += [beyond + first + (m * v + p - 3) * chunk + (p - 1) * longer + max(0, last - 2 * f * chunk)]
    else:
        walks += [beyond + first + n * chunk + (m - 1) * last + b * chunk]
    to_the_end = (m - p + 1) * f * first + m * b * first + (n + 1) * f * chunk + (n + p - 2) * b * chunk
    to_the_end += b * max(chunk - first, 0)
    return max(*walks, to_the_end, to_the_end + last - f * chunk - f * min(first, chunk))
