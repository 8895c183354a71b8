"""What the options of `jaxperf plan` hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hwspecs.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from jaxperf.training.search.space import Space

LARGEST_SIZE = 2**20
LARGEST = 2**27  # sequences, tokens, layouts: as far as a sweep goes


def parse_names(text: str) -> list[str]:
    """`aggregated,disaggregated` as a list of names, none of them empty."""
    return list(filter(None, (piece.strip() for piece in text.split(","))))


def parse_sizes(text: str, option: str = "--n") -> list[int]:
    """`64,96` as these sizes, `64...1024` as the doublings from one to the other.

    **Raises:** `InputError` for what is not a number from 1 to 2^20, or a range that its doublings do not end at.
    """
    found: list[int] = []
    for part in parse_names(text):
        first, dots, last = part.partition("...")
        start = parse_size(first, part, option)
        stop = parse_size(last, part, option) if dots else start
        size = start
        while size <= stop:
            found.append(size)
            size *= 2
        if found[-1:] != [stop]:
            raise InputError(f"{option}: '{part}' doubles from {start:,} and never reaches {stop:,}; write 64...1024.")
    if not found:
        raise InputError(f"{option}: no size is given; write {option} 64, {option} 64,96 or {option} 64...65536.")
    return sorted(set(found))


def parse_size(text: str, part: str, option: str) -> int:
    """A size. Raises `InputError` naming the option and the `part` of it that is wrong."""
    digits = text.strip().replace("_", "")
    if not digits.isascii() or not digits.isdigit() or not 1 <= int(digits) <= LARGEST_SIZE:
        what = "tokens" if option == "--budget" else "devices"
        raise InputError(f"{option}: '{part}' has no number of {what} from 1 to {LARGEST_SIZE:,}, such as 64.")
    return int(digits)


def parse_pool(text: str) -> tuple[str, int]:
    """`h100-sxm:64` as a device and how many. Raises `InputError` for another form."""
    name, colon, count = text.rpartition(":")
    if not colon or not name.strip():
        raise InputError(f"--pool: '{text}' is not of the form h100-sxm:64.")
    return name.strip(), parse_size(count, text, "--pool")


def check_devices(device: str, sizes: str, pools: Sequence[str]) -> None:
    """Raises `InputError` unless either --device and --n or --pool is given."""
    if pools and (device or sizes):
        raise InputError("--pool already says which devices and how many; leave --device and --n out.")
    if not pools and not device:
        raise InputError("Which devices? Give --device h100-sxm --n 64, or --pool h100-sxm:64 --pool a100-sxm:64.")


def checked(value: int, option: str) -> int:
    """`value` itself; raises `InputError` unless it is from one to `LARGEST`."""
    from jaxperf.models.checks import show

    if value < 1:
        raise InputError(f"{option}: {show(value)} must be at least 1.")
    if value > LARGEST:
        raise InputError(f"{option}: {show(value)} must be at most {LARGEST:,}.")
    return value


def parse_schedules(text: str) -> Space:
    """The space of `all` schedules or of those named. Raises `InputError` for a name that does not exist."""
    from jaxperf.training.layout import SCHEDULES
    from jaxperf.training.search.space import Space

    if text == "all":
        return Space()
    names = tuple(parse_names(text))
    for name in names or ("",):
        if name not in SCHEDULES:
            hint = did_you_mean(name, SCHEDULES)
            raise InputError(f"--schedules: unknown '{name}'; allowed: all, {', '.join(SCHEDULES)}.{hint}")
    return Space(schedules=names)
