"""The sizes of the model of a training run: as stated, or those of a shipped description of its name."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from calibration.datasets.training import ALLOWED, SHAPE, Run
from calibration.training.ungrouped import ungrouped
from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.huggingface import any_punctuation, holds_config, load_model, model_aliases, model_names
from jaxperf.models.config import ModelConfig
from jaxperf.models.feedforward import Mlp, Moe
from jaxperf.models.mixers import Attention, Mla
from jaxperf.training.model import TrainingModel
from jaxperf.training.model_build import training_model, training_model_from_shape, training_notes

OFF = 0.1  # a stated total that is further from the counted one is told [1]


class Models:
    """The models of runs, each built once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[TrainingModel, str]] = {}

    def of(self, run: Run) -> tuple[TrainingModel, str]:
        """As `model_of`."""
        stated = [run.layout[name] for name in ("params", "expert_groups")]
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
        raise InputError(f"unknown_model: {run.model!r} is not known and {', '.join(missing)} are not stated.{near}")
    differ = [] if shipped is None else differing(shipped, run.shape)
    if shipped is None or differ:
        return _stated(run, differ)
    which = "sizes" if len(missing) == len(SHAPE) else ", ".join(missing)
    source = f"in {run.model}" if holds_config(run.model) else f"in the shipped {shipped.name}"
    taken = f"{which} as {source}" if missing else ""
    alike = ungrouped(shipped)
    free = alike is not shipped and math.isnan(run.layout["expert_groups"])
    limit = "" if not free else "any group of experts taken for a token's, as the parameters were fitted"
    told = (taken, _unused_width(shipped, run.shape), limit, *training_notes(shipped))
    return training_model(alike), "; ".join(filter(None, told))


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


def differing(config: ModelConfig, shape: Mapping[str, float]) -> list[str]:
    """The stated sizes that no layer of a description has."""
    own = _sizes(config)
    return [name for name, value in shape.items() if name in own and not math.isnan(value) and value not in own[name]]


def _sizes(config: ModelConfig) -> dict[str, Collection[float]]:
    """Column of `SHAPE` and `EXPERTS` -> its values over the layers of a description, 0 for what no layer has.

    A latent head has a width for each of its parts; sources state any of them. There is no `ffn` where all
    feed-forward blocks have experts: tables then repeat either an expert's width or one that no layer has.
    """
    layers = config.layers or (config.encoders[0].layers if config.encoders else ())
    mixers = {mixer for layer in layers for mixer in (layer.mixer, layer.beside)}
    plain = [mixer for mixer in mixers if isinstance(mixer, Attention)]
    latent = [mixer for mixer in mixers if isinstance(mixer, Mla)]
    blocks = {layer.ffn for layer in layers if layer.ffn is not None}
    dense = [block for block in blocks if isinstance(block, Mlp)]
    sparse = [block for block in blocks if isinstance(block, Moe)]
    sizes: dict[str, Collection[float]] = {
        "layers": {len(layers)},
        "hidden": {config.hidden},
        "vocab": {config.vocabulary or config.encoders[0].vocabulary},
        "heads": {mixer.heads for mixer in (*plain, *latent)},
        "kv_heads": {mixer.kv_heads for mixer in plain} | {mixer.heads for mixer in latent},
        "head_dim": {width for mixer in plain for width in (mixer.head_dim, mixer.value_width)}
        | {w for m in latent for w in (m.nope_dim + m.rope_dim, m.nope_dim, m.rope_dim, m.value_dim)},
        "ffn": {block.intermediate for block in dense},
        "gated": {float(block.gated) for block in blocks},
        "experts": {block.experts for block in sparse},
        "topk": {block.experts_per_token for block in sparse},
        "moe_ffn": {block.intermediate for block in sparse},
        "shared_experts": {block.shared_intermediate / block.intermediate for block in sparse},
        "dense_layers": {_leading_dense(config)},
    }
    if sparse and not dense:
        del sizes["ffn"]
    return {name: values or {0.0} for name, values in sizes.items()}


def _leading_dense(config: ModelConfig) -> int:
    """Layers before the first that has experts, 0 where none has."""
    sparse = [place for place, layer in enumerate(config.layers) if isinstance(layer.ffn, Moe)]
    return sparse[0] if sparse else 0


def _unused_width(config: ModelConfig, shape: Mapping[str, float]) -> str:
    """What to know where a table states `ffn` alone of a model all of whose blocks have experts of another width."""
    sizes = _sizes(config)
    known = "ffn" in sizes or not math.isnan(shape["moe_ffn"]) or shape["ffn"] in sizes["moe_ffn"]
    if known or math.isnan(shape["ffn"]):
        return ""
    return f"ffn is not used: all blocks of the shipped {config.name} have experts, as wide as moe_ffn says"


def _stated(run: Run, differ: Sequence[str]) -> tuple[TrainingModel, str]:
    """The uniform transformer of the stated sizes, tied or not as the stated total says; `differ`: which of them
    are not those of the shipped model of its name."""
    missing = _missing(run.shape)
    if missing:
        raise InputError(
            f"unknown_model: {run.model!r} is not the shipped one; {', '.join(missing)} are missing. "
            f"The shipped one differs in {', '.join(differ)}."
        )
    choices = [_from_shape(run, tied) for tied in (True, False)]
    total = run.layout["params"]
    if math.isnan(total):
        return choices[1], ""
    if total < 1.0:
        raise InputError(f"params: {total:g} must be at least 1.")
    away = [abs(math.log(float(model.parameters) / total)) for model in choices]
    model = choices[away.index(min(away))]
    return model, f"params: {float(model.parameters):.4g} counted, {total:.4g} stated" if min(away) > OFF else ""


def _missing(shape: Mapping[str, float]) -> list[str]:
    """The sizes without which no model can be built, and that are not stated."""
    needed = (*SHAPE, "topk", "moe_ffn") if shape["experts"] > 0.0 else SHAPE
    return [name for name in needed if math.isnan(shape[name])]


def _from_shape(run: Run, tied: bool) -> TrainingModel:
    sizes: dict[str, Any] = {name: _count(name, value) for name, value in run.shape.items()}
    sizes["gated"] = bool(sizes["gated"])
    dense, layers = sizes["dense_layers"], sizes["layers"]
    if dense and not sizes["experts"]:
        raise InputError(f"dense_layers: {dense} of a model without experts; state experts, or leave it empty.")
    if dense >= max(layers, 1):
        raise InputError(f"dense_layers: {dense} must be fewer than the {layers} layers.")
    return training_model_from_shape(**sizes, tied=tied, causal=run.family != "encoder")


def _count(name: str, value: float) -> int:
    """A stated size, 0 where it is not. Raises `InputError` for a fraction, and for `gated` beyond 0 and 1."""
    if math.isnan(value):
        return 0
    if value != int(value) or (name == "gated" and value > 1.0):
        raise InputError(f"{name}: {value:g} must be {ALLOWED.get(name, 'a whole number')}.")
    return int(value)
