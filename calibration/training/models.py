"""The sizes of the model of a training run: as stated, or those of a shipped description of its name."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from calibration.datasets.training import Run
from calibration.datasets.training_columns import ALLOWED, LATENT, SHAPE
from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.huggingface import any_punctuation, holds_config, load_model, model_aliases, model_names
from jaxperf.io.model_sizes import differing, sizes_of
from jaxperf.models.config import ModelConfig
from jaxperf.training.model import TrainingModel
from jaxperf.training.model_build import training_model, training_model_from_shape, training_notes

PLAIN_HEADS = ("kv_heads", "head_dim")
WIDTHS = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
OFF = 0.1  # a stated total that is further from the counted one is told [1]


class Models:
    """The models of runs, each built once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[TrainingModel, str]] = {}

    def of(self, run: Run) -> tuple[TrainingModel, str]:
        """As `model_of`, and where its sequences are longer than the model is made for."""
        model, told = self._of(run)
        return model, "; ".join(filter(None, (told, _too_long(run))))

    def _of(self, run: Run) -> tuple[TrainingModel, str]:
        stated = [run.layout[name] for name in ("params", "expert_groups", "mtp")]
        key = f"{run.model}|{run.family}|{stated}|{sorted(run.shape.items())}"
        if key not in self._known:
            self._known[key] = model_of(run)
        return self._known[key]


def model_of(run: Run) -> tuple[TrainingModel, str]:
    """The model, and what to know of it, "" where nothing.

    A shipped description is preferred where it agrees with the stated sizes: it knows windows, latent attention and
    the first dense layers, whose number alone a table has a column for.

    **Raises:** `InputError`, beginning with `unknown_model`, where sizes are missing and the name is not known.
    """
    missing = _missing(run.shape)
    shipped = shipped_model(run.model)
    if shipped is None and missing:
        names = (*model_names(), *model_aliases())
        near = " There is no such file." if run.model.endswith(".json") else did_you_mean(run.model, names)
        stated = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not stated"
        raise InputError(f"unknown_model: {run.model!r} is not known and {stated}.{near}")
    differ = [] if shipped is None else differing(shipped, run.shape)
    if shipped is None or differ:
        return _stated(run, differ)
    which = "sizes" if len(missing) == len(SHAPE) else ", ".join(missing)
    source = f"in {run.model}" if holds_config(run.model) else f"in the shipped {shipped.name}"
    taken = f"{which} as {source}" if missing else ""
    mtp = _count("mtp", run.layout["mtp"])
    told = (taken, _unused_width(shipped, run.shape), *training_notes(shipped, mtp))
    return training_model(shipped, mtp=mtp), "; ".join(filter(None, told))


def _too_long(run: Run) -> str:
    """A sentence where a described model is made for shorter sequences, else ""."""
    shipped = shipped_model(run.model)
    longest = None if shipped is None else shipped.max_context
    if longest is None or run.sequence <= longest:
        return ""
    return f"sequences are longer than the {longest:,} tokens that the description of {run.model} allows"


def shipped_model(name: str) -> ModelConfig | None:
    """The description in a `config.json` or a folder that holds one; else the shipped one that a name stands for
    whatever its case, punctuation and owner ("meta-llama/"), or None.

    **Raises:** `InputError`, beginning with `unknown_model`, for a file that is no description.
    """
    if holds_config(name):
        try:
            return load_model(name)
        except InputError as error:
            raise InputError(f"unknown_model: {error}") from None
    found = any_punctuation(name)
    return None if found is None else _loaded(found)


@functools.cache
def _loaded(name: str) -> ModelConfig:
    return load_model(name)


def _unused_width(config: ModelConfig, shape: Mapping[str, float]) -> str:
    """What to know where a table states `ffn` alone of a model all of whose blocks have experts of another width."""
    sizes = sizes_of(config)
    known = "ffn" in sizes or not math.isnan(shape["moe_ffn"]) or shape["ffn"] in sizes["moe_ffn"]
    if known or math.isnan(shape["ffn"]):
        return ""
    return f"ffn is not used: all blocks of the shipped {config.name} have experts, as wide as moe_ffn says"


def _stated(run: Run, differ: Sequence[str]) -> tuple[TrainingModel, str]:
    """The uniform transformer of the stated sizes, tied or not as the stated total says; `differ`: which of them
    are not those of the shipped model of its name."""
    missing = _missing(run.shape)
    if missing:
        lack = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        raise InputError(
            f"unknown_model: {run.model!r} is not the shipped one; {lack}. "
            f"The shipped one differs in {', '.join(differ)}."
        )
    choices = [_from_shape(run, tied) for tied in (True, False)]
    total = run.layout["params"]
    if math.isnan(total):
        return _with_further(run, tied=False), ""
    if total < 1.0:
        raise InputError(f"params: {total:g} must be at least 1.")
    away = [abs(math.log(float(model.parameters) / total)) for model in choices]
    place = away.index(min(away))
    model = choices[place]
    told = f"params: {float(model.parameters):.4g} counted, {total:.4g} stated" if min(away) > OFF else ""
    return _with_further(run, tied=place == 0), told


def _missing(shape: Mapping[str, float]) -> list[str]:
    """The sizes without which no model can be built, and that are not stated."""
    latent = shape["kv_lora_rank"] > 0.0  # the widths of its heads are then in columns of their own
    needed = [name for name in SHAPE if name not in PLAIN_HEADS] + [*WIDTHS] if latent else [*SHAPE]
    needed += ["topk", "moe_ffn"] if shape["experts"] > 0.0 else []
    return [name for name in needed if math.isnan(shape[name])]


def _with_further(run: Run, tied: bool) -> TrainingModel:
    """The model of the stated sizes with the layers that predict further tokens, which `params` does not count."""
    return _from_shape(run, tied, _count("mtp", run.layout["mtp"]))


def _from_shape(run: Run, tied: bool, mtp: int = 0) -> TrainingModel:
    sizes: dict[str, Any] = {name: _count(name, value) for name, value in run.shape.items()}
    sizes["gated"] = bool(sizes["gated"])
    dense, layers = sizes["dense_layers"], sizes["layers"]
    if dense and not sizes["experts"]:
        raise InputError(f"dense_layers: {dense} of a model without experts; state experts, or leave it empty.")
    if dense >= max(layers, 1):
        raise InputError(f"dense_layers: {dense} must be fewer than the {layers} layers.")
    widths = [name for name in LATENT if sizes[name]]
    if widths and not sizes["kv_lora_rank"]:
        raise InputError(f"{widths[0]}: {sizes[widths[0]]} without kv_lora_rank; state it, or leave {widths[0]} empty.")
    return training_model_from_shape(**sizes, tied=tied, causal=run.family != "encoder", mtp=mtp)


def _count(name: str, value: float) -> int:
    """A stated size, 0 where it is not. Raises `InputError` for a fraction, and for `gated` beyond 0 and 1."""
    if math.isnan(value):
        return 0
    if value != int(value) or (name == "gated" and value > 1.0):
        raise InputError(f"{name}: {value:g} must be {ALLOWED.get(name, 'a whole number')}.")
    return int(value)
