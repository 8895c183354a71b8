"""Collectives over all local devices; with a single device there is nothing to exchange, and no operation.

`bytes` is the whole buffer as nccl-tests counts it: what one rank holds at the end of an all-gather, at the start of
the others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from calibration.microbench.operation import Call, JaxDevice, Operation, Range, Sizes, random_array

AXIS = "ranks"
_KINDS: dict[str, Callable[[Any], Any]] = {
    "all_reduce": lambda x: jax.lax.psum(x, AXIS),
    "all_gather": lambda x: jax.lax.all_gather(x, AXIS, tiled=True),
    "reduce_scatter": lambda x: jax.lax.psum_scatter(x, AXIS, tiled=True),
    "all_to_all": lambda x: jax.lax.all_to_all(x, AXIS, 0, 0, tiled=True),
}
_ITEMSIZE = {"fp32": 4, "bf16": 2}


def exchange(kind: str, devices: tuple[JaxDevice, ...], sizes: Sizes, dtype: str, seed: int) -> Call:
    """The collective `kind` on a buffer of `bytes`, one shard a device."""
    mesh = Mesh(list(devices), (AXIS,))
    ranks = len(devices)
    each = sizes["bytes"] // _ITEMSIZE[dtype]  # elements of one rank's buffer
    elements = each if kind == "all_gather" else ranks * each
    shards = jax.device_put(random_array((elements,), dtype, seed), NamedSharding(mesh, P(AXIS)))
    # An all-gather leaves the same on every rank, which the checker of replication cannot see.
    function = jax.shard_map(_KINDS[kind], mesh=mesh, in_specs=P(AXIS), out_specs=P(AXIS), check_vma=False)
    return function, (shards,)


def collectives(devices: tuple[JaxDevice, ...]) -> tuple[Operation, ...]:
    """The collectives over these devices; none for a single one."""
    ranks = len(devices)
    if ranks < 2:
        return ()
    return tuple(
        Operation(
            name=kind,
            family="collective",
            op=kind,
            kernel=f"jax.lax.{name}",
            sizes={"bytes": Range(1024, 2**30)},
            shape=lambda sizes: {**sizes, "num_gpus": ranks, "gpus_per_node": ranks},
            call=functools.partial(exchange, kind, devices),
            accepts=lambda sizes: sizes["bytes"] % (4 * ranks * ranks) == 0,
            devices=ranks,
        )
        for kind, name in zip(_KINDS, ("psum", "all_gather", "psum_scatter", "all_to_all"), strict=True)
    )
