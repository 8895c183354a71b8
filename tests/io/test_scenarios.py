"""The shipped scenarios: each is complete, of shipped models and devices, with the files that its commands read."""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path

import pytest
import yaml

import hwspecs
from hwspecs.errors import InputError
from jaxperf.io.huggingface import model_names
from jaxperf.io.scenarios import LAYERS, load_scenario, load_scenarios, write_inputs
from jaxperf.models.workloads.catalog import BUILT_IN

SCENARIOS = load_scenarios()
INPUTS = (".csv", ".json", ".yaml")


def test_there_are_forty_in_their_layers() -> None:
    assert len(SCENARIOS) == 40 and {each.layer for each in SCENARIOS.values()} == set(LAYERS)
    assert sum(each.answered for each in SCENARIOS.values()) == 40


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_is_complete(name: str) -> None:
    scenario = SCENARIOS[name]
    assert scenario.answered == bool(scenario.commands), "a command that answers it, or what lacks"
    assert scenario.check and scenario.workload and scenario.devices >= 1
    assert scenario.device in hwspecs.names()
    described = scenario.model in (*model_names(), *BUILT_IN)
    assert described or "config.json" in scenario.model
    read = set()
    for command in scenario.commands:
        program, _, *arguments = shlex.split(command)
        outputs = {arguments[place + 1] for place, word in enumerate(arguments[:-1]) if word in ("-o", "--out")}
        assert program == "jaxperf"
        read |= {word for word in arguments if word.endswith(INPUTS)} - outputs
    assert read == set(scenario.files), "no file is read that is not there, and none is there in vain"


@pytest.mark.parametrize("name", SCENARIOS)
def test_its_files_are_what_they_are_called(name: str) -> None:
    for file, text in SCENARIOS[name].files.items():
        if file.endswith(".json"):
            json.loads(text)
        elif file.endswith(".yaml"):
            assert yaml.safe_load(text)["model"] == SCENARIOS[name].model
        else:
            rows = list(csv.DictReader(io.StringIO(text)))
            assert rows and all(None not in row and None not in row.values() for row in rows)


def test_ids_are_found_whatever_their_case() -> None:
    assert load_scenario("t1.1") is SCENARIOS["T1.1"]
    with pytest.raises(InputError, match=r"Unknown scenario 'T1.9'.*lists the 40 there are.* Did you mean"):
        load_scenario("T1.9")


def test_files_are_written_and_never_over_others(tmp_path: Path) -> None:
    scenario = SCENARIOS["I2.2"]
    places = write_inputs(scenario, tmp_path / "new")
    assert {place.name: place.read_text() for place in places} == dict(scenario.files)
    with pytest.raises(InputError, match="is there already"):
        write_inputs(scenario, tmp_path / "new")
