"""The scenarios that ship with the project: what is asked, the commands that answer it, and what these must obey."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from hwspecs.errors import InputError, did_you_mean

LAYERS = ("training", "inference", "serving", "emerging")  # a file each in `jaxperf/scenarios`


@dataclass(frozen=True)
class Scenario:
    """One question.

    `devices`: how many; `commands` answer it where its `files`, name -> text, lie, in this order; `check`: what the
    answer must obey; `note`: what to know of the answer; `lacks`: why there is none, "" where `commands` give it.
    """

    layer: str
    id: str
    name: str
    model: str
    device: str
    devices: int
    layout: str
    workload: str
    check: str
    commands: tuple[str, ...] = ()
    note: str = ""
    lacks: str = ""
    files: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def answered(self) -> bool:
        """Whether its commands answer it."""
        return not self.lacks


@cache
def load_scenarios() -> Mapping[str, Scenario]:
    """All scenarios by id, layer by layer."""
    found: dict[str, Scenario] = {}
    for layer in LAYERS:
        text = (files("jaxperf") / "scenarios" / f"{layer}.toml").read_text(encoding="utf-8")
        for given in tomllib.loads(text)["scenarios"]:
            inputs = {name: content.removeprefix("\n") for name, content in given.pop("files", {}).items()}
            commands = tuple(given.pop("commands", ()))
            found[given["id"]] = Scenario(layer, commands=commands, files=MappingProxyType(inputs), **given)
    return MappingProxyType(found)


def load_scenario(name: str) -> Scenario:
    """The scenario of an id, whatever its case. Raises `InputError` for an unknown one."""
    known = load_scenarios()
    by_case = {each.lower(): each for each in known}
    if name.lower() not in by_case:
        hint = did_you_mean(name, known)
        raise InputError(f"Unknown scenario '{name}'; `jaxperf scenarios` lists the {len(known)} there are.{hint}")
    return known[by_case[name.lower()]]


def write_inputs(scenario: Scenario, folder: Path) -> list[Path]:
    """Writes the files of a scenario into a folder, which is made where it is not there.

    **Raises:** `InputError` where one of them is there already: nothing is overwritten.
    """
    places = [folder / name for name in scenario.files]
    for place in places:
        if place.exists():
            raise InputError(f"'{place}' is there already; give another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    for place, text in zip(places, scenario.files.values(), strict=True):
        place.write_text(text, encoding="utf-8")
    return places
