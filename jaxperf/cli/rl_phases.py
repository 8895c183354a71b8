"""What `jaxperf rl` asks of the other models for one iteration, and how their answers are put together."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from hwspecs.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from jaxperf.api import Step
    from jaxperf.cli.engines import Served
    from jaxperf.cli.rl_training import Learned, Steps
    from jaxperf.io.rl_iteration import Iteration
    from jaxperf.models.config import ModelConfig
    from jaxperf.rl.answers import Answers
    from jaxperf.rl.generation import Generated
    from jaxperf.rl.iteration import Phases
    from jaxperf.serving.simulator.settings import Scheduler

READS_ALL = ("actor", "reference")  # roles whose every token has a probability, so all positions have logits
LEFT_OUT = "not counted: rewards without a model, padding, what data ranks wait for one another's answers"


class Kept(NamedTuple):
    """Bytes on one device that trains: `states` of models that learn, `weights` of those that only score."""

    states: float
    weights: float


class Engine(NamedTuple):
    """Who generates: the scheduler, how many replicas of `parts` devices, and sentences on it."""

    scheduler: Scheduler
    replicas: int
    parts: int


def answer_of(asked: Iteration, where: str, served: Served) -> dict[str, Any]:
    """The record of an iteration: its time with an interval, and of every phase; `reason` where it cannot run.

    **Raises:** `InputError` for what is wrong in the file.
    """
    from jaxperf.cli.rl_training import learned, steps_of
    from jaxperf.rl.answers import draw_answers

    lengths = (asked.prompt, asked.output, asked.longest_output, asked.seed)
    answers = draw_answers(asked.prompts, asked.samples, *lengths, where)
    _check_context(asked, answers, served, where)
    steps = steps_of(asked, answers, where)
    models = learned(asked, steps, where, [str(folder) for folder in served.folders])
    kept = _kept(asked, models, steps, served)
    record = _described(asked, answers, steps, models, kept)
    reasons = [f"{role}: {each.reason}" for role, each in models.items() if each.reason]
    reasons += [] if reasons else _too_much(asked, models, kept, served)
    if reasons:
        return {**record, "reason": "; ".join(reasons)}
    engine = _engine(asked, where, served, kept, answers.lengths)
    return {**record, **_timed(asked, answers, steps, models, kept, engine, served)}


def _timed(
    asked: Iteration,
    answers: Answers,
    steps: Steps,
    models: Mapping[str, Learned],
    kept: Kept,
    engine: Engine,
    served: Served,
) -> dict[str, Any]:
    """Times of an iteration that runs, at the slowest and the fastest kernels too."""
    from jaxperf.cli.kernel_intervals import at_ends
    from jaxperf.core.numerics import as_float
    from jaxperf.rl.iteration import Phases, iteration_time

    made, alike = (_generated(asked, each, engine, served) for each in (answers, answers.equalized))

    def phases(own: Served, made: Generated, train: str) -> Phases:
        weights, swap = _moved(asked, engine, steps, kept, own)
        score = sum(_scored(asked, role, steps, own) for role in asked.scored_by)
        return Phases(made.seconds, score, sum(getattr(each, train) for each in models.values()), weights, swap)

    nominal = phases(served, made, "seconds")
    slow, fast = at_ends(lambda own: (own, _generated(asked, answers, engine, own)), served)
    ends = [phases(*fast, "lower"), phases(*slow, "upper")]
    total, lower, upper = (float(iteration_time(each, as_float(asked.ahead))) for each in (nominal, *ends))
    tokens = int(answers.output.sum())
    return {
        "iteration_s": total,
        "iteration_lower_s": min(lower, total),
        "iteration_upper_s": max(upper, total),
        "phases": {name: _spanned(name, nominal, ends) for name in vars(nominal)},
        "generation_share": float(nominal.generate) / total,
        "answers_per_second": len(answers.output) / total,
        "output_tokens_per_second": tokens / total,
        "output_tokens_per_second_per_device": tokens / total / asked.devices,
        "straggler_penalty": made.seconds / alike.seconds - 1.0,
        "tail_share": 1.0 - made.most / made.seconds,
        "replicas_idle": made.idle,
        "evictions": made.evictions,
        "replicas": engine.replicas,
        "num_blocks": engine.scheduler.numbers["blocks"],
        "reason": "",
        "notes": [*engine.scheduler.notes, *_notes(models), *served.notes(None, [engine.scheduler]), LEFT_OUT],
    }


def _spanned(name: str, nominal: Phases, ends: list[Phases]) -> dict[str, float]:
    values = sorted(float(getattr(each, name)) for each in (nominal, *ends))
    return {"seconds": float(getattr(nominal, name)), "lower": values[0], "upper": values[-1]}


def _described(
    asked: Iteration, answers: Answers, steps: Steps, models: Mapping[str, Learned], kept: Kept
) -> dict[str, Any]:
    """What is asked, and what is known of it before anything is timed."""
    return {
        "device": asked.device,
        "devices": asked.devices,
        "generate_devices": asked.generating_devices,
        "train_devices": asked.training_devices,
        "models": asked.models.named,
        "answers": len(answers.output),
        "mean_output": float(answers.output.mean()),
        "longest_output": int(answers.output.max()),
        "cut_answers": answers.cut,
        "step_sequence": steps.sequence,
        "step_sequences": steps.global_batch,
        "steps": steps.count,
        "training": {role: dataclasses.asdict(each) for role, each in models.items()},
        "kept_bytes": kept.states + kept.weights,
    }


def _notes(models: Mapping[str, Learned]) -> list[str]:
    return list(dict.fromkeys(note for each in models.values() for note in each.notes))


def _check_context(asked: Iteration, answers: Answers, served: Served, where: str) -> None:
    most, longest = (
        served.config(asked.models.actor).max_context,
        answers.lengths.max(),
    )
    if most is not None and longest > most:
        raise InputError(
            f"{where}: an answer has {longest:,} tokens with its prompt, more than the {most:,} of the context of "
            f"{asked.models.actor}; give longest_output."
        )


def _engine(asked: Iteration, where: str, served: Served, kept: Kept, tokens: np.ndarray) -> Engine:
    """Replicas on all devices that generate, with what of the memory training leaves them.

    **Raises:** `InputError` for settings that are wrong, and where no memory is left for a cache.
    """
    from jaxperf.cli.engines import scheduler_of
    from jaxperf.serving.simulator.cells import utilization_of
    from jaxperf.serving.simulator.settings import in_our_words

    place = f"{where}: generate"
    data = {**in_our_words(asked.generate, place), "model": asked.models.actor, "device": asked.device}
    share = utilization_of(data, place)
    if not asked.generate_devices and not asked.offload:
        capacity = served.calibration(asked.device).spec.memory_capacity.si
        share -= (kept.states + kept.weights) / capacity
        if share <= 0.0:
            stays = (kept.states + kept.weights) / 1e9
            raise InputError(
                f"{place}: of {capacity / 1e9:.0f} GB of memory {stays:.1f} stay with what is trained and scores, "
                "which leaves none to generate in; offload: true has it on the host meanwhile."
            )
    scheduler = scheduler_of({**data, "gpu_memory_utilization": share}, served, place, tokens)
    parts = scheduler.tensor_parallel * scheduler.pipeline_parallel
    if asked.generating_devices % parts:
        raise InputError(f"{place}: {asked.generating_devices} devices are no multiple of tp x pp = {parts}.")
    return Engine(scheduler, asked.generating_devices // parts, parts)


def _generated(asked: Iteration, answers: Answers, engine: Engine, served: Served) -> Generated:
    from jaxperf.rl.generation import generate
    from jaxperf.serving.simulator.composed import composed_times

    config, (_, device) = served.config(asked.models.actor), served.calibrated(asked.device)
    formats = (served.weights, served.kv_cache)
    times = composed_times(config, device, engine.scheduler, answers, *formats, asked.samples > 1, served.level)
    return generate(engine.scheduler, times, answers, engine.replicas)


def _scored(asked: Iteration, role: str, steps: Steps, served: Served) -> float:
    """All answers read once by the model of a role, in the layout of training [s]: in the fewest passes of at most
    `score_tokens`, which have as many sequences each, as verl balances its dynamic micro-batches."""
    from jaxperf.core.numerics import as_float
    from jaxperf.models.step import add_up
    from jaxperf.rl.phases import gathered_beside, scoring_time

    config, (_, device) = served.config(asked.models.named[role]), served.calibrated(asked.device)
    most = max(1, asked.score_tokens // steps.sequence)
    sequences = steps.global_batch * asked.mini_batches // steps.data  # a replica's, whole
    passes = -(-sequences // most)
    layout = {"tensor_parallel": steps.tensor, "pipeline_parallel": steps.pipeline}
    outputs = {"outputs": steps.sequence} if role in READS_ALL else {}
    given = {"batch": sequences / passes, "prompt": steps.sequence, "weights": steps.dtype, "level": served.level}
    cost = _scoring_step(config)(device, **given, **layout, **outputs)
    through = (add_up(cost.kernels, lambda each: each.time) + cost.host) / steps.context
    if steps.split_weights:
        weights = _weight_bytes(asked, role, steps, served) / (steps.tensor * steps.pipeline)
        ranks = as_float(steps.data * steps.context), as_float(steps.tensor)
        through = gathered_beside(through, device.device, as_float(weights), *ranks)
    return float(scoring_time(through, through / steps.pipeline, as_float(passes)))


@functools.lru_cache(maxsize=8)
def _scoring_step(config: ModelConfig) -> Step:
    """One for all roles of one shape, and all ends of the interval, which is then traced once."""
    from jaxperf.api import prefill_step

    return prefill_step(config)


def _weight_bytes(asked: Iteration, role: str, steps: Steps, served: Served) -> float:
    """The weights of the model of a role, whole [byte]."""
    from jaxperf.models.parameters import parameter_count

    return parameter_count(served.config(asked.models.named[role])) * steps.weight_bytes


def _kept(asked: Iteration, models: Mapping[str, Learned], steps: Steps, served: Served) -> Kept:
    """What lies on a device that trains from one step to the next."""
    scoring = [role for role in asked.scored_by if role not in models]
    weights = sum(_weight_bytes(asked, role, steps, served) for role in scoring)
    return Kept(sum(each.states for each in models.values()), weights / steps.weight_parts)


def _too_much(asked: Iteration, models: Mapping[str, Learned], kept: Kept, served: Served) -> list[str]:
    """Why no step of training has room, beside what others keep; with `offload` they keep it on the host."""
    capacity = served.calibration(asked.device).spec.memory_capacity.si
    found = []
    for role, each in models.items():
        beside = 0.0 if asked.offload else kept.states + kept.weights - each.states
        if each.memory + beside > capacity:
            words = f"a step of the {role} takes {each.memory / 1e9:.1f} GB at the longest answer"
            others = f" beside {beside / 1e9:.1f} GB of other models" if beside else ""
            found.append(f"{words}{others}, of {capacity / 1e9:.0f} GB of memory")
    return found


def _moved(asked: Iteration, engine: Engine, steps: Steps, kept: Kept, served: Served) -> tuple[float, float]:
    """Weights to who generates, and states to the host and back [s]."""
    from jaxperf.core.numerics import as_float
    from jaxperf.rl.phases import gathering_time, sending_time

    device = served.calibrated(asked.device)[1].device
    weights, parts = as_float(_weight_bytes(asked, "actor", steps, served)), as_float(engine.parts)
    if asked.generate_devices:
        moved = sending_time(device, weights, parts, as_float(engine.replicas), as_float(asked.devices))
    else:
        moved = gathering_time(device, weights, as_float(steps.weight_parts), parts)
    # States go out and come back; weights that nobody changes only come.
    swapped = (2.0 * kept.states + kept.weights) / asked.host_bandwidth if asked.offload else 0.0
    return float(moved), swapped
