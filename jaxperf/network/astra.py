"""Cost level (c): the cycles of ASTRA-sim 2.0's analytical backend, event for event, for a network of dimensions.

A buffer is cut into chunks, each chunk runs the phases of its collective, one dimension after the other, and each
dimension serves a few chunks at once (Won et al., ASTRA-sim 2.0, ISPASS 2023). Unlike levels (a) and (b) this one
keeps the simulator's own units and truncations, because its answer is an integer of nanoseconds that must agree to
the last digit; it therefore runs on the host in Python integers and doubles, and has no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwspecs.errors import InputError
from jaxperf.network.astra_events import followed_cycles
from jaxperf.network.astra_lockstep import lockstep_cycles
from jaxperf.network.astra_parts import exchange_parts, tree_parts
from jaxperf.network.astra_setup import KINDS, Dimension, Settings
from jaxperf.network.astra_steps import ALGORITHMS, COLLECTIVES, Phase, step_count, steps_of

MAX_EVENTS = 20_000_000  # steps of all chunks that are followed one by one, a minute or so
TREE_EVENTS = 16  # of one rank of the double binary tree: delays, and hops of what it sends up and down


def astra_cycles(
    collective: str, dimensions: Sequence[Dimension], size: int, settings: Settings, congestion_aware: bool
) -> int:
    """Cycles (ns) from the start of a collective of `size` bytes to its end on the last device.

    **Arguments:** `collective`: one of `COLLECTIVES`; `size` [byte]: the whole buffer, of an all-gather the shard of
    one rank; `congestion_aware`: messages queue for links (one dimension only), else they never meet.
    **Raises:** `InputError` where the simulator has no such case.
    """
    check_case(collective, dimensions, size, settings, congestion_aware)
    involved = [index for index, dimension in enumerate(dimensions) if dimension.size > 1]
    if not involved:
        return 0
    chunks = chunk_sizes(size, settings.splits)
    first = dimensions[involved[0]]
    if first.algorithm == "doubleBinaryTree":
        return followed_cycles(
            first, tree_parts(first.size, chunks, settings), settings.active_chunks, congestion_aware
        )
    phases = [_phases(collective, dimensions, involved, chunk, settings) for chunk in chunks]
    if congestion_aware and first.has_far_peers:
        parts = exchange_parts(first.size, [only[0].steps for only in phases], settings)
        return followed_cycles(first, parts, settings.active_chunks, congestion_aware)
    return lockstep_cycles(dimensions, phases, settings, congestion_aware)


def chunk_sizes(size: int, splits: int) -> list[int]:
    """Sizes of the chunks of a buffer: size / splits rounded down, and the rest as one smaller chunk [byte]."""
    chunk = size // splits
    rest = size % chunk
    return [chunk] * (size // chunk) + ([rest] if rest else [])


def _phases(
    collective: str, dimensions: Sequence[Dimension], involved: Sequence[int], chunk: int, settings: Settings
) -> list[Phase]:
    """The phases of one chunk; each hands its result, smaller or larger, to the next."""
    data, phases = chunk, []
    for part, index in phase_order(collective, involved):
        dimension = dimensions[index]
        steps = steps_of(dimension.algorithm, part, dimension.size, data, settings.reduction)
        phases.append(Phase(index, steps))
        data = left_after(part, dimension.size, data)
    return phases


def phase_order(collective: str, involved: Sequence[int]) -> list[tuple[str, int]]:
    """(collective, dimension) pairs in order: an all-reduce scatters inwards, reduces on the last dimension, gathers
    outwards; an all-gather starts at the last dimension."""
    if collective == "all_reduce":
        *inner, last = involved
        scatter = [("reduce_scatter", index) for index in inner]
        gather = [("all_gather", index) for index in reversed(inner)]
        return [*scatter, ("all_reduce", last), *gather]
    order = reversed(involved) if collective == "all_gather" else involved
    return [(collective, index) for index in order]


def left_after(collective: str, ranks: int, data: int) -> int:
    """Bytes a rank holds after a phase over `ranks` that started with `data` bytes."""
    if collective == "all_gather":
        return data * ranks
    return data // ranks if collective == "reduce_scatter" else data


def check_case(
    collective: str, dimensions: Sequence[Dimension], size: int, settings: Settings, congestion_aware: bool
) -> None:
    """Raises `InputError` with what the simulator cannot run."""
    if collective not in COLLECTIVES:
        raise InputError(f"collective {collective!r} is not one of {', '.join(COLLECTIVES)}")
    if not dimensions:
        raise InputError("the network has no dimension")
    if congestion_aware and len(dimensions) > 1:
        raise InputError("the congestion-aware backend has one dimension; use Unaware for several")
    if settings.splits < 1 or settings.active_chunks < 1:
        raise InputError("splits and active_chunks must be at least 1")
    if settings.endpoint_delay < 0 or not settings.memory_bandwidth > 0:
        raise InputError("endpoint_delay must not be negative and local_mem_bw must be positive")
    if size < settings.splits:
        raise InputError(f"size_bytes {size} cannot be cut into {settings.splits} splits")
    for dimension in dimensions:
        _check_dimension(collective, dimension)
    if len(dimensions) > 1 and any(dimension.algorithm == "doubleBinaryTree" for dimension in dimensions):
        raise InputError("doubleBinaryTree is replicated on one dimension only")
    events = sum(_events(collective, dimension, congestion_aware) for dimension in dimensions)
    if events * (settings.splits + 1) > MAX_EVENTS:
        raise InputError(f"{settings.splits} splits of {events} steps are more than the {MAX_EVENTS} that are followed")


def _events(collective: str, dimension: Dimension, congestion_aware: bool) -> int:
    """What is followed of one chunk along a dimension: steps, their messages where these queue, and hops on a ring."""
    ranks, direct = dimension.size, dimension.algorithm == "direct"
    steps = step_count(dimension.algorithm, collective, ranks)
    if dimension.algorithm == "doubleBinaryTree":
        return steps * TREE_EVENTS
    if not congestion_aware:
        return steps
    peers = ranks - 1 if direct else 1
    if dimension.has_far_peers:
        return steps * ranks * peers * (ranks // 4)  # the mean way to a peer around the ring
    return steps * peers


def _check_dimension(collective: str, dimension: Dimension) -> None:
    if dimension.kind not in KINDS:
        raise InputError(f"topology {dimension.kind!r} is not one of {', '.join(KINDS)}")
    if dimension.algorithm not in ALGORITHMS:
        raise InputError(f"algorithm {dimension.algorithm!r} is not one of {', '.join(ALGORITHMS)}")
    if dimension.size < 1:
        raise InputError(f"a dimension of {dimension.size} devices does not exist")
    if not dimension.bandwidth > 0 or not dimension.latency >= 0:
        raise InputError("bw_GiBps must be positive and lat_ns must not be negative")
    power_of_two = dimension.size & (dimension.size - 1) == 0
    if dimension.algorithm in ("halvingDoubling", "doubleBinaryTree") and not power_of_two:
        raise InputError(f"{dimension.algorithm} needs a power of two of devices, not {dimension.size}")
    if dimension.algorithm == "halvingDoubling" and collective == "all_to_all":
        raise InputError("halvingDoubling has no all_to_all")
