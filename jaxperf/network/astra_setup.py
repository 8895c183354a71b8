"""What a case of ASTRA-sim's analytical backend is made of, in the simulator's own units (ns, GiB/s)."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("Ring", "FullyConnected", "Switch")


@dataclass(frozen=True)
class Dimension:
    """One dimension of the network: `size` devices joined by a `kind`, with links of `bandwidth` and `latency`.

    `bandwidth` [GiB/s], `latency` [ns] of one link; `algorithm` is the one the collective uses along this dimension.
    """

    kind: str
    size: int
    bandwidth: float
    latency: float
    algorithm: str

    @property
    def bytes_per_ns(self) -> float:
        """Bandwidth as the simulator computes with it; its files write GB/s and mean GiB/s [byte/ns]."""
        return self.bandwidth * 2**30 / 1e9  # in this order: the last bit decides where m / B is a whole number

    @property
    def has_far_peers(self) -> bool:
        """Whether messages of different ranks share links on their way: to others than the neighbors on a ring."""
        return self.kind == "Ring" and self.size > 3 and self.algorithm in ("direct", "halvingDoubling")


@dataclass(frozen=True)
class Settings:
    """The simulator's system file: `endpoint_delay` [ns] paid before and after each message, chunks a buffer is cut
    into (`splits`) and that one dimension serves at once (`active_chunks`), `memory_bandwidth` [GB/s] of reductions."""

    endpoint_delay: int
    active_chunks: int
    splits: int
    memory_bandwidth: float

    def reduction(self, message: int) -> int:
        """Time to add a received message to the local one: two reads and a write, each rounded down [ns of bytes]."""
        return 3 * int(message / self.memory_bandwidth)
