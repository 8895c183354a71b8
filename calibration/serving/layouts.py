"""A measured configuration as something that can be priced: device, layout and load, and what was taken for granted."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from calibration.datasets.serving import Configuration, ServingTable
from calibration.serving.between_nodes import stand_in_between
from calibration.serving.clients import (
    BESIDE,
    BUDGET,
    DRAWN,
    MIXED,
    ROOM,
    draws_lengths,
    launches_alone,
    mean_length,
    mixes,
    prompts_room,
    set_up,
    source_of,
)
from calibration.serving.engines import most_running
from calibration.serving.spelled import Devices, Models
from calibration.serving.split import decode_workers
from hwspecs import DeviceSpec
from hwspecs.errors import InputError
from jaxperf.core.formats import FORMATS
from jaxperf.io.quantized_names import QUANTIZED_NAME, usual_storage
from jaxperf.models.config import ModelConfig
from jaxperf.models.mixers import Mla
from jaxperf.models.parameters import parameter_count
from jaxperf.serving.notes import multiplied_in

# Mean lengths of MLPerf Inference's tasks (tokens in, tokens out), recalled from the benchmark's documents: OpenOrca
# for Llama 2 70B, LongBench and others for 405B, CNN/DailyMail summaries (of 128 tokens for Llama 3.1 8B), mathematics
# and code for DeepSeek R1. Logs state tokens and samples a second: their ratio is within 8 % of these outputs in all
# that are given, and mostly within 3 %.
TASK_LENGTHS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "llama-2-70b": (294.0, 294.0),
        "mixtral-8x7b": (280.0, 146.0),
        "llama-3.1-405b": (9400.0, 650.0),
        "llama-3.1-8b": (778.0, 128.0),
        "gpt-j-6b": (778.0, 69.0),
        "deepseek-v3": (800.0, 3880.0),
    }
)
# Models that MLPerf submissions quantize to FP4 where the device multiplies it, by NVIDIA's account of v5.1; else FP8.
IN_FP4 = frozenset({"deepseek-v3", "llama-2-70b", "llama-3.1-405b", "llama-3.1-8b"})
OF_TASK = "recalled of MLPerf's task"  # what is said of these: means of lengths that differ
OFFLINE_TURNS = 8.0  # requests in flight over those that can run together, where all are there from the start
SERVER_SEQUENCES = 64.0  # where nothing at all is said of the load
# Mode -> the loads it goes by, the first that is stated; of all others as of agg.
LOADED_BY = {"static": ("batch", "concurrency"), "agg": ("concurrency", "qps", "batch")}
MOST_RANKS = 4096
FILLED = 0.7  # of the memory, by weights, where a table leaves the ranks open: the rest is for the cache


@dataclass(frozen=True)
class Deployed:
    """A configuration that can be priced.

    `spec`: its device, the power limit in it; `model`: as read, without its `assumptions`; `tensor`, `pipeline`,
    `data`, `expert`: of one replica [1]; `replicas`: of it, in disaggregation workers of both pools [1]; `concurrency`:
    requests at a time over all replicas, NaN where the load is open; `rate`: requests a second, NaN where it is closed;
    `drawn`: whether lengths differ, `prompt` and `output` being their means; `room`: tokens of prompts that a
    step has room for [1]; `mixed`: whether the engine was told to decode in the steps that prefill; `decoders`: of two
    pools the workers that decode, 0 where that is not stated [1]; `notes`: what was taken for granted.
    """

    configuration: Configuration
    model: ModelConfig
    spec: DeviceSpec
    weights: str
    tensor: float
    pipeline: float
    data: float
    expert: float
    replicas: float
    prompt: float
    output: float
    concurrency: float
    rate: float
    drawn: bool = False
    room: float = BUDGET
    mixed: bool = False
    decoders: float = 0.0
    notes: tuple[str, ...] = field(default=())

    @property
    def architecture(self) -> str:
        """Name of the shipped model: checkpoints of one architecture share it; of another its path."""
        return self.model.name

    @property
    def group(self) -> float:
        """Devices of one replica [1]."""
        return self.tensor * self.pipeline * self.data

    @property
    def launched(self) -> bool:
        """Whether it is a fixed batch whose kernels the host launched one by one."""
        given = self.configuration
        return given.mode == "static" and launches_alone(given.source, given.engine, given.version)

    @property
    def experts(self) -> bool:
        """Whether any layer chooses experts."""
        return any(hasattr(layer.ffn, "experts") for layer in self.model.layers)

    @property
    def by_requests(self) -> Deployed:
        """The same workers with each request's attention on one rank (data-parallel attention, for which SGLang and Ray
        Serve name latent attention with expert parallelism: its cache has no heads to share out); `self` elsewhere, and
        where the sequences of an attention rank are stated."""
        latent = any(isinstance(layer.mixer, Mla) for layer in self.model.layers)
        if not latent or self.tensor == 1.0 or self.expert < self.tensor or self.decoders > 0.0:
            return self
        return dataclasses.replace(self, tensor=1.0, data=self.tensor * self.data)


def deployed(table: ServingTable, directories: Sequence[str] = ()) -> tuple[list[Deployed], dict[int, str]]:
    """The configurations of a table that can be priced, and for the rows of the others the reason."""
    found, reasons = [], dict(table.reasons)
    devices, models = Devices(directories), Models()
    for configuration in table.configurations:
        try:
            found.append(_deployed(configuration, devices, models))
        except InputError as error:
            reasons |= dict.fromkeys(configuration.rows, str(error))
    return found, reasons


def _deployed(given: Configuration, devices: Devices, models: Models) -> Deployed:
    model, of_model = models.of(given.model)
    spec, of_device = devices.of(given.gpu)
    weights, of_format = _weights(given, model, spec)
    layout, of_layout = _layout(given, least_ranks(model, weights, spec))
    prompt, output, of_lengths = _lengths(given, model)
    closed = given.mode != "static" and math.isfinite(given.load["concurrency"])
    source, of_source = source_of(given.source, closed)
    drawn = draws_lengths(source, prompt, output)
    varied = drawn or of_lengths.endswith(OF_TASK)
    if drawn:
        prompt, output, of_lengths = mean_length(prompt), mean_length(output), DRAWN
    decoders, of_pools = decode_workers(given, layout["replicas"], layout["data"])
    load = {**given.load, "batch": math.nan} if decoders else given.load  # it says how the pools are split
    concurrency, rate, of_load = _load(dataclasses.replace(given, load=load), layout["replicas"], spec)
    stand_ins = multiplied_in(spec, (weights, FORMATS[weights].activations))
    ours = given.mode == "agg" and set_up(source, given.engine, given.version, drawn)
    mixed = ours and mixes(given.engine)
    of_steps = (ROOM.format(beside=BESIDE[given.engine]) if ours else "", MIXED if mixed else "")
    of_layout = [*of_layout, of_pools, stand_in_between(spec, layout["tensor"])]
    notes = (of_model, of_device, of_format, *stand_ins, *of_layout, of_source, of_lengths, of_load, *of_steps)
    lengths = {
        "prompt": prompt,
        "output": output,
        "concurrency": concurrency,
        "rate": rate,
        "drawn": varied,
        "room": prompts_room(given.engine, prompt) if ours else BUDGET,
        "mixed": mixed,
        "decoders": decoders,
    }
    told = tuple(note for note in notes if note)
    return Deployed(given, model, spec, weights, **layout, **lengths, notes=told)


def _weights(given: Configuration, model: ModelConfig, spec: DeviceSpec) -> tuple[str, str]:
    """Format of the weights: stated, in the checkpoint's name, what MLPerf submissions use, or the model's own."""
    if given.weights:
        return given.weights, ""
    ending = QUANTIZED_NAME.search(given.model.lower())
    usual = usual_storage(ending.group()) if ending else None
    if usual:
        return usual[0], f"dtype is not stated: {usual[0]}, by the model's name"
    submitted = ("fp4", "fp8") if model.name in IN_FP4 else ("fp8",)
    narrow = [name for name in submitted if name in spec.peak_flops]
    if given.source.startswith("MLPerf") and narrow:
        return narrow[0], f"dtype is not stated: {narrow[0]} assumed, as submissions use where the device has it"
    if FORMATS[model.weight_format].itemsize > FORMATS["fp16"].itemsize:
        return "fp16", "dtype is not stated: fp16, as engines run models in 32 bits (vLLM's dtype auto)"
    return model.weight_format, f"dtype is not stated: the model's own, {model.weight_format}"


def least_ranks(model: ModelConfig, weights: str, spec: DeviceSpec) -> float:
    """The smallest power of two of devices, at most a node, whose memory the weights leave room in [1]."""
    stored = parameter_count(model) * FORMATS[weights].itemsize
    ranks = 1.0
    while ranks * 2.0 <= spec.node.size.si and stored / ranks > FILLED * spec.memory_capacity.si:
        ranks *= 2.0
    return ranks


def _layout(given: Configuration, least: float) -> tuple[dict[str, float], list[str]]:
    """The layout of a replica and their number, and a sentence for each choice the table leaves open and each number
    in it that contradicts another.

    **Arguments:** `least`: tensor-parallel ranks where none are stated. **Raises:** `InputError` for numbers that no
    layout has.
    """
    counts, notes = given.counts, []
    for name, value in counts.items():
        if math.isfinite(value) and value != round(value):
            raise InputError(f"{name}: {value:g} must be a whole number.")
    tensor, pipeline, data, expert = (counts[name] for name in ("tp", "pp", "dp", "ep"))
    devices = counts["n_gpu"]
    tensor, pipeline, data = _or(tensor, least), _or(pipeline, 1.0), _or(data, 1.0)
    if not math.isfinite(devices):
        devices = tensor * pipeline * data
        if "n_gpu" in given.zeros or not math.isfinite(counts["tp"]):
            notes.append(f"{_unstated(given, 'n_gpu')}: tp x pp x dp = {devices:.0f}")
    if not math.isfinite(counts["tp"]):
        tensor = min(tensor, devices // (pipeline * data))
        notes.append(f"{_unstated(given, 'tp')}: the fewest ranks that hold the weights, and replicas of them")
    expert = _or(expert, 1.0)
    group = tensor * pipeline * data
    if group < 1.0:
        raise InputError(f"n_gpu: {devices:.0f} devices are fewer than pp x dp.")
    if group > MOST_RANKS:
        raise InputError(f"tp, pp, dp: {group:.0f} ranks a replica; at most {MOST_RANKS} are allowed.")
    replicas = max(1.0, devices // group)
    if devices > replicas * group:
        notes.append(f"{devices - replicas * group:.0f} of {devices:.0f} devices idle: a replica has {group:.0f}")
    if devices < group:
        notes.append(f"n_gpu is {devices:.0f}: priced with the tp x pp x dp = {group:.0f} devices of one replica")
    if expert > tensor * data:
        notes.append(f"ep is {expert:.0f}: priced with the tp x dp = {tensor * data:.0f} ranks that hold experts")
    layout = {"tensor": tensor, "pipeline": pipeline, "data": data, "expert": min(expert, tensor * data)}
    return {**layout, "replicas": replicas}, notes


def _lengths(given: Configuration, model: ModelConfig) -> tuple[float, float, str]:
    prompt, output = given.load["input_len"], given.load["output_len"]
    for name, length in (("input_len", prompt), ("output_len", output)):
        if length < 1.0:  # false of one that is not stated
            raise InputError(f"{name}: {length:g} is less than one token.")
    if math.isfinite(prompt):
        return prompt, _or(output, 1.0), "" if math.isfinite(output) else f"{_unstated(given, 'output_len')}: 1"
    if model.name in TASK_LENGTHS and given.source.startswith("MLPerf"):
        prompt, output = TASK_LENGTHS[model.name]
        return prompt, output, f"lengths are not stated: {prompt:.0f} in, {output:.0f} out, {OF_TASK}"
    zero = "; 0 counts as not stated" if "input_len" in given.zeros else ""
    raise InputError(f"input_len: no length of the prompts is stated{zero}.")


def _load(given: Configuration, replicas: float, spec: DeviceSpec) -> tuple[float, float, str]:
    """(concurrency, rate, what was assumed or not used): a closed loop where a concurrency is known, else an open one;
    a fixed batch is a concurrency of its own."""
    order = LOADED_BY.get(given.mode, LOADED_BY["agg"])
    used = next((name for name in order if math.isfinite(given.load[name])), None)
    if used is not None:
        value, said = given.load[used], "; ".join(_loads_said(given, order[0], used))
        return (math.nan, value, said) if used == "qps" else (value, math.nan, said)
    if given.mode == "static":
        return 1.0, math.nan, "; ".join([f"{_unstated(given, 'batch')}: 1", *_loads_said(given, "batch", "batch")])
    if "single" in given.scenario:
        return 1.0, math.nan, ""
    if "offline" in given.scenario:
        running = most_running(given.engine, spec.memory_capacity.si)
        return (
            OFFLINE_TURNS * running * replicas,
            math.nan,
            "offline: more requests at a time than can run together, so that latencies are those of a queue",
        )
    zeros = "".join(f"{_unstated(given, name)}; " for name in ("concurrency", "qps", "batch") if name in given.zeros)
    note = f"{zeros}no load is stated: {SERVER_SEQUENCES:.0f} requests at a time on a replica"
    return SERVER_SEQUENCES * replicas, math.nan, note


def _loads_said(given: Configuration, wanted: str, used: str) -> list[str]:
    """That the load `used` stands for the one that is `wanted`, and which others say something else; in sentences."""
    stands = [f"{_unstated(given, wanted)}: the {used}"] if used not in (wanted, "qps") else []
    value = given.load[used]
    others = {name: each for name, each in given.load.items() if name in LOADED_BY["agg"] and math.isfinite(each)}
    unused = (name for name, each in others.items() if name != used and ("qps" in (name, used) or each != value))
    return [*stands, *(f"{name} is {others[name]:g}: not used beside {used}" for name in unused)]


def _unstated(given: Configuration, name: str) -> str:
    return f"{name} is 0, which counts as not stated" if name in given.zeros else f"{name} is not stated"


def _or(value: float, default: float) -> float:
    return value if math.isfinite(value) else default
