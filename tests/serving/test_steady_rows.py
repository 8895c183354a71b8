"""Rows of equal lengths beside an engine that is played out step by step: who queues behind whom for good."""

from __future__ import annotations

import heapq

import pytest

from jaxperf.serving.steady import Load, Schedule, Steps, aggregated

DECODE, PREFILL = 1e-2, 8e-2  # s
OUTPUT, WAVES = 200, 10


def played(requests: int, turn: float, ahead: bool) -> tuple[float, float]:
    """Mean TTFT and latency of the middle waves [s]: a prompt a step, in which the others decode on; the next step is
    fixed before this one has ended where the engine works `ahead`."""
    sent, count = requests, requests * WAVES
    coming = [(0.0, name) for name in range(requests)]  # when the engine has a request
    born = dict.fromkeys(range(requests), 0.0)
    left: dict[int, int] = {}
    first: dict[int, float] = {}
    done: dict[int, float] = {}
    time = 0.0
    chosen: int | None = heapq.heappop(coming)[1]

    def next_prompt() -> int | None:
        return heapq.heappop(coming)[1] if coming and coming[0][0] <= time else None

    while len(done) < count:
        following = next_prompt() if ahead else None
        decoding = list(left)
        time += PREFILL if chosen is not None else DECODE
        if chosen is not None:
            first[chosen] = time - born[chosen]
            left[chosen] = OUTPUT - 1
        for name in decoding:
            left[name] -= 1
            if left[name] == 0:
                del left[name]
                done[name] = time - born[name]
                if sent < count:
                    heapq.heappush(coming, (time + turn, sent))
                    born[sent] = time
                    sent += 1
        chosen = following if ahead else next_prompt()
    middle = range(requests, count - requests)
    ttft, e2e = (sum(each[name] for name in middle) / len(middle) for each in (first, done))
    return ttft, e2e


STEPS = Steps(lambda batch: DECODE + 0.0 * batch, lambda batch: 0.0 * batch, lambda prompts: PREFILL * prompts)


@pytest.mark.parametrize("steps", [0.2, 0.5, 1.5, 2.5])
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("requests", [8, 16, 32])
def test_as_many_queue_for_good_as_end_while_the_client_takes_its_turn(requests: int, steps: float, ahead: bool):
    ttft, e2e = played(requests, steps * DECODE, ahead)
    schedule = Schedule(1.0, 0.0, 0.0, 0.0, row=1.0, ahead=float(ahead), turn=steps * DECODE)
    found = aggregated(STEPS, Load(float(requests), float(OUTPUT), 1e3, 1.0), schedule)
    assert float(found.ttft) == pytest.approx(ttft, rel=0.1)
    assert float(found.e2e) == pytest.approx(e2e, rel=0.05)
