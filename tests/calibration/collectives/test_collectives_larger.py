"""Less is never slower than more, but where steps were measured."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.collectives import larger
from calibration.collectives.fit import correction
from calibration.collectives.larger import SIZES, least_of_larger
from calibration.collectives.learn import kernel_time
from calibration.collectives.parameters import CollectiveParameters
from calibration.collectives.points import Points, points_of
from calibration.collectives.predict import predict_collectives

HEADER = "gpu,framework,version,kernel,dtype,op,num_gpus,topology,bytes,tokens,hidden,topk"
HALVES = [round(2.0**power) for power in SIZES[4:-4]]


def falling_to_the_middle(points: Points) -> np.ndarray:
    """|log2 size - 16| + ranks, which falls below 64 KiB and rises above."""
    return np.abs(points.coordinates["size"] - 16.0) + points.numbers["ranks"]


@pytest.mark.parametrize("groups", [1, 4096])
def test_a_time_is_the_least_of_all_larger_sizes(table, monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    monkeypatch.setattr(larger, "AT_ONCE", groups)
    sizes = np.array([2**10, 3000, 2**16, 2**20, 2**35])
    points = points_of(table(*(f"h100,,,,half,all_gather,{n},,{size},,," for n in (2, 8) for size in sizes)))
    time = falling_to_the_middle(points)
    found = least_of_larger(points, time, falling_to_the_middle).reshape(2, -1)
    expected = np.maximum(np.log2(sizes), 16.0) - 16.0
    assert found == pytest.approx(np.array([expected + 2.0, expected + 8.0]), abs=1e-4)


def test_tokens_grow_as_bytes_do(table) -> None:
    rows = (f"h100,,,,half,moe_a2a_dispatch,8,,1024,{tokens},7168,8" for tokens in (1, 64, 4096))
    points = points_of(table(*rows))
    found = least_of_larger(points, np.full(3, 1e9), lambda each: each.numbers["tokens"])
    share = found / points.numbers["tokens"]  # up to the next of the sizes that are looked at
    assert ((share >= 1.0) & (share < 2.0**0.5)).all()


def test_settings_that_were_not_measured_take_no_less_time_for_more(table, shipped: CollectiveParameters) -> None:
    """Curves of several levels add up: 64 KiB took a B200 30.3 us, 768 KiB 25.0."""
    cases = [(gpu, op, n) for gpu in ("b200", "a40", "a100") for op in ("all_reduce", "all_gather") for n in (8, 32)]
    rows = [f"{gpu},,,,half,{op},{n},,{size},,," for gpu, op, n in cases for size in HALVES]
    time = np.asarray(predict_collectives(table(*rows), len(rows), shipped)["predicted_us"]).reshape(len(cases), -1)
    assert (np.diff(time) >= -1e-6 * time[:, 1:]).all()


def test_what_was_measured_keeps_its_steps(table, shipped: CollectiveParameters) -> None:
    rows = [f"a100,vidur,7d47513,nccl,half,all_reduce,16,dgx,{size},,," for size in HALVES]
    points = points_of(table(*rows)).joined(shipped.learned.network)
    known = points.time * np.exp(correction(shipped.learned.curves, points))
    assert (kernel_time(shipped.learned, points) == known).all() and (np.diff(known) < 0.0).any()
