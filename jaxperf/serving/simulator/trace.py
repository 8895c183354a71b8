"""Requests as the simulator takes them: arrays in order of arrival, several traces padded to one length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float64, Int32

from hwspecs.errors import InputError

OPEN = 1 << 30  # requests under way at once, where the client does not wait for any


class Trace(eqx.Module):
    """Requests in order of arrival, padded to a common length R: `count` of them are real.

    `arrived`: seconds, never decreasing; `prompt`, `output`: tokens, at least one each; `concurrency`: requests that
    the client keeps under way: one more is sent, at its time of arrival at the earliest, whenever one has ended;
    `path`: the node of each block of a request, -1 behind its last, None without prefix caching (see `prefix`);
    `brought`: tokens of the prompt whose keys and values come with the request, computed elsewhere: all of them make it
    a decode that has had its first token; None where nobody brings any; `priority`: the lowest number goes first; None
    where all go in order of arrival.
    """

    arrived: Float64[Array, "*lanes R"]
    prompt: Int32[Array, "*lanes R"]
    output: Int32[Array, "*lanes R"]
    count: Int32[Array, "*lanes"]
    concurrency: Int32[Array, "*lanes"]
    path: Int32[Array, "*lanes R P"] | None = None
    brought: Int32[Array, "*lanes R"] | None = None
    priority: Int32[Array, "*lanes R"] | None = None


def pad_traces(traces: Sequence[Any], size: int = 0, concurrency: int = OPEN) -> Trace:
    """Traces of different lengths as one with a leading axis of lanes.

    **Arguments:** `traces`: each with arrays `arrived` [s], `prompt` and `output` [tokens] of its own length, and all
    or none with a `path` [requests, blocks] of nodes, with `brought` [tokens] and `priority`; `size`: requests to pad
    to, at least; the longest trace by default; `concurrency`: of every lane, unlimited by default.
    **Raises:** `InputError` for an empty trace, one not in order of arrival, counts of tokens below one, and for
    requests that bring more than their prompt, or all of it where nothing is left to make.
    """
    longest = max(size, *(len(trace.arrived) for trace in traces))
    for lane, trace in enumerate(traces):
        arrived = np.asarray(trace.arrived, float)
        if not len(arrived):
            raise InputError(f"trace {lane} has no requests.")
        if not (np.isfinite(arrived).all() and (arrived >= 0.0).all() and (np.diff(arrived) >= 0.0).all()):
            raise InputError(f"trace {lane}: arrival times must be finite, not negative and in order.")
        if min(np.min(trace.prompt), np.min(trace.output)) < 1:
            raise InputError(f"trace {lane}: every request needs at least one prompt token and one output token.")
        _check_brought(trace, lane)

    def padded(name: str, fill: float, kind: type) -> Array:
        rows = [np.asarray(getattr(trace, name), kind) for trace in traces]
        return jnp.asarray(np.stack([np.pad(row, (0, longest - len(row)), constant_values=fill) for row in rows]))

    def optional(name: str) -> Array | None:
        return None if getattr(traces[0], name, None) is None else padded(name, 0, np.int32)

    paths = [path for trace in traces if (path := getattr(trace, "path", None)) is not None]
    return Trace(
        path=_padded_paths(paths, longest) if paths else None,
        arrived=padded("arrived", np.inf, np.float64),
        prompt=padded("prompt", 1, np.int32),
        output=padded("output", 1, np.int32),
        count=jnp.asarray([len(trace.arrived) for trace in traces], jnp.int32),
        concurrency=jnp.full(len(traces), concurrency, jnp.int32),
        brought=optional("brought"),
        priority=optional("priority"),
    )


def _check_brought(trace: Any, lane: int) -> None:
    if (brought := getattr(trace, "brought", None)) is None:
        return
    if np.min(brought) < 0 or np.any(brought > trace.prompt):
        raise InputError(f"trace {lane}: a request brings from none to all tokens of its prompt.")
    if np.any((brought == trace.prompt) & (trace.output < 2)):
        raise InputError(
            f"trace {lane}: a request that brings all of its prompt has had its first token; it needs a second to make."
        )


def _padded_paths(paths: Sequence[np.ndarray], requests: int) -> Array:
    blocks = max(path.shape[1] for path in paths)
    sizes = [((0, requests - len(path)), (0, blocks - path.shape[1])) for path in paths]
    padded = [np.pad(path, size, constant_values=-1) for path, size in zip(paths, sizes, strict=True)]
    return jnp.asarray(np.stack(padded), jnp.int32)
