"""What an answer assumes, replaces or leaves out, in sentences: the same whichever command gives it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxperf.core.device import stand_in_of, unscaled
from jaxperf.core.formats import FORMATS
from jaxperf.models.block_formats import PLAIN, own_formats
from jaxperf.models.config import Attention, CompressedAttention, Mla, ModelConfig
from jaxperf.models.parameters import parameter_count
from jaxperf.models.quantization import bits_per_weight
from jaxperf.serving.reads import makes_tokens
from jaxperf.serving.study_values import MEDIA
from jaxperf.serving.unit_costs import CAPPED_ENERGY_NOTE, ENERGY_NOTE

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec

UNTIMED_SHARE = 0.002  # of the parameters: what is not timed and more than that is said
UNSAID_SHARE = 0.01  # by which the bits of a weight may differ from those of the format without a word
# All-reduces of 16 MiB among L40S of one server against our price: 4.8 to 6.7 for 1.1 ms (4 of them), 16 to 22 for
# 1.2 ms (8); pairs are right. Servers with switches between their cards do better; no datasheet of a card says which.
HOST_LINKS = "counted at their rate, where four L40S of one server took five times as long and eight fifteen"
WORDS = {
    "mixer": "attention",
    "recurrent": "the recurrent layers",
    "beside": "the state space beside attention",
    "ffn": "the feed-forward blocks",
    "shared": "the shared experts",
}
PAIR = 2  # ranks whose PCIe is as fast as its rate
NAMED = 12  # so many devices are named in a sentence; more are counted


def notes_of(
    model: ModelConfig, spec: DeviceSpec, point: Mapping[str, Any], speculative: bool = False, capped: bool = False
) -> list[str]:
    """Of one configuration on one device.

    **Arguments:** `speculative`: whether decoding is; what it proposes with is then said elsewhere; `capped`: whether
    devices are under a power limit that was asked for.
    """
    notes = model_notes(model, [point["weights"]], [point["kv_cache"]], MEDIA in point, speculative)
    weights = FORMATS[point["weights"]]
    roles = [(FORMATS[name].compute, "weights") for name in (point["weights"], *_other_formats(model))]
    for compute, role in dict.fromkeys((*roles, (FORMATS[weights.activations].compute, "activations"))):
        stand_in = stand_in_of(spec, compute)
        if stand_in is not None:
            notes.append(f"{spec.name} has no {compute} matrix units: {role} are multiplied in {stand_in}.")
    notes += [f"{spec.name} has {note}." for note in without_scales(spec, point["weights"])]
    if spec.node.topology == "pcie" and point.get("tensor_parallel", 1) > PAIR:
        notes.append(f"{spec.name}: links are PCIe of the host, {HOST_LINKS}.")
    return [*notes, CAPPED_ENERGY_NOTE if capped else ENERGY_NOTE]


def model_notes(
    model: ModelConfig,
    weights: Iterable[str],
    kv_cache: Collection[str],
    media: bool = False,
    speculative: bool = False,
    change: str = "--kv-cache {}",
) -> list[str]:
    """Of a model in some formats, whatever the device.

    **Arguments:** `media`: whether its encoders have work; `change`: where a command is told the format of the cache.
    """
    stored = [note for name in weights for note in _stored_as(model, name)]
    cached = _cached_as(model, kv_cache, change)
    return [*model.assumptions, *stored, *cached, *_left_out(model, media, speculative)]


def notes_of_many(
    model: ModelConfig,
    specs: Sequence[DeviceSpec],
    weights: Collection[str],
    kv_cache: Collection[str],
    media: bool = False,
    change: str = "--kv-cache {}",
    ranks: float = math.inf,
) -> list[str]:
    """Of a model in some formats on several devices: what `fallbacks` says of these, then `model_notes`.

    **Arguments:** `ranks`: of the largest tensor-parallel group.
    """
    hosted = [spec.name for spec in specs if spec.node.topology == "pcie" and ranks > PAIR]
    links = [f"links are PCIe of the host, {HOST_LINKS}: {_some(hosted)}"] if hosted else []
    return [
        *fallbacks(specs, dict.fromkeys((*weights, *_other_formats(model)))),
        *links,
        *model_notes(model, weights, kv_cache, media, change=change),
    ]


def fallbacks(specs: Sequence[DeviceSpec], weights: Iterable[str]) -> list[str]:
    """Which of many devices multiply in another format than the one asked for: a sentence each way."""
    found: dict[str, list[str]] = {}
    for name in weights:
        own = FORMATS[name]
        for spec in specs:
            for compute in dict.fromkeys((own.compute, FORMATS[own.activations].compute)):
                stand_in = stand_in_of(spec, compute)
                if stand_in is not None:
                    found.setdefault(f"no {compute} units, multiplied in {stand_in}", []).append(spec.name)
            if unscaled(spec, name):
                scales = f"no units for the scales of {name}, counted at the {own.compute} rate"
                found.setdefault(scales, []).append(spec.name)
    return [f"{words}: {_some(list(dict.fromkeys(names)))}" for words, names in found.items()]


def _other_formats(model: ModelConfig) -> list[str]:
    """Formats of blocks that no format of the weights touches."""
    return [] if model.quantization is None else [each.weights for each in model.quantization.others]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= NAMED else f"{len(names)} devices"


def multiplied_in(spec: DeviceSpec, formats: Iterable[str]) -> list[str]:
    """Which arithmetic of some formats a device lacks and what stands in for it; where nothing does, the row is refused
    elsewhere."""
    computes = dict.fromkeys(FORMATS[name].compute for name in formats)
    found = {compute: stand_in_of(spec, compute) for compute in computes}
    return [
        f"no {compute} matrix units: multiplied in {stand_in}"
        for compute, stand_in in found.items()
        if stand_in not in (None, "nothing")
    ]


def without_scales(spec: DeviceSpec, name: str) -> list[str]:
    """That a device multiplies the elements of an MX format, but does not take the scales of its blocks."""
    rate = f"counted at its {FORMATS[name].compute} rate"
    return [f"no matrix units for the scales of {name}: {rate}"] if unscaled(spec, name) else []


def _stored_as(model: ModelConfig, weights: str) -> list[str]:
    """That the weights are in the checkpoint's own format, and how far its bytes are from those of the format; or that
    they are in the same one with groups of another size."""
    scheme = model.quantization
    if scheme is None:
        return []
    if scheme.weights != weights:
        own, asked = (8.0 * FORMATS[name].itemsize for name in (scheme.weights, weights))
        alike = scheme.weights.partition("_g")[0] == weights.partition("_g")[0]
        bits = f"{asked:.4g} bits a weight where {scheme.weights}, as the checkpoint stores them, has {own:.4g}"
        return [f"{weights} has {bits}: the groups that share a scale differ."] if alike else []
    bits, counted = float(bits_per_weight(scheme)), 8.0 * FORMATS[weights].itemsize
    close = abs(counted - bits) < UNSAID_SHARE * bits
    apart = "" if close else f"; its {bits:.3g} bits a weight are counted as {counted:.3g}"
    return [f"{weights} is how the checkpoint stores its weights ({scheme.method}){apart}."]


def _cached_as(model: ModelConfig, counted: Collection[str], change: str) -> list[str]:
    """That the checkpoint asks for another format of the KV cache than those that are counted."""
    asked = None if model.quantization is None else model.quantization.kv_cache
    if asked is None or asked in counted:
        return []
    used = " and ".join(dict.fromkeys(counted))
    return [f"The checkpoint asks for a KV cache in {asked}; {used} is counted: {change.format(asked)} changes that."]


def _left_out(model: ModelConfig, media: bool, speculative: bool) -> list[str]:
    """What is not done with the model, and which of its blocks no weight format touches."""
    notes = []
    if makes_tokens(model) and not media:
        kinds = " and ".join(dict.fromkeys(tower.kind for tower in model.encoders))
        working = f"--media-tokens of an estimate, {MEDIA} of a sweep, gives it work"
        notes.append(f"Prompts are text: the {kinds} encoder is in memory but idle. {working}.")
    if model.mtp_layers and not speculative:
        layers = "1 layer" if len(model.mtp_layers) == 1 else f"{len(model.mtp_layers)} layers"
        notes.append(f"Decoding is not speculative: {layers} for multi-token prediction neither loaded nor run.")
    extra = model.other_parameters + sum(layer.other_parameters for layer in model.layers)
    if extra > UNTIMED_SHARE * parameter_count(model):
        notes.append(
            f"{extra / 1e6:,.0f} M weights that no attention or feed-forward block has are in memory, untimed."
        )
    return [*notes, *_kept(model)]


def _kept(model: ModelConfig) -> list[str]:
    """Which blocks no weight format touches, and how the checkpoint stores them."""
    found: dict[str, set[str]] = {}
    for index, layer in enumerate(model.layers):
        recurrent = not isinstance(layer.mixer or layer.cross, Attention | Mla | CompressedAttention)
        for block, name in own_formats(model, index):
            found.setdefault(name, set()).add("recurrent" if block == "mixer" and recurrent else block)
    notes = []
    for name, blocks in found.items():
        words = " and ".join(WORDS[block] for block in WORDS if block in blocks)
        does = f"leaves {words} unquantized" if name == PLAIN else f"stores {words} in {name}"
        notes.append(f"The checkpoint {does} in some or all layers; so does this, in any format.")
    return notes
