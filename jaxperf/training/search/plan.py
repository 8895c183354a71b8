"""A plan: the best layouts of each device and size, with their interval, spread, goodput and cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import jax
import numpy as np

import hwspecs
from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.compiler_options import STRAIGHT, UNOPTIMIZED
from jaxperf.core.device import Device, device_from_spec
from jaxperf.core.numerics import Scalar, as_float, plain_number
from jaxperf.core.sustained import CalibratedDevice
from jaxperf.models.checks import check_count
from jaxperf.models.config import ModelConfig, check_model
from jaxperf.training.checkpoint import save_time
from jaxperf.training.failures import HOUR, Failures, assumed_failures
from jaxperf.training.layout import MODULES, Layout, module_fields, training_layout
from jaxperf.training.layout_checks import TrainingReason
from jaxperf.training.model import TrainingModel
from jaxperf.training.model_build import training_model, training_notes
from jaxperf.training.results import interval_ends
from jaxperf.training.search.layouts import OBJECTIVES, PASSED_ON, Found, Progress, evaluate, search_layouts
from jaxperf.training.search.rates import Rates, assumed_rates
from jaxperf.training.search.savers import SAVERS, deepened
from jaxperf.training.search.space import Columns, Space
from jaxperf.training.search.terms import METRICS
from jaxperf.training.stochastic.cluster import Variation, assumed_variation
from jaxperf.training.stochastic.step import Outlook, outlook, synchronization

STORE_BANDWIDTH = 2e12  # byte/s a cluster's store sustains: that of Llama 3's (arXiv:2407.21783), recalled
SAVE_PAUSE = 1.0  # of every checkpoint, whatever its size; assumed [s]
LARGEST = 2**20  # devices up to which a plan that does not fit looks for a size that does


def check_objective(what: str, name: str) -> None:
    """Raises `InputError` for what is no objective; `what`: how the caller was told it."""
    if name not in OBJECTIVES:
        allowed = ", ".join(OBJECTIVES)
        raise InputError(f"{what}: unknown '{name}'; allowed: {allowed}.{did_you_mean(name, OBJECTIVES)}")


@dataclass(frozen=True)
class Request:
    """What is asked: a model in `dtype`, `global_batch` sequences of `sequence` tokens a step, the best `top` layouts
    by `objective`; `prices` of a device-hour by device name; `variation` of the step, but for its `static` part, which
    is that of the efficiencies a plan takes; `modules` that selective recomputation computes again; `offload`: share of
    the parameters that the host updates, of whose memory a device may fill `host_memory`, 0 for any [byte]; `savers`
    of memory that are tried where no layout fits without, or `save_always`;
    `lora_rank` of the adapters that alone learn, 0 where the model does; `passed_on`: micro-batches go on to other
    devices, which wait for the first of them; `behind`: sequences that those devices which follow hold at most;
    `max_context`: the longest sequence that the model is made for, if it says; `remarks`: what a step is not told
    of the model."""

    name: str
    model: TrainingModel
    global_batch: int
    sequence: int
    dtype: str = "bf16"
    objective: str = "time"
    top: int = 5
    space: Space = field(default_factory=Space)
    prices: Mapping[str, float] = field(default_factory=dict)
    variation: Variation = field(default_factory=assumed_variation)
    failures: Failures = field(default_factory=assumed_failures)
    store_bandwidth: float = STORE_BANDWIDTH
    save_pause: float = SAVE_PAUSE
    modules: tuple[str, ...] = MODULES[:1]
    offload: float = 0.0
    host_memory: float = 0.0
    savers: Sequence[str] = tuple(SAVERS)
    save_always: bool = False
    lora_rank: int = 0
    passed_on: bool = False
    behind: float = 0.0
    max_context: int | None = None
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_objective("objective", self.objective)
        if self.lora_rank and self.lora_rank > (width := int(self.model.hidden)):
            raise InputError(f"--lora: a rank of {self.lora_rank:,} is above {self.name}'s width of {width:,}.")

    @property
    def notes(self) -> tuple[str, ...]:
        """What is unusual about the question."""
        told = tuple(f"{remark}." for remark in self.remarks)
        if self.max_context is None or self.sequence <= self.max_context:
            return told
        long = f"sequences of {self.sequence:,} tokens are longer than the {self.max_context:,} of {self.name}."
        return (long, *told)

    def layout(self, devices: int) -> Layout:
        """What the search does not vary; a token goes to a rank once for all its experts there."""
        count, batch, sequence = float(devices), float(self.global_batch), float(self.sequence)
        return training_layout(
            self.dtype,
            devices=count,
            global_batch=batch,
            sequence=sequence,
            behind=self.behind,
            deduplicate=1.0,
            offload_optimizer=self.offload,
            host_memory=self.host_memory,
            **module_fields(self.modules),
            lora_rank=float(self.lora_rank),
            frozen=float(self.lora_rank > 0),
        )

    def learned_parameters(self) -> Scalar:
        """Parameters that learn, and are saved: the adapters of LoRA, or all of the model [1]."""
        if not self.lora_rank:
            return self.model.parameters
        adapters = self.model.dense_layer_adapters + self.model.expert_layer_adapters
        return self.model.layers * self.lora_rank * adapters


@dataclass(frozen=True)
class Choice:
    """One layout: its fields, the metrics of its step, the interval of the step time [s], and what of it is chance;
    `device_hours` a step, lost time included, and their `cost`; `tdp_energy`: of all devices at their TDP [J]."""

    layout: Mapping[str, float]
    metrics: Mapping[str, float]
    lower: float
    upper: float
    outlook: Outlook
    device_hours: float
    tdp_energy: float
    cost: float | None


@dataclass(frozen=True)
class Answer:
    """The plan for one device and size; `choices` best first, empty where nothing is feasible; then `feasible_from`
    says from how many devices something is, if at all. `capacity` of a device [byte]; `tier` of the efficiencies;
    devices of a `node`."""

    device: str
    devices: int
    found: Found
    choices: Sequence[Choice]
    capacity: float
    tier: str
    feasible_from: int | None = None
    node: int = 1


def plan(
    request: Request, device_name: str, device: Device, devices: int, rates: Rates, progress: Progress | None = None
) -> Answer:
    """Search one size, and look at its best layouts closely."""
    spread = rates.nominal.rank_spread
    request = dataclasses.replace(request, variation=dataclasses.replace(request.variation, static=spread))
    tier = f"{rates.tier}; ranks spread by {float(spread):.1%}"
    base = request.layout(devices)
    found = search_request(request, device, rates, base, devices, progress)
    capacity = float(device.memory_capacity)
    if not len(found):
        larger = None if found.interrupted else next_feasible_size(request, device, devices, rates)
        return Answer(device_name, devices, found, (), capacity, tier, larger)
    count = min(request.top, len(found))
    best = {name: values[:count] for name, values in found.layouts.items()}
    ends = _ends(request, best, device, rates, base, found.metrics["time"][:count], found.metrics["mfu"][:count])
    rows = [_row(found.layouts, index) for index in range(count)]
    choices = [
        _choice(request, device_name, device, base, rows[index], _row(found.metrics, index), *ends[index])
        for index in range(count)
    ]
    if rates.host and any(choice.layout["offload"] + choice.layout["offload_optimizer"] > 0.0 for choice in choices):
        tier = f"{tier}; {rates.host}"
    return Answer(device_name, devices, found, choices, capacity, tier, node=int(device.node_size))


def search_request(
    request: Request, device: Device, rates: Rates, base: Layout, devices: int, progress: Progress | None = None
) -> Found:
    """All layouts; with what saves memory where it is asked for, or where nothing fits without."""
    look = partial(
        search_layouts,
        request.model,
        device,
        rates.nominal,
        base,
        devices,
        objective=PASSED_ON if request.passed_on and request.objective != "memory" else request.objective,
        space=request.space,
        top=request.top,
        progress=progress,
    )
    found = look(savers=request.savers if request.save_always else ())
    saves = TrainingReason.MEMORY in found.reasons and not request.save_always and len(request.savers) > 0
    return look(savers=request.savers) if saves and not len(found) and not found.interrupted else found


def plan_train(
    model: ModelConfig,
    device: Device | str,
    devices: int,
    *,
    global_batch: int,
    sequence: int = 4096,
    dtype: str = "bf16",
    objective: str = "time",
    top: int = 5,
) -> Answer:
    """The best training layouts of a model on `devices` devices, of all there are: `answer.choices`, best first.

    **Arguments:** `device`: a `Device` or its name; `global_batch` sequences of `sequence` tokens a step; `objective`:
    "time", "cost" or "memory". Efficiencies are the assumed ones, where the command `plan train` takes those fitted to
    measured steps (docs/plan-train.md has how to plan with them).
    **Raises:** `InputError` for an unknown name, or a number below one.
    """
    check_model(model)
    stated = {"devices": devices, "global_batch": global_batch, "sequence": sequence, "top": top}
    devices, global_batch, sequence, top = (check_count(what, plain_number(each)) for what, each in stated.items())
    if not isinstance(device, str | Device | CalibratedDevice):
        raise InputError(f"A device is {device!r}; give its name or a device.")
    asked = (model.name, training_model(model), global_batch, sequence, dtype, objective, top)
    request = Request(*asked, remarks=training_notes(model))
    if not isinstance(device, str):
        return plan(request, "device", device, devices, assumed_rates())
    spec = hwspecs.load(device)
    return plan(request, device, device_from_spec(spec), devices, assumed_rates(spec))


def next_feasible_size(request: Request, device: Device, devices: int, rates: Rates) -> int | None:
    """The least doubling of the devices with a feasible layout, with what may save memory, None up to `LARGEST`."""
    size = 2 * devices
    while size <= LARGEST:
        least = deepened(request.layout(size), request.savers)
        if len(search_layouts(request.model, device, rates.nominal, least, size, space=FRUGAL)):
            return size
        size *= 2
    return None


FRUGAL = Space(microbatches=(1,), interleaves=(2,), schedules=("1f1b",), recomputes=("full",))


def _ends(
    request: Request, layouts: Columns, device: Device, rates: Rates, base: Layout, times: np.ndarray, mfu: np.ndarray
) -> list[tuple[float, float]]:
    """(shortest, longest) step time of each layout by what the efficiencies leave open [s]."""
    if rates.slow is None or rates.fast is None:
        shortest, longest = (
            np.asarray(each) for each in interval_ends(as_float(mfu), as_float(np.exp(rates.width or 0.0)))
        )
        return list(zip((shortest * times).tolist(), (longest * times).tolist(), strict=True))
    fast, slow = (
        evaluate(request.model, layouts, device, each, base)["unchecked_time"] for each in (rates.fast, rates.slow)
    )
    return list(zip(fast.tolist(), slow.tolist(), strict=True))


# A few best layouts of each size are looked at: 36 ms each instead of 18, but half the 10 s of compilation.
_look = jax.jit(outlook, compiler_options=UNOPTIMIZED | STRAIGHT)


def _choice(
    request: Request,
    name: str,
    device: Device,
    base: Layout,
    layout: dict[str, float],
    metrics: dict[str, float],
    lower: float,
    upper: float,
) -> Choice:
    whole = dataclasses.replace(base, **layout)
    step = synchronization(request.model.layers, whole, {name: as_float(value) for name, value in metrics.items()})
    states = request.learned_parameters() * whole.optimizer_bytes
    save = save_time(states, as_float(request.store_bandwidth), as_float(request.save_pause))
    look = _look(step, request.variation, request.failures, save)
    hours = float(whole.world) * float(look.mean) / float(look.kept.share) / HOUR
    price = request.prices.get(name)
    energy = float(whole.world * device.tdp * look.mean)
    return Choice(layout, metrics, lower, upper, look, hours, energy, None if price is None else price * hours)


def _row(columns: Columns, index: int) -> dict[str, float]:
    return {name: values[index].item() for name, values in columns.items()}


def compile_outlook(request: Request) -> None:
    """Compile what looks at the best layouts; a caller may do so beside the search, which mostly compiles nothing."""
    one = as_float(1.0)
    terms = dict.fromkeys(METRICS, one)
    _look(synchronization(one, request.layout(1), terms), request.variation, request.failures, one)
