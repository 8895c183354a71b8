"""Generation of all answers of an iteration, by the simulator of requests: the longest decide when it ends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hwspecs.errors import InputError
from jaxperf.rl.answers import Answers, dealt
from jaxperf.serving.simulator.run import simulate_requests
from jaxperf.serving.simulator.settings import Scheduler
from jaxperf.serving.simulator.state import Status
from jaxperf.serving.simulator.step_time import AbstractStepTime

MOST = 0.9  # of the answers, after which the tail begins


class Generated(NamedTuple):
    """`seconds` until the last answer has ended; `most` until nine tenths have [s]; `idle`: of the time of all
    replicas, what passes between the end of one and of the last [1]; `evictions` of running answers."""

    seconds: float
    most: float
    idle: float
    evictions: int


def generate(scheduler: Scheduler, step_time: AbstractStepTime, answers: Answers, replicas: int) -> Generated:
    """All answers asked at once of `replicas`, each with its scheduler.

    **Raises:** `InputError` for an answer that never fits into the cache of a replica.
    """
    shares = dealt(answers, replicas, scheduler.numbers["block_size"] if scheduler.tokens_per_hash else None)
    found = simulate_requests(scheduler, step_time, shares)
    own = [slice(0, len(share.arrived)) for share in shares]
    status = np.concatenate([found.requests.status[lane, part] for lane, part in enumerate(own)])
    if not (status == Status.COMPLETED).all():
        lost, longest = int((status != Status.COMPLETED).sum()), int(answers.lengths.max())
        raise InputError(
            f"{lost:,} of {len(status):,} answers do not fit into the KV cache of a replica, alone in it; the longest "
            f"has {longest:,} tokens with its prompt."
        )
    ends = [found.requests.completed[lane, part] for lane, part in enumerate(own)]
    last = np.array([each.max() for each in ends])
    seconds = float(last.max())
    return Generated(
        seconds=seconds,
        most=float(np.quantile(np.concatenate(ends), MOST)),
        idle=1.0 - float(last.sum()) / (replicas * seconds),
        evictions=int(sum(found.requests.restarts[lane, part].sum() for lane, part in enumerate(own))),
    )
