"""What every operation of some traces asks for in the replayed run: work of the device, or a message in a group."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from hwspecs.errors import InputError
from jaxperf.training.replay.messages import MESSAGE_TIMES
from jaxperf.training.replay.prices import Demand
from jaxperf.training.replay.ranks import Meeting, Place
from jaxperf.training.replay.trace import COMMUNICATION, WORK, Operation, Trace, node_words
from jaxperf.training.replay.world import Placement, Ranks, World, widest_placement


@dataclass(frozen=True)
class Rules:
    """How a recorded run is read as another one.

    `recorded`: keep the recorded durations of computation, where there are any; `sharded`: names of growing groups
    whose gathered buffer stays, so that the shard of each rank shrinks as they grow, where any other keeps the size of
    its messages.
    """

    recorded: bool = False
    sharded: Collection[str] = ()


def demands_of(
    traces: Sequence[Trace], meetings: Mapping[Place, Meeting], world: World, node_size: int, rules: Rules
) -> dict[Place, Demand | float]:
    """The demand of every operation, or its recorded duration [s].

    **Raises:** `InputError` naming the node for what has no price, and for a message along the ranks that grow; for
    traces without the durations that are to be kept.
    """
    if rules.recorded:
        _check_durations(traces)
    placed: dict[tuple[str, Ranks], Placement] = {}
    found: dict[Place, Demand | float] = {}
    for index, trace in enumerate(traces):
        for position, each in enumerate(trace.operations):
            where = f"{trace.source}, {node_words(each)}"
            if each.kind not in COMMUNICATION:
                found[index, position] = _work(each, rules.recorded, where)
                continue
            ranks = meetings[index, position].ranks
            if (each.kind, ranks) not in placed:
                placed[each.kind, ranks] = _placed(each, ranks, world, node_size, where)
            found[index, position] = _message(each, ranks, world, placed[each.kind, ranks], rules.sharded, where)
    return found


def untimed_notes(traces: Sequence[Trace], world: World) -> list[str]:
    """What takes no time because the traces do not say how much it is, or among how many ranks."""
    operations = [each for trace in traces for each in trace.operations]
    empty = sum(each.kind in WORK and each.flops == each.bytes_moved == each.duration == 0.0 for each in operations)
    sent = sum(each.kind == "collective" for each in operations) if world.ranks == 1 else 0
    return [
        *([f"{empty:,} nodes have neither work nor duration: they take no time."] if empty else []),
        *([f"one rank: {sent:,} collectives take no time; say --recorded N, the ranks of the run."] if sent else []),
    ]


def _placed(operation: Operation, ranks: Ranks, world: World, node_size: int, where: str) -> Placement:
    """Of a group in the replayed run; of a message, its two ends."""
    if operation.kind == "collective" or world.factor == 1 or not world.parts(ranks):
        return widest_placement(world.grown(ranks, where), node_size)
    raise InputError(f"{where} goes along the ranks that grow; nothing says to whom it goes among more of them.")


def _check_durations(traces: Sequence[Trace]) -> None:
    """A trace whose computation has no durations was not recorded but made."""
    for trace in traces:
        work = [each for each in trace.operations if each.kind in WORK]
        if work and not any(each.duration > 0.0 for each in work):
            raise InputError(f"{trace.source} has no duration of any computation; replay with --compute roofline.")


def _work(operation: Operation, recorded: bool, where: str) -> Demand | float:
    """The time of the host is only known as recorded."""
    if operation.kind not in WORK or (recorded and operation.duration > 0.0):
        return operation.duration
    if operation.flops == 0.0 and operation.bytes_moved == 0.0 and operation.duration > 0.0:
        raise InputError(f"{where} has neither num_ops nor tensor_size; replay its recorded time (--compute recorded).")
    return Demand("work", operation.flops, operation.bytes_moved)


def _message(
    operation: Operation,
    recorded: Ranks,
    world: World,
    placed: Placement,
    sharded: Collection[str],
    where: str,
) -> Demand | float:
    """A message, or a collective of the whole buffer: for an all-gather, all the shards."""
    ranks, nodes, fullest, fewest = placed
    place = fullest, nodes, fullest * nodes - ranks, fullest - fewest
    if operation.kind != "collective":
        return Demand("send", 0.0, operation.size, *place)
    what, size = operation.collective, operation.size
    if what not in MESSAGE_TIMES:
        if operation.duration > 0.0 and world.factor == 1:
            return operation.duration
        known = ", ".join(name for name in MESSAGE_TIMES if name != "send")
        raise InputError(f"{where} is a {what} with no recorded time for so many ranks; those priced: {known}.")
    if what == "all_gather":
        stays = operation.group in sharded and world.grows(recorded)
        size *= float(Fraction(ranks) / world.factor) if stays else ranks
    return Demand(what, 0.0, size, *place)
