"""Machines that come with the program as cases of a loop nest: memories that compute, one that they replace, and a
spatial array."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.timeloop.fields import amount
from jaxperf.io.timeloop.json_case import is_yaml, load_json
from jaxperf.io.timeloop.yaml_case import load_yaml

SHIPPED = resources.files("jaxperf.loopnest") / "machines"
NEAR_MEMORY = SHIPPED / "near_memory"
CLOCK = "clock_hz"


def shipped_machines() -> dict[str, Path]:
    """The machines that come with the program: name -> file."""
    files = [each for place in (SHIPPED, NEAR_MEMORY) for each in place.iterdir() if each.name.endswith(".json")]
    return {each.name.removesuffix(".json"): Path(str(each)) for each in files}


def machine_path(given: Path) -> Path:
    """A file, or that of a shipped machine by its name.

    **Raises:** `InputError` for a name without an ending that is neither.
    """
    shipped = shipped_machines()
    if str(given) in shipped and not given.exists():
        return shipped[str(given)]
    if not given.suffix and not given.exists():
        known = ", ".join(sorted(shipped))
        raise InputError(f"'{given}' is no file, nor one of {known}.{did_you_mean(str(given), shipped)}")
    return given


def clock_of(path: Path) -> float | None:
    """The clock of a case's machine [Hz], `None` where its file has none. Raises `InputError` for one below zero."""
    data = load_yaml(path) if is_yaml(path) else load_json(path)
    hertz = data.get(CLOCK)
    if hertz is None:
        return None
    found = amount(hertz, f"{path}: {CLOCK}")
    if not found:
        raise InputError(f"{path}: {CLOCK} is 0; a machine without a clock does nothing.")
    return found
