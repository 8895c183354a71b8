"""What the options of `jaxperf plan` hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hwspecs.errors import InputError, did_you_mean
from hwspecs.whole import whole_number

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
    size = whole_number(digits)
    if size is None or not 1 <= size <= LARGEST_SIZE:
        what = "tokens" if option == "--budget" else "devices"
        raise InputError(f"{option}: '{part}' has no number of {what} from 1 to {LARGEST_SIZE:,}, such as 64.")
    return size


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


def checked(value: int, option: str, least: int = 1) -> int:
    """`value` itself; raises `InputError` unless it is from `least` to `LARGEST`."""
    from jaxperf.models.checks import show

    if value < least:
        raise InputError(f"{option}: {show(value)} must be at least {least}.")
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


def parse_savers(text: str, modules: str | None, offload: float | None) -> dict[str, Any]:
    """What a `Request` asks of memory: `savers` that are tried, and what is stated of them, which then stays so.

    **Raises:** `InputError` for a name that does not exist, or one whose value is stated.
    """
    from jaxperf.training.search.savers import SAVERS

    stated = {"modules": ("--recompute-modules", modules), "optimizer": ("--offload-optimizer", offload)}
    asked: dict[str, Any] = {"modules": parse_modules(modules or "core_attn"), "offload": 0.0}
    if offload is not None:
        asked["offload"] = parse_share(offload, "--offload-optimizer")
    free = tuple(name for name in SAVERS if stated.get(name, ("", None))[1] is None)
    if text in ("auto", "all"):
        return {**asked, "savers": free, "save_always": text == "all"}
    names = () if text == "none" else tuple(parse_names(text))
    for name in names or (("",) if text != "none" else ()):
        if name not in SAVERS:
            allowed = ("auto", "all", "none", *SAVERS)
            raise InputError(f"--savers: unknown '{name}'; allowed: {', '.join(allowed)}.{did_you_mean(name, allowed)}")
        if name not in free:
            raise InputError(f"--savers: {stated[name][0]} already says what of '{name}' is saved; leave one out.")
    return {**asked, "savers": names, "save_always": True}


def parse_modules(text: str) -> tuple[str, ...]:
    """`moe_act,mla_up_proj` as these modules of selective recomputation. Raises `InputError` for one that is none."""
    from jaxperf.training.layout import MODULES

    names = tuple(parse_names(text))
    for name in names or ("",):
        if name not in MODULES:
            hint = did_you_mean(name, MODULES)
            raise InputError(f"--recompute-modules: unknown '{name}'; allowed: {', '.join(MODULES)}.{hint}")
    return names


def parse_share(value: float, option: str) -> float:
    """`value` itself; raises `InputError` unless it is from 0 to 1."""
    if not 0.0 <= value <= 1.0:
        raise InputError(f"{option}: {value:g} must be from 0 to 1.")
    return value


def parse_memory(text: str | None, option: str) -> float | None:
    """`6 GB` in bytes, None for nothing given. Raises `InputError` for what is no size."""
    if text is None:
        return None
    import hwspecs

    try:
        return hwspecs.parse_quantity(text, "byte")
    except InputError as error:
        raise InputError(f"{option}: {error}") from None
