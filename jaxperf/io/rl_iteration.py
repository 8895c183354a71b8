"""A file that describes one iteration of reinforcement learning, checked field by field."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

import hwspecs
from hwspecs.errors import InputError, did_you_mean
from hwspecs.problems import explain
from jaxperf.io.huggingface import read_text
from jaxperf.io.json_text import parse_unique

LEARNERS = ("actor", "critic")  # of the models, those that are trained
GIVEN = ("model", "device")  # of an engine's settings: what the iteration itself says


class Models(BaseModel):
    """Names of the models: `actor` answers and learns, `critic` values and learns, `reward` and `reference` score."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    actor: str
    critic: str | None = None
    reward: str | None = None
    reference: str | None = None

    @property
    def named(self) -> dict[str, str]:
        """Role -> model, of the roles that there are."""
        return {role: name for role, name in self.model_dump().items() if name is not None}


class Iteration(BaseModel):
    """What is asked; see `docs/rl.md` for each field.

    `prompt`, `output`: distributions of lengths as in a workload of `simulate`; `generate`: settings of an engine;
    `train`: columns of a row of `train`; `generate_devices`: those that only generate, 0 where all devices do it all.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    device: str
    devices: int = Field(ge=1, le=2**20)
    models: Models
    prompts: int = Field(ge=1, le=10**6)
    samples: int = Field(1, ge=1, le=10**4)
    prompt: dict[str, Any]
    output: dict[str, Any]
    longest_output: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0, le=2**63)
    generate: dict[str, Any]
    train: dict[str, Any]
    score: list[str] | None = None
    score_tokens: int = Field(16384, ge=1)
    epochs: int = Field(1, ge=1, le=10**4)
    mini_batches: int = Field(1, ge=1, le=10**6)
    generate_devices: int = Field(0, ge=0, le=2**20)
    ahead: int = Field(0, ge=0, le=1)
    offload: bool = False
    host: str = "50 GB/s"

    @property
    def scored_by(self) -> tuple[str, ...]:
        """Roles whose model reads all answers; all there are where the file does not say."""
        return tuple(self.models.named) if self.score is None else tuple(self.score)

    @property
    def learners(self) -> tuple[str, ...]:
        """Roles whose model is trained."""
        return tuple(role for role in self.models.named if role in LEARNERS)

    @property
    def host_bandwidth(self) -> float:
        """Between the host and each device, one way [byte/s]."""
        return hwspecs.parse_quantity(self.host, "byte/s")

    @property
    def training_devices(self) -> int:
        """Devices that score and train."""
        return self.devices - self.generate_devices

    @property
    def generating_devices(self) -> int:
        """Devices that generate."""
        return self.generate_devices or self.devices


def read_iteration(path: Path) -> Iteration:
    """The iteration that a JSON file describes.

    **Raises:** `InputError` naming file and field for what is missing, unknown, or does not go together.
    """
    data = parse_unique(read_text(path), str(path))
    try:
        found = Iteration.model_validate(data)
    except ValidationError as error:
        raise InputError(explain(error, Iteration, str(path))) from None
    for problem in _problems(found):
        raise InputError(f"{path}: {problem}")
    return found


def _problems(asked: Iteration) -> list[str]:
    """What does not go together, in sentences."""
    found = [*_unknown_roles(asked), *_engine_problems(asked.generate)]
    if asked.generate_devices >= asked.devices:
        found.append(f"generate_devices is {asked.generate_devices}; it must leave some of {asked.devices} to train.")
    if asked.ahead and not asked.generate_devices:
        found.append("ahead is 1, which needs devices that only generate: give generate_devices.")
    if asked.offload and asked.generate_devices:
        found.append("offload is true, but devices that only generate hold no states of training; leave it out.")
    if asked.prompts * asked.samples < asked.mini_batches:
        answers = asked.prompts * asked.samples
        found.append(f"mini_batches is {asked.mini_batches}, more than the {answers} answers of an iteration.")
    try:
        hwspecs.parse_quantity(asked.host, "byte/s")
    except InputError as error:
        found.append(f"host: {error}")
    return found


def _unknown_roles(asked: Iteration) -> list[str]:
    roles = tuple(asked.models.named)
    return [
        f"score has '{role}'; allowed, of models: {', '.join(roles)}.{did_you_mean(role, roles)}"
        for role in asked.score or ()
        if role not in roles
    ]


def _engine_problems(settings: Mapping[str, Any]) -> list[str]:
    found = [
        f"generate has '{name}', which the iteration itself says; leave it out." for name in GIVEN if name in settings
    ]
    if "pools" in settings:
        found.append("generate has pools; answers are generated by one kind of replica.")
    return found
