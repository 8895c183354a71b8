"""Pools as people write them: settings of a replica, and under `pools` what prefill and decode have of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.checks import show
from jaxperf.serving.fleet.routing import ROUTINGS
from jaxperf.serving.simulator.cells import choice_of, count_of
from jaxperf.serving.simulator.modes import WHOLE_BATCHES
from jaxperf.serving.simulator.names import unknown_keys
from jaxperf.serving.simulator.settings import KEYS, Scheduler, parse_scheduler

MOST_REPLICAS = 1 << 10
LINKS = ("network", "node")
FIRST_TOKENS = ("prefill", "decode")
PARTS = ("prefill", "decode", "link", "first_token")
OWN = ("replicas", "routing")  # of a pool, beside the keys of a scheduler
NO_CACHE = "enable_prefix_caching is true, but a decode pool caches no prefixes"


@dataclass(frozen=True)
class PoolSettings:
    """One pool: its replicas' scheduler, how many there are, and how requests are routed to them."""

    scheduler: Scheduler
    replicas: int
    routing: str


@dataclass(frozen=True)
class PoolsSettings:
    """Two pools, the `link` of `LINKS` between them, and which of `FIRST_TOKENS` makes the first token."""

    prefill: PoolSettings
    decode: PoolSettings
    link: str
    first_token: str


def parse_pools(
    data: Mapping[str, Any],
    where: str = "settings",
    parse: Callable[[Mapping[str, Any], str], Scheduler] = parse_scheduler,
) -> PoolsSettings:
    """The pools that a settings file describes: `{"sched": ..., "pools": {"prefill": {...}, "decode": {...}}}`.

    Each pool has the keys of a scheduler, which override those beside `pools`, and `replicas` (1), `routing`
    (least_outstanding); `link` is network or node, and `first_token` prefill or decode, the former where they are not
    given.

    **Arguments:** `parse`: makes a scheduler of its keys.
    **Raises:** `InputError` naming the part that is missing, unknown or out of range.
    """
    pools = data.get("pools")
    if not isinstance(pools, Mapping):
        raise InputError(f"{where}: pools is {show(pools)}; write it as an object with prefill and decode.")
    for name in pools:
        if name not in PARTS:
            raise InputError(f"{where}: pools has no '{name}'; it has {', '.join(PARTS)}.{did_you_mean(name, PARTS)}")
    shared = {name: value for name, value in data.items() if name != "pools"}
    where = f"{where}: pools"
    prefill, decode = (_pool(shared, pools, name, where, parse) for name in ("prefill", "decode"))
    if decode.scheduler.name in WHOLE_BATCHES:
        raise InputError(f"{where}: decode: sched {decode.scheduler.name} does not take prompts computed elsewhere.")
    link, first_token = choice_of(pools, "link", LINKS, where), choice_of(pools, "first_token", FIRST_TOKENS, where)
    return PoolsSettings(prefill, decode, link, first_token)


def _pool(
    shared: Mapping[str, Any],
    pools: Mapping[str, Any],
    name: str,
    where: str,
    parse: Callable[[Mapping[str, Any], str], Scheduler],
) -> PoolSettings:
    own = pools.get(name)
    if not isinstance(own, Mapping):
        raise InputError(f"{where}: {name} is {show(own)}; write it as an object, {{}} for the shared settings.")
    where = f"{where}: {name}"
    replicas = count_of(own, "replicas", where, largest=MOST_REPLICAS) or 1
    routing = choice_of({"routing": "least_outstanding", **own}, "routing", tuple(ROUTINGS), where)
    keys = {**shared, **{key: value for key, value in own.items() if key in KEYS}}
    scheduler = parse(keys, where)
    check_stages(scheduler, where)
    notes = (*unknown_keys(own, (*KEYS, *OWN)), *((NO_CACHE,) if name == "decode" and _wants_cache(keys) else ()))
    return PoolSettings(replace(scheduler, notes=(*scheduler.notes, *notes)), replicas, routing)


def check_stages(scheduler: Scheduler, where: str = "settings") -> None:
    """Raises `InputError` for replicas that are pipelines; `where`: their file, and the pool."""
    if scheduler.pipeline_parallel > 1:
        raise InputError(
            f"{where}: replicas with pipeline stages are simulated each with requests of its own, taken in turn "
            "(`simulate`): not behind another routing, in pools, where requests follow others, or in a search for a "
            "rate (`capacity`)."
        )


def _wants_cache(keys: Mapping[str, Any]) -> bool:
    return keys.get("enable_prefix_caching") is True
