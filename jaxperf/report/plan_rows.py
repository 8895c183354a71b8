"""A training plan as rows and records, SI units, and a layout in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxperf.report.why import why_more
from jaxperf.training.layout import CONTEXT_METHODS, RECOMPUTE, SCHEDULES
from jaxperf.training.layout_checks import SENTENCES
from jaxperf.training.search.plan import Answer, Choice, Request
from jaxperf.training.search.savers import recomputed_modules, saver_words
from jaxperf.training.search.space import SPLIT_FIELDS, VARIANT_FIELDS
from jaxperf.training.search.terms import MEMORY_TERMS, TERMS, terms
from jaxperf.training.stochastic.cluster import RANGES

SHORT = {"tensor": "TP", "context": "CP", "pipeline": "PP", "data": "DP", "expert": "EP"}
METHOD_WORDS = {"ring": "ring attention", "all-gather": "gathered keys", "ulysses": "Ulysses"}


def layout_words(layout: Mapping[str, float]) -> str:
    """`TP8 PP4 DP16, micro-batch 2, ZeRO-1, 1f1b`: only what is not trivial."""
    groups = [f"{word}{int(layout[name])}" for name, word in SHORT.items() if layout[name] > 1.0]
    words = [" ".join(groups) or "one device", f"micro-batch {int(layout['microbatch'])}"]
    if layout["zero"] > 0.0:
        shard = f" in shards of {int(layout['shard_group'])}" if layout["shard_group"] > 0.0 else ""
        words.append(f"ZeRO-{int(layout['zero'])}{shard}")
    if layout["pipeline"] > 1.0:
        chunks = f" x{int(layout['interleave'])}" if layout["interleave"] > 1.0 else ""
        words.append(SCHEDULES[int(layout["schedule"])] + chunks)
    words += _savers(layout)
    if layout["tensor"] > 1.0 and layout["sequence_parallel"] > 0.0:
        words.append("sequence parallel")
    if layout["context"] > 1.0:
        words.append(METHOD_WORDS[CONTEXT_METHODS[int(layout["context_method"])]])
    return ", ".join(words)


def _savers(layout: Mapping[str, float]) -> list[str]:
    words = saver_words(layout)
    plain = layout["recompute"] > 0.0 and not any(word.startswith("recompute") for word in words)
    return [f"{RECOMPUTE[int(layout['recompute'])]} recompute", *words] if plain else words


def saved_by(layout: Mapping[str, float]) -> str:
    """What saves memory in a layout, beside sharding."""
    return " and ".join(_savers(layout)) or "nothing"


def other_savers(answer: Answer) -> dict[str, float] | None:
    """Layout and metrics of the best layout tried that saves memory in another way than the first; None if none is."""
    saving, first = answer.found.saving, answer.choices[0].layout
    rows = [{name: values[row].item() for name, values in saving.items()} for row in range(len(saving.get("time", ())))]
    others = [row for row in rows if saved_by(row) != saved_by(first)]
    return min(others, key=lambda row: row["time"], default=None)


def named(layout: Mapping[str, float]) -> dict[str, int | float | str]:
    """A layout with the names of its schedule, recomputation, its modules and context method, and what is offloaded."""
    return {
        **{name: int(layout[name]) for name in (*SPLIT_FIELDS, *VARIANT_FIELDS)},
        "schedule": SCHEDULES[int(layout["schedule"])],
        "recompute": RECOMPUTE[int(layout["recompute"])],
        "context_method": CONTEXT_METHODS[int(layout["context_method"])],
        "recompute_modules": " ".join(recomputed_modules(layout)),
        "offload_optimizer": layout["offload_optimizer"],
        "offload_activations": layout["offload"],
    }


def plan_rows(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """One row a layout, SI units."""
    return [
        _plan_row(answer, rank, choice, answer.choices[0])
        for answer in answers
        for rank, choice in enumerate(answer.choices, start=1)
    ]


def _plan_row(answer: Answer, rank: int, choice: Choice, best: Choice) -> dict[str, Any]:
    look, metrics = choice.outlook, choice.metrics
    return {
        "device": answer.device,
        "devices": answer.devices,
        "rank": rank,
        **named(choice.layout),
        "time": metrics["time"],
        "time_lower": choice.lower,
        "time_upper": choice.upper,
        "time_with_variation": float(look.median),
        "time_with_variation_lower": float(look.lower),
        "time_with_variation_upper": float(look.upper),
        "tokens_per_second": metrics["tokens_per_second"],
        "mfu": metrics["mfu"],
        "hfu": metrics["hfu"],
        "bubble_fraction": metrics["bubble_fraction"],
        "energy": metrics["energy"],
        "energy_at_tdp": choice.tdp_energy,
        "memory": metrics["memory.total"],
        "memory_host": metrics["memory.host"],
        **{name.replace(".", "_"): metrics[name] for name in (*MEMORY_TERMS, *TERMS)},
        "goodput": float(look.kept.share),
        "mtbf": float(look.mtbf),
        "checkpoint_interval": float(look.kept.interval),
        "spares": int(look.spares),
        "device_hours_per_step": choice.device_hours,
        "cost_per_step": choice.cost,
        "why": "" if choice is best else why_slower(best, choice),
    }


def why_slower(best: Choice, choice: Choice) -> str:
    """What makes a choice's step longer than the best one's, in shares of the latter."""
    return why_more(terms(best.metrics), terms(choice.metrics)) or "the same time, more memory"


def plan_record(request: Request, answers: Sequence[Answer]) -> dict[str, Any]:
    """What the rows rest on."""
    return {
        "model": request.name,
        "parameters": float(request.model.parameters),
        "active_parameters": float(request.model.active_parameters),
        "sequence": request.sequence,
        "global_batch": request.global_batch,
        "dtype": request.dtype,
        "lora_rank": request.lora_rank,
        "mtp": float(request.model.mtp),
        "recompute_modules": list(request.modules),
        "offload_optimizer": request.offload,
        "host_memory": request.host_memory or None,
        "savers": list(request.savers),
        "objective": request.objective,
        "variation": variation_sizes(request),
        "notes": list(request.notes),
        "searches": [_search_record(answer) for answer in answers],
    }


def variation_sizes(request: Request) -> dict[str, float]:
    """The assumed coefficients of variation."""
    return {name: float(getattr(request.variation, name)) for name in RANGES}


def _search_record(answer: Answer) -> dict[str, Any]:
    found = answer.found
    return {
        "device": answer.device,
        "devices": answer.devices,
        "efficiencies": answer.tier,
        "splits": found.splits,
        "layouts_tried": found.tried,
        "layouts_feasible": found.feasible,
        "infeasible": {SENTENCES[reason]: count for reason, count in found.reasons.most_common()},
        "least_memory": found.least_memory,
        "savers_tried": list(found.savers),
        "feasible_from_devices": answer.feasible_from,
        "interrupted": found.interrupted,
        "front": front_rows(answer),
    }


def front_rows(answer: Answer) -> list[dict[str, Any]]:
    """The layouts that no other beats in both time and memory, fastest first."""
    front = answer.found.front
    order = front["time"].argsort() if front else []
    rows = [{name: front[name][index].item() for name in front} for index in order]
    return [named(row) | {name: row[name] for name in ("time", "memory.total")} for row in rows]
