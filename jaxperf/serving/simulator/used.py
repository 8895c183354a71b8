"""What replicas did in all, or from some time on: steps, busy time, the batch and the cache. In NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxperf.serving.simulator.state import Log, Totals

SAME_STEP = 1e-6  # of a step: one that ends so little later has ended


class Used(NamedTuple):
    """Sums over the steps of all replicas as in `Totals`, and the most blocks that any of them held."""

    steps: int
    busy: float
    sequence_seconds: float
    block_seconds: float
    most_blocks: int


def used_in_all(totals: Totals) -> Used:
    """Of the whole run, [R] replicas; blocks held while a step was formed and given back before it count as well."""
    return Used(
        steps=int(np.sum(totals.steps)),
        busy=float(np.sum(totals.busy)),
        sequence_seconds=float(np.sum(totals.sequence_seconds)),
        block_seconds=float(np.sum(totals.block_seconds)),
        most_blocks=int(np.max(totals.most_blocks)),
    )


def used_since(log: Log, begin: float) -> Used:
    """Of steps that end after `begin` [s]; one under way then counts by the share of its time that is left, and each of
    those run at once holds as many blocks as they do in the mean.

    **Arguments:** `log`: complete, with an axis of replicas R.
    """
    written = np.arange(np.shape(log.start)[-1]) < np.asarray(log.count)[:, None]
    runs = (log.start, log.seconds, log.steps, log.busy, log.sequences, log.blocks, log.mean_blocks)
    start, seconds, steps, busy, sequences, blocks, mean_blocks = (np.asarray(each)[written] for each in runs)
    over = np.divide(begin - start, seconds, out=np.where(start < begin, steps, 0.0), where=seconds > 0.0)
    over = np.clip(over, 0.0, steps)
    left = busy * (1.0 - over / steps)
    behind = (over + SAME_STEP).astype(int)  # whole steps
    return Used(
        steps=int((steps - behind).sum()),
        busy=float(left.sum()),
        sequence_seconds=float((sequences * left).sum()),
        block_seconds=float((mean_blocks * left).sum()),
        most_blocks=int(np.max(blocks, where=behind < steps, initial=0)),
    )
