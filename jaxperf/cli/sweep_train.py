"""A sweep of task train: devices with what is fitted to measured training steps, in every number format asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwspecs.errors import InputError

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec
    from jaxperf.io.sweep_file import SweepFile
    from jaxperf.models.config import ModelConfig
    from jaxperf.report.sweep_question import Prepared
    from jaxperf.training.study import RatedDevice, TrainingStudy

ONE_BATCH, ONE_SEQUENCE = 1024, 4096  # of the run that stands for a sweep where fitted scalars are looked up
NAMED = 4  # more places than these are counted


@dataclass(frozen=True)
class TrainingOrigin:
    """`tiers`: device -> number format -> where its efficiencies come from, in words; `hosts`: what is taken of those
    that something is offloaded to."""

    tiers: Mapping[str, Mapping[str, str]]
    hosts: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The tiers with the devices of each; the words of one where all are the same."""
        groups: dict[str, list[str]] = {}
        for device, formats in self.tiers.items():
            for name, words in formats.items():
                groups.setdefault(words, []).append(f"{device} in {name}")
        parts = [f"{words}: {_some(places)}" for words, places in groups.items()]
        parts += self.hosts
        return f"fitted to measured steps, {'; '.join(parts)}; 90 % intervals of a whole step"

    @property
    def record(self) -> dict[str, Any]:
        """As plain data; `efficiencies` is the sentence."""
        return {"efficiencies": self.sentence, "tiers": {device: dict(each) for device, each in self.tiers.items()}}


def _some(places: Sequence[str]) -> str:
    return ", ".join(places) if len(places) <= NAMED else f"{len(places)} devices and formats"


def training_study(question: SweepFile, params: Path | None) -> TrainingStudy:
    """What a sweep file asks. Raises `InputError` for a model or metric that does not exist, and for options and
    settings of other tasks."""
    from jaxperf.io.huggingface import load_model
    from jaxperf.training.study import DEFAULT_METRICS, TrainingStudy
    from jaxperf.training.study_axes import TASK

    if params is not None:
        raise InputError(
            f"--params holds what is fitted to kernels; a sweep of task {TASK} takes what is fitted to steps."
        )
    if question.launch != "graph":
        raise InputError(f"launch: a sweep of task {TASK} has no launch mode; leave it out.")
    return TrainingStudy(load_model(question.model), question.metrics or DEFAULT_METRICS)


def prepare_training(study: TrainingStudy, question: SweepFile) -> Prepared:
    """The study with the axes of a sweep file, and where its numbers come from: the shipped fit of training steps.

    **Raises:** `InputError` for what is wrong with the axes.
    """
    from jaxperf.io.fleet import axis_places, select_axis_devices
    from jaxperf.report.sweep_question import Prepared
    from jaxperf.sweeps.named import given_values
    from jaxperf.training.study_axes import DEFAULTS, OFFLOADS, checked_values

    folders = [Path(question.devices_directory)] if question.devices_directory else []
    specs, values = select_axis_devices(question.axes, folders)
    study.axes(values, dict.fromkeys(specs, 0.0))  # mistakes are told before the seconds that devices take to rate
    given = dict(given_values(values))
    dtypes = given.get("dtype", DEFAULTS["dtype"])
    formats = list(dict.fromkeys(checked_values("dtype", dtypes)))
    rated, tiers = _rated(study.model, specs, formats, axis_places(question.axes, folders))
    hosts = _hosts(specs, rated) if any(name in given for name in OFFLOADS) else ()
    return Prepared(study, study.axes(values, rated), TrainingOrigin(tiers, hosts))


def _hosts(specs: Mapping[str, DeviceSpec], rated: Mapping[str, RatedDevice]) -> tuple[str, ...]:
    """What is taken of the hosts of a few devices; of many, of those whose files tell nothing."""
    import jax

    from hwspecs.host import host_of
    from jaxperf.training.host import host_note

    if len(specs) <= NAMED:
        first = {name: jax.tree.map(lambda leaf: leaf[0], rated[name].efficiencies) for name in specs}
        return tuple(host_note(spec, first[name]) for name, spec in specs.items())
    unknown = [name for name, spec in specs.items() if host_of(spec) is None]
    assumed = f"; a link and a memory that are assumed for {_some(unknown)}, whose files name none" if unknown else ""
    return (f"hosts as the files of {len(specs) - len(unknown)} devices tell{assumed}",)


def _rated(
    model: ModelConfig, specs: Mapping[str, DeviceSpec], formats: Sequence[str], folders: Sequence[str | Path]
) -> tuple[dict[str, RatedDevice], dict[str, dict[str, str]]]:
    """The devices with their efficiencies in each format, and where these come from."""
    from jaxperf.cli.plan_rates import SOFTWARE, fitted_rates
    from jaxperf.core.device import device_from_spec
    from jaxperf.core.numerics import as_float, stack
    from jaxperf.training.model_build import training_model
    from jaxperf.training.search.plan import Request
    from jaxperf.training.study import RatedDevice

    built = training_model(model)
    requests = [Request(model.name, built, ONE_BATCH, ONE_SEQUENCE, each) for each in formats]
    found = fitted_rates([(request, spec) for spec in specs.values() for request in requests], None, folders)
    rated, tiers = {}, {}
    for place, (name, spec) in enumerate(specs.items()):
        here = found[place * len(formats) : (place + 1) * len(formats)]
        widths = as_float([each.width for each in here])
        rated[name] = RatedDevice(device_from_spec(spec), stack([each.efficiencies for each in here]), widths)
        tiers[name] = {
            each: f"{one.tier} tier of {SOFTWARE}, within a factor {math.exp(one.width):.2f}"
            + (one.note and f", {one.note}")
            for each, one in zip(formats, here, strict=True)
        }
    return rated, tiers
