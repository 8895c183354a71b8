"""Calculon's three JSON files, application, execution and system, as a training configuration.

Keys and units are those of calculon-ai/calculon (Isaev et al., SC 2023): the units stand in the keys (GiB = 2^30 byte,
GBps = 10^9 byte/s, MB = 10^6 byte). Both spellings of its networks and both forms of its processors are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.calculon.fields import count_of, flag_of, word_of
from jaxperf.io.calculon.system import read_system
from jaxperf.io.json_text import parse_json
from jaxperf.io.training_configuration import SystemNumbers, TrainingConfiguration, unknown_note
from jaxperf.models.checks import show

APPLICATION = ("hidden", "feedforward", "seq_size", "attn_heads", "attn_size", "num_blocks")
EXECUTION = (
    "num_procs tensor_par pipeline_par data_par tensor_par_net pipeline_par_net data_par_net batch_size "
    "microbatch_size datatype fused_activation attention_type activation_recompute pipeline_interleaving "
    "optimizer_sharding tensor_par_comm_type tensor_par_overlap seq_par_ag_redo data_par_overlap weight_offload "
    "activations_offload optimizer_offload training in_network_reduction"
).split()
SYSTEM = ("matrix", "vector", "mem1", "mem2", "processing_mode", "networks")
_PARTS = {"application": (APPLICATION, "num_blocks"), "execution": (EXECUTION, "num_procs"), "system": (SYSTEM, "mem1")}
_RECOMPUTE = {"none": "none", "attn_only": "selective", "full": "full"}
_FORMATS = {"float8": "fp8", "float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
_NO_COLUMN = ("weight_offload", "activations_offload", "optimizer_offload", "in_network_reduction")
# Options that have no column either -> the values that are as good as what is taken of the software, Megatron-Core.
_TAKEN = {
    "tensor_par_overlap": ("none",),
    "tensor_par_comm_type": ("ar", "rs_ag"),
    "fused_activation": (True,),
}
_AMONG = {"tensor_par_comm_type": "tensor_par"}  # of ranks; no matter where there is one
_VOCABULARY = 51200  # which Calculon's count of parameters assumes; an application does not state it


def read_calculon(paths: Sequence[str | Path], device: str | None = None) -> TrainingConfiguration:
    """The configuration of two or three files, told apart by their keys; the system may be left out.

    **Arguments:** `device`: what to call the device; default: the name of the system's file.
    **Raises:** `InputError` naming file and key for a file that is none of the three, a key that is missing or out of
    range, and options that contradict each other.
    """
    found: dict[str, tuple[Path, Mapping[str, Any]]] = {}
    for path in map(Path, paths):
        data = _read(path)
        part = next((name for name, (_, key) in _PARTS.items() if key in data), None)
        if part is None:
            keys = ", ".join(f"{key} ({name})" for name, (_, key) in _PARTS.items())
            raise InputError(f"{path} is none of Calculon's files: it has none of {keys}.")
        if part in found:
            raise InputError(f"{path} and {found[part][0]} are both an {part}; give one of each.")
        found[part] = path, data
    for part in ("application", "execution"):
        if part not in found:
            raise InputError(f"Calculon's {part} file is missing (it has the key {_PARTS[part][1]}).")
    unknown = tuple(
        f"{path.name}: {key}" for part, (path, data) in found.items() for key in data if key not in _PARTS[part][0]
    )
    system_path, system = found.get("system", (None, None))
    name = device or (system_path.stem if system_path else None)
    return _configuration(
        *found["application"],
        *found["execution"],
        system=None if system_path is None or system is None else read_system(system, str(system_path)),
        device=name,
        unknown=unknown,
        unused=(f"System file {system_path.name}: not used, the device {name} is taken.",) if system_path else (),
    )


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not valid JSON: {error}.") from None
    data = parse_json(text, str(path))
    if not isinstance(data, dict):
        raise InputError(f"{path} is {show(data)}; Calculon's files are objects.")
    return data


def _configuration(
    app_path: Path,
    app: Mapping[str, Any],
    run_path: Path,
    run: Mapping[str, Any],
    system: SystemNumbers | None,
    device: str | None,
    unknown: tuple[str, ...],
    unused: tuple[str, ...],
) -> TrainingConfiguration:
    shape = {key: count_of(app, key, str(app_path)) for key in APPLICATION}
    source = str(run_path)
    check_consistent(run, source)
    data = count_of(run, "data_par", source)
    heads = shape["attn_heads"]
    return TrainingConfiguration(
        source=source,
        software="Calculon",
        model=app_path.stem,
        layers=shape["num_blocks"],
        hidden=shape["hidden"],
        heads=heads,
        kv_heads=1
        if word_of(run, "attention_type", ("multihead", "multiquery"), source, "multihead") == "multiquery"
        else heads,
        head_dim=shape["attn_size"],
        ffn=shape["feedforward"],
        gated=False,
        vocab=_VOCABULARY,
        seq=shape["seq_size"],
        devices=count_of(run, "num_procs", source),
        tensor_parallel=count_of(run, "tensor_par", source),
        pipeline_parallel=count_of(run, "pipeline_par", source),
        data_parallel=data,
        overlap_data=float(flag_of(run, "data_par_overlap", source, True)) if data > 1 else None,
        micro_batch=count_of(run, "microbatch_size", source),
        global_batch=count_of(run, "batch_size", source),
        interleave=count_of(run, "pipeline_interleaving", source),
        zero=int(flag_of(run, "optimizer_sharding", source)),
        recompute=_RECOMPUTE[word_of(run, "activation_recompute", tuple(_RECOMPUTE), source)],
        sequence_parallel=run.get("tensor_par_comm_type") == "rs_ag",
        dtype=_FORMATS[word_of(run, "datatype", tuple(_FORMATS), source)],
        device=device,
        system=system,
        unknown=unknown,
        notes=(
            f"vocab is not stated; {_VOCABULARY}, which Calculon counts parameters with.",
            *_without_effect(run, source),
            *unknown_note(unknown, (*APPLICATION, *EXECUTION, *SYSTEM)),
            *unused,
        ),
    )


def check_consistent(run: Mapping[str, Any], source: str) -> None:
    """Raises `InputError` naming two options of an execution that Calculon refuses together."""
    if not flag_of(run, "training", source, True):
        raise InputError(f"{source}: training is false; only training runs are read.")
    communication = word_of(run, "tensor_par_comm_type", ("ar", "p2p_rs_ag", "rs_ag"), source)
    overlap = word_of(run, "tensor_par_overlap", ("none", "ring", "pipe"), source, "none")
    contradictions = (
        ("seq_par_ag_redo", flag_of(run, "seq_par_ag_redo", source), "tensor_par_comm_type", communication != "rs_ag"),
        (
            "seq_par_ag_redo",
            flag_of(run, "seq_par_ag_redo", source),
            "activation_recompute",
            run.get("activation_recompute") == "full",
        ),
        ("tensor_par_overlap", overlap != "none", "tensor_par", run.get("tensor_par") == 1),
        ("data_par_overlap", flag_of(run, "data_par_overlap", source), "data_par", run.get("data_par") == 1),
        ("optimizer_sharding", flag_of(run, "optimizer_sharding", source), "data_par", run.get("data_par") == 1),
    )
    for option, is_set, other, contradicts in contradictions:
        if is_set and contradicts:
            raise InputError(f"{source}: {option} = {show(run[option])} contradicts {other} = {show(run.get(other))}.")


def _without_effect(run: Mapping[str, Any], source: str) -> tuple[str, ...]:
    """The sentence on what an execution asks for and a table of training steps has no column for."""
    used = [key for key in _NO_COLUMN if flag_of(run, key, source)]
    flag_of(run, "fused_activation", source)
    alone = {key for key, degree in _AMONG.items() if run.get(degree) == 1}
    differ = [key for key, taken in _TAKEN.items() if key not in alone and run.get(key, taken[0]) not in taken]
    said = [*used, *(f"{key} = {show(run[key])}" for key in differ)]
    return (f"Without effect here: {', '.join(said)}.",) if said else ()
