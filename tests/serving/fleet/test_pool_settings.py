"""Settings of pools: what a pool does not use is said, with the nearest of the keys that it has."""

from __future__ import annotations

from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.serving.fleet.settings import parse_pools

SHARED = {"sched": "vllm_v1", "num_blocks": 1000, "async_scheduling": False}
IN_VAIN = "enable_prefix_caching is true, but a decode pool caches no prefixes"


@pytest.mark.parametrize(
    ("key", "note"),
    [
        ("replica", "replica is not a setting. Did you mean replicas?"),
        ("router", "router is not a setting. Did you mean routing?"),
        ("tensor_parallel", "tensor_parallel is not a setting. Did you mean tp?"),
        ("pool", "pool is not a setting"),
    ],
)
def test_hints_are_of_the_keys_of_a_pool(key: str, note: str) -> None:
    pools = parse_pools({**SHARED, "pools": {"prefill": {key: 4}, "decode": {}}})
    assert (pools.prefill.scheduler.notes, pools.decode.scheduler.notes) == ((note,), ())


@pytest.mark.parametrize(
    ("shared", "decode", "notes"),
    [
        ({}, {"enable_prefix_caching": True}, (IN_VAIN,)),
        ({"enable_prefix_caching": True}, {}, (IN_VAIN,)),
        ({"enable_prefix_caching": True}, {"enable_prefix_caching": False}, ()),
        ({}, {}, ()),
    ],
)
def test_a_decode_pool_says_that_it_caches_no_prefixes(
    shared: dict[str, Any], decode: dict[str, Any], notes: tuple[str, ...]
) -> None:
    pools = parse_pools({**SHARED, **shared, "pools": {"prefill": {}, "decode": decode}})
    assert (pools.prefill.scheduler.notes, pools.decode.scheduler.notes) == ((), notes)


@pytest.mark.parametrize("replicas", [0, 1025, 1.5])
def test_the_number_of_replicas_has_the_limits_that_it_is_held_to(replicas: float) -> None:
    with pytest.raises(InputError, match="prefill: replicas is .* a whole number from 1 to 1,024"):
        parse_pools({**SHARED, "pools": {"prefill": {"replicas": replicas}, "decode": {}}})
