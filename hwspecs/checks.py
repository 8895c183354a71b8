"""Does the stated peak follow from cores, clock and operations per cycle? Of new devices and of a user's own."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from hwspecs.plain import UNSOURCED
from hwspecs.quantity import format_quantity
from hwspecs.schema import ArchitectureSpec, DeviceSpec
from hwspecs.values import ComputeRate

SHOWN = 3  # deviations of one sentence
FROM = ("num_cores", "clock_rate", "architecture")  # what peaks follow from


@dataclass(frozen=True)
class Deviation:
    """A stated rate that does not follow from the formula; rates in FLOP/s, `ratio` = stated / expected."""

    field: str
    stated: float
    expected: float
    note: str | None

    @property
    def ratio(self) -> float:
        return self.stated / self.expected


def expected_peaks(device: DeviceSpec, architecture: ArchitectureSpec) -> dict[str, float]:
    """Rates that cores x clock x operations per cycle give [FLOP/s], by field path, for each format of both files."""
    cycles = device.num_cores.si * device.clock_rate.si
    peaks = {
        f"peak_flops.{name}": cycles * architecture.operations_per_cycle[name].si
        for name in device.peak_flops
        if name in architecture.operations_per_cycle
    }
    return {**peaks, "vector_flops": cycles * architecture.vector_operations_per_cycle.si}


def peak_deviations(
    device: DeviceSpec, architecture: ArchitectureSpec, tolerance: float = 0.02
) -> tuple[Deviation, ...]:
    """Stated rates further than `tolerance` (relative) from the formula, each with the note the device file gives."""
    found = []
    for field, expected in expected_peaks(device, architecture).items():
        value = _rate(device, field)
        if abs(value.si / expected - 1) > tolerance:
            found.append(Deviation(field, value.si, expected, None if value.note == UNSOURCED else value.note))
    return tuple(found)


def unexplained(device: DeviceSpec, architecture: ArchitectureSpec, stated: Container[str]) -> tuple[Deviation, ...]:
    """Deviations of a device that stands on another one, without those that it takes over as they are, or explains.

    **Arguments:** `stated`: paths of the fields that its own file states; a note of the other device says nothing of
    another clock.
    """
    moved = any(field in stated for field in FROM)
    return tuple(
        each
        for each in peak_deviations(device, architecture)
        if (moved or each.field in stated) and not (each.note and each.field in stated)
    )


def deviations_sentence(device: DeviceSpec, deviations: Sequence[Deviation], source: str) -> str:
    """The figures, and what to do about them."""
    figures = [
        f"{each.field} {format_quantity(each.stated, 'FLOP/s')} (they give {format_quantity(each.expected, 'FLOP/s')})"
        for each in deviations[:SHOWN]
    ]
    more = f" and {len(deviations) - SHOWN} more" if len(deviations) > SHOWN else ""
    return (
        f"{source}: peaks do not follow from {device.num_cores.si:,.0f} cores at "
        f"{format_quantity(device.clock_rate.si, 'Hz')} of {device.architecture}: {', '.join(figures)}{more}; state "
        "peaks, cores and clock that belong together, or a note at the peak that says why not."
    )


def _rate(device: DeviceSpec, field: str) -> ComputeRate:
    prefix, _, name = field.partition(".")
    return device.vector_flops if prefix == "vector_flops" else {str(k): v for k, v in device.peak_flops.items()}[name]
