"""The sizes of the model of a training run: as stated, or those of a shipped description of its name."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from typing import Any

from calibration.datasets.training import SHAPE, Run
from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.huggingface import load_model, model_aliases, model_names
from jaxperf.models.config import ModelConfig
from jaxperf.models.feedforward import Moe
from jaxperf.models.mixers import Attention, Mla
from jaxperf.training.model import TrainingModel
from jaxperf.training.model_build import training_model, training_model_from_shape

OFF = 0.1  # a stated total that is further from the counted one is told [1]


class Models:
    """The models of runs, each built once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[TrainingModel, str]] = {}

    def of(self, run: Run) -> tuple[TrainingModel, str]:
        """As `model_of`."""
        key = f"{run.model}|{run.family}|{run.layout['params']}|{sorted(run.shape.items())}"
        if key not in self._known:
            self._known[key] = model_of(run)
        return self._known[key]


def model_of(run: Run) -> tuple[TrainingModel, str]:
    """The model, and what to know of it, "" where nothing.

    A shipped description is preferred where it agrees with the stated sizes: it knows windows, latent attention and
    the first dense layers, for which a table has no column.

    **Raises:** `InputError`, beginning with `unknown_model`, where sizes are missing and the name is not known.
    """
    missing = [name for name in SHAPE if math.isnan(run.shape[name])]
    shipped = shipped_model(run.model)
    if shipped is None and missing:
        near = did_you_mean(run.model, (*model_names(), *model_aliases()))
        raise InputError(f"unknown_model: {run.model!r} is not known and {', '.join(missing)} are not stated.{near}")
    if shipped is None or not _agrees(shipped, run.shape):
        return _stated(run)
    which = "sizes" if len(missing) == len(SHAPE) else ", ".join(missing)
    return training_model(shipped), f"{which} as in the shipped {shipped.name}" if missing else ""


def shipped_model(name: str) -> ModelConfig | None:
    """The shipped description a name stands for whatever its case and punctuation, or None."""
    found = _spellings().get(_letters(name))
    return None if found is None else _loaded(found)


@functools.cache
def _spellings() -> Mapping[str, str]:
    """Letters and digits of every name and alias -> the shipped name."""
    aliases = {_letters(alias.rpartition("/")[2]): name for alias, name in model_aliases().items()}
    return aliases | {_letters(name): name for name in model_names()}


@functools.cache
def _loaded(name: str) -> ModelConfig:
    return load_model(name)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def _agrees(config: ModelConfig, shape: Mapping[str, float]) -> bool:
    """Whether the stated ones of depth, widths, heads and experts are those of a description."""
    layers = config.layers or (config.encoders[0].layers if config.encoders else ())
    heads = {layer.mixer.heads for layer in layers if isinstance(layer.mixer, (Attention, Mla))}
    experts = {layer.ffn.experts for layer in layers if isinstance(layer.ffn, Moe)}
    own = {
        "layers": {len(layers)},
        "hidden": {config.hidden},
        "vocab": {config.vocabulary or config.encoders[0].vocabulary},
        "heads": heads,
        "experts": experts,
    }
    return all(math.isnan(shape[name]) or shape[name] in values for name, values in own.items())


def _stated(run: Run) -> tuple[TrainingModel, str]:
    """The uniform transformer of the stated sizes, tied or not as the stated total says."""
    missing = [name for name in SHAPE if math.isnan(run.shape[name])]
    if missing:
        raise InputError(f"unknown_model: {run.model!r} is not the shipped one; {', '.join(missing)} are missing.")
    choices = [_from_shape(run, tied) for tied in (True, False)]
    total = run.layout["params"]
    if math.isnan(total):
        return choices[1], ""
    if total < 1.0:
        raise InputError(f"params: {total:g} must be at least 1.")
    away = [abs(math.log(float(model.parameters) / total)) for model in choices]
    model = choices[away.index(min(away))]
    return model, f"params: {float(model.parameters):.4g} counted, {total:.4g} stated" if min(away) > OFF else ""


def _from_shape(run: Run, tied: bool) -> TrainingModel:
    sizes: dict[str, Any] = {name: _count(name, value) for name, value in run.shape.items()}
    sizes["gated"] = bool(sizes["gated"])
    return training_model_from_shape(**sizes, tied=tied, causal=run.family != "encoder")


def _count(name: str, value: float) -> int:
    """A stated size, 0 where it is not. Raises `InputError` for a fraction, and for `gated` beyond 0 and 1."""
    if math.isnan(value):
        return 0
    if value != int(value) or (name == "gated" and value > 1.0):
        raise InputError(f"{name}: {value:g} must be {'0 or 1' if name == 'gated' else 'a whole number'}.")
    return int(value)
