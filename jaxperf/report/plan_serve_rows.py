"""A serving plan as rows and records, SI units, and a configuration in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxperf.report.text import layout_words
from jaxperf.report.why import why_more
from jaxperf.serving.plan.engines import Candidate
from jaxperf.serving.plan.points import LATENCIES
from jaxperf.serving.plan.request import Answer, Choice, Refused, Request
from jaxperf.serving.plan.space import Configuration

# Device, output tokens a second and number of devices -> what a million tokens take (`serving.unit_costs`).
Costs = Callable[[str, float, float], dict[str, float]]
METRICS = ("rate", "tokens_per_second", "tokens_per_second_per_device", "tokens_per_second_per_user")
IN_STAGES = (
    "batches of a pipeline are taken to be formed as requests come, in the simulations too; vLLM's own queue keeps all "
    "that runs in one batch until a step's budget is exceeded, and serves less of short prompts: see `simulate` with "
    "pipeline_batches vllm_queue"
)
ONE_BY_ONE = (
    "each step is formed after the one before it, as before vLLM 0.14; with --async-scheduling, its default since, a "
    "first token waits for about one step more"
)
NOT_IN_STAGES = "steps of a pipeline are not formed ahead: --async-scheduling is of engines of one stage"
MEANS_AND_LEVELS = (*LATENCIES, *(f"{name}_at" for name in LATENCIES))


def configuration_words(answer: Answer, configuration: Configuration, row: Mapping[str, float] | None = None) -> str:
    """`2 x TP4, fp8` or `2 x TP1 for prompts, 1 x TP4 for outputs, fp8`; without a `row` the layouts alone."""
    engine = answer.candidates[configuration.engine]
    outputs = _times(row, "replicas", engine)
    if configuration.prefill is None:
        return f"{outputs}, {engine.weights}"
    prompts = _times(row, "prefillers", answer.candidates[configuration.prefill])
    return f"{prompts} for prompts, {outputs} for outputs, {engine.weights}"


def _times(row: Mapping[str, float] | None, name: str, candidate: Candidate) -> str:
    words = layout_words(dict(candidate.layout))
    return words if row is None else f"{int(row[name])} x {words}"


def scheduling_notes(request: Request, answers: Sequence[Answer]) -> list[str]:
    """When steps are formed, and how the batches of a pipeline are where the first of an answer has one; in sentences,
    none where nothing is answered."""
    best = [(answer.candidates, answer.choices[0].configuration) for answer in answers if answer.choices]
    engines = [candidates[one] for candidates, own in best for one in (own.engine, own.prefill) if one is not None]
    stages = {engine.layout["pipeline_parallel"] for engine in engines}
    ahead = [] if request.ahead or not stages else [ONE_BY_ONE]
    return ahead if max(stages, default=1) == 1 else [*ahead, *[NOT_IN_STAGES] * request.ahead, IN_STAGES]


def plan_rows(request: Request, answers: Sequence[Answer], costs: Costs) -> list[dict[str, Any]]:
    """One row a configuration: those that keep the limits ranked, then the others with the reason."""
    rows = []
    for answer in answers:
        rows += [
            _choice_row(request, answer, rank, choice, costs) for rank, choice in enumerate(answer.choices, start=1)
        ]
        rows += [_refused_row(answer, refused) for refused in answer.refused]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in names} for row in rows]


def _choice_row(request: Request, answer: Answer, rank: int, choice: Choice, costs: Costs) -> dict[str, Any]:
    row, best = choice.row, answer.choices[0]
    levels = {name: name.replace("_at", f"_{request.at}") for name in MEANS_AND_LEVELS}
    found: dict[str, Any] = _names(answer, choice.configuration) | {"rank": rank, "reason": ""}
    found |= {name: int(row[name]) for name in ("devices", "replicas", "prefillers", "slots", "budget")}
    found |= {name: row[name] for name in METRICS}
    found |= costs(answer.device, row["tokens_per_second"], row["devices"])
    for name, said in levels.items():
        found |= {said: row[name], f"{said}_lower": choice.lower[name], f"{said}_upper": choice.upper[name]}
        found |= {f"{said}_simulated": choice.simulated.get(name)}
    found |= {"batch": row["batch"], "utilization": row["utilization"], "bound": choice.bound}
    found |= {f"device_seconds_{name}": value for name, value in choice.terms.items()}
    return found | {"why": "" if choice is best else why_more(best.terms, choice.terms)}


def _refused_row(answer: Answer, refused: Refused) -> dict[str, Any]:
    return _names(answer, refused.configuration) | {"reason": refused.why}


def _names(answer: Answer, configuration: Configuration) -> dict[str, Any]:
    engine = answer.candidates[configuration.engine]
    found = {"device": answer.device, "mode": configuration.mode, "weights": engine.weights, **engine.layout}
    prefill = configuration.prefill
    layout = {} if prefill is None else answer.candidates[prefill].layout
    return found | {f"prefill_{name}": layout.get(name) for name in engine.layout}


def plan_record(request: Request, answers: Sequence[Answer]) -> dict[str, Any]:
    """What the rows rest on, and the front of each device."""
    return {
        "model": request.model.name,
        "prompt": request.prompt,
        "output": request.output,
        "spread": request.spread,
        "arrival_cv": request.arrival_cv,
        "async_scheduling": request.ahead,
        "slo": dict(request.slo),
        "at": request.at,
        "rate": request.rate,
        "kv_cache": request.kv_cache,
        "engine": "vLLM v1: one budget of tokens a step, prompts in chunks beside the decodes",
        "searches": [_search_record(answer) for answer in answers],
    }


def _search_record(answer: Answer) -> dict[str, Any]:
    return {
        "device": answer.device,
        "devices": answer.devices,
        "points": answer.tried,
        "interrupted": answer.interrupted,
        "configurations": len(answer.configurations),
        "nearest": None if answer.nearest is None else {"point": dict(answer.nearest[0]), "factor": answer.nearest[1]},
        "front": front_rows(answer),
    }


def front_rows(answer: Answer) -> list[dict[str, Any]]:
    """The points that no other beats in both tokens/s/device and tokens/s/user, most for the user first."""
    front = answer.front
    rows = []
    for place in range(len(front.get("rate", ()))):
        row = {name: values[place].item() for name, values in front.items()}
        configuration = answer.configurations[int(row.pop("configuration"))]
        rows.append({"configuration": configuration_words(answer, configuration, row), **row})
    return rows
