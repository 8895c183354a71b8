"""`--speculate`, `--lora`, `--kv-offload`, `--power-cap`, `--wide-experts`: what an engine does beside plain steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from hwspecs.errors import InputError
from jaxperf.cli.option_settings import host_bandwidth, number_of, numbers_of, settings_of, word_of

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec
    from jaxperf.models.config import ModelConfig
    from jaxperf.serving.techniques.chosen import Techniques
    from jaxperf.serving.techniques.drafts import AbstractDraft
    from jaxperf.serving.techniques.kv_offload import OffloadedCache
    from jaxperf.serving.techniques.lora import Adapters
    from jaxperf.serving.techniques.power import PowerCap
    from jaxperf.serving.techniques.speculative import Speculation
    from jaxperf.serving.techniques.wide_experts import ExpertCopies

Speculate = Annotated[
    str | None,
    typer.Option(
        "--speculate",
        metavar="DRAFT:...",
        help="Speculative decoding: a draft model, mtp, eagle or medusa, then k=4,acceptance=.8,.7[,width=..][,tp=1].",
    ),
]
Lora = Annotated[
    str | None,
    typer.Option(
        "--lora",
        metavar="...",
        help="Adapters: n=64,rank=16[,loaded=n][,zipf=0][,targets=attention|all][,host=50GB/s].",
    ),
]
KvOffload = Annotated[
    str | None,
    typer.Option(
        "--kv-offload",
        metavar="...",
        help="Cache on the host: hit=.5[,from_host=1][,share=0][,hidden=yes|no][,host=50GB/s].",
    ),
]
PowerLimit = Annotated[
    str | None, typer.Option("--power-cap", metavar="WATTS", help="Power limit of a device, such as 400W.")
]
WideExperts = Annotated[
    str | None,
    typer.Option(
        "--wide-experts",
        metavar="...",
        help="With --ep: [batches=2][,copies=64][,skew=1.5].",
    ),
]
HEADS = ("mtp", "eagle", "medusa")
MOST_POSITIONS = 64
MOST_ADAPTERS = 100_000
OFFLOADED = {"hit": "0", "from_host": "1", "share": "0"}


class TechniqueOptions(NamedTuple):
    """The five options as they were given."""

    speculate: str | None
    lora: str | None
    kv_offload: str | None
    power_cap: str | None
    wide_experts: str | None


def techniques_of(
    model: ModelConfig, spec: DeviceSpec, ranks: int, expert_ranks: int, asked: TechniqueOptions
) -> Techniques | None:
    """The techniques of the options; None where none is given.

    **Arguments:** `ranks`: tensor-parallel ranks of the target, and of a draft that states none; `expert_ranks`: those
    over which its experts are spread.
    **Raises:** `InputError` naming the option, the key and what is allowed.
    """
    if all(text is None for text in asked):
        return None
    from jaxperf.serving.techniques.chosen import Techniques

    return Techniques(
        None if asked.speculate is None else _speculation(model, ranks, asked.speculate),
        None if asked.lora is None else _adapters(asked.lora),
        None if asked.kv_offload is None else _offload(asked.kv_offload),
        None if asked.power_cap is None else _cap(spec, asked.power_cap),
        *(False, None) if asked.wide_experts is None else _wide_experts(model, expert_ranks, asked.wide_experts),
    )


def _speculation(model: ModelConfig, ranks: int, text: str) -> Speculation:
    from jaxperf.serving.techniques.speculative import Speculation

    option = "--speculate"
    name, sign, rest = text.rpartition(":")
    if not sign or not name.strip():
        raise InputError(f"{option}: '{text}' must be DRAFT:k=4,acceptance=.8 with DRAFT a model, {', '.join(HEADS)}.")
    given = settings_of(option, rest, ("k", "acceptance", "width", "tp"))
    if "acceptance" not in given:
        raise InputError(f"{option}: acceptance is missing: the chance that each position's proposal is accepted.")
    if name.strip() in HEADS and "tp" in given:
        raise InputError(f"{option}: tp is for a draft model; {name.strip()} runs on the ranks of the target.")
    count = int(number_of(option, given, "k", str(len(given["acceptance"])), 1, MOST_POSITIONS, whole=True))
    acceptance = numbers_of(option, given, "acceptance", count, 0.0, 1.0)
    widths = numbers_of(option, given, "width", count, 1.0, 1e4, whole=True) if "width" in given else [1.0] * count
    draft = _draft(model, name.strip(), int(number_of(option, given, "tp", str(ranks), 1, 2**17, whole=True)))
    return Speculation(draft, acceptance, widths)


def _draft(model: ModelConfig, name: str, ranks: int) -> AbstractDraft:
    import dataclasses

    from jaxperf.io.huggingface import load_model
    from jaxperf.models.layers import transformer
    from jaxperf.serving.techniques.drafts import DraftHeads, DraftLayer, DraftModel

    if name == "medusa":
        return DraftHeads(model.hidden, model.vocabulary)
    if name not in HEADS:
        return DraftModel(transformer(load_model(name)), ranks)
    layers = model.mtp_layers if name == "mtp" else model.layers[-1:]
    if not layers:
        raise InputError(
            f"--speculate: {model.name} is described without layers for multi-token prediction; "
            "eagle takes a plain one."
        )
    return DraftLayer(transformer(dataclasses.replace(model, layers=layers[:1], mtp_layers=())))


def _adapters(text: str) -> Adapters:
    from jaxperf.serving.techniques.lora import Adapters, zipf_popularity

    option = "--lora"
    given = settings_of(option, text, ("n", "rank", "loaded", "zipf", "targets", "host"))
    count = int(number_of(option, given, "n", "1", 1, MOST_ADAPTERS, whole=True))
    return Adapters(
        zipf_popularity(count, number_of(option, given, "zipf", "0", 0.0, 10.0)),
        number_of(option, given, "rank", "16", 1, 4096, whole=True),
        number_of(option, given, "loaded", str(count), 0, count, whole=True),
        host_bandwidth(option, given),
        everywhere=word_of(option, given, "targets", ("attention", "all")) == "all",
    )


def _offload(text: str) -> OffloadedCache:
    from jaxperf.serving.techniques.kv_offload import OffloadedCache

    option = "--kv-offload"
    given = settings_of(option, text, ("hit", "from_host", "share", "hidden", "host"))
    hidden = word_of(option, given, "hidden", ("yes", "no")) == "yes"
    hits, from_host, share = (number_of(option, given, name, default, 0.0, 1.0) for name, default in OFFLOADED.items())
    return OffloadedCache(hits, from_host, share, host_bandwidth(option, given), hidden=hidden)


def _wide_experts(model: ModelConfig, ranks: int, text: str) -> tuple[bool, ExpertCopies | None]:
    """(two micro-batches, copies), None where neither copies nor a skew is given."""
    from jaxperf.serving.techniques.wide_experts import ExpertCopies, balanced_skew

    option = "--wide-experts"
    given = settings_of(option, text, ("batches", "copies", "skew"))
    halved = number_of(option, given, "batches", "1", 1, 2, whole=True) > 1
    if not {"copies", "skew"} & set(given):
        return halved, None
    experts = _experts(option, model)
    if ranks < 2:
        raise InputError(f"{option}: copies and skew are of ranks that hold experts; expert_parallel is {ranks}.")
    copies = int(number_of(option, given, "copies", "0", 0, experts, whole=True))
    below = copies - (experts + copies) % ranks
    if below != copies:
        near = " or ".join(str(count) for count in (below, below + ranks) if count > 0)
        raise InputError(
            f"{option}: {ranks} ranks do not share {experts} experts and {copies} copies; give {near} copies."
        )
    skew = number_of(option, given, "skew", "1", 1, ranks)
    even = balanced_skew(experts, ranks, copies, skew) if copies else skew
    return halved, ExpertCopies(copies, skew, even)


def _experts(option: str, model: ModelConfig) -> int:
    """Experts of every layer that has some. Raises `InputError` where none has, or layers differ."""
    from jaxperf.models.feedforward import Moe

    counts = {layer.ffn.experts for layer in model.layers if isinstance(layer.ffn, Moe)}
    if len(counts) != 1:
        found = f"layers of {', '.join(map(str, sorted(counts)))} experts" if counts else "no experts"
        raise InputError(f"{option}: copies and skew are for layers with the same experts; {model.name} has {found}.")
    return counts.pop()


def _cap(spec: DeviceSpec, text: str) -> PowerCap:
    import hwspecs
    from calibration.power.parameters import load_power
    from jaxperf.core.device import ASSUMED_IDLE_SHARE
    from jaxperf.serving.techniques.checks import check_cap
    from jaxperf.serving.techniques.power import PowerCap

    try:
        cap = PowerCap(load_power().law, hwspecs.parse_quantity(text, "W"))
        check_cap(cap, ASSUMED_IDLE_SHARE * spec.tdp.si, spec.tdp.si)
    except InputError as error:
        raise InputError(f"--power-cap: {error}") from None
    return cap
