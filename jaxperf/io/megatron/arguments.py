"""A Megatron-style argument list, in a text file or a shell script, as a training configuration.

Names and defaults are those of `megatron/training/arguments.py` of NVIDIA/Megatron-LM, where DeepSpeed and FSDP add
their stages. What it does not say is a note; options that mean nothing for time or memory are not listed as unknown.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.megatron.deepspeed import in_megatrons_words, software
from jaxperf.io.megatron.experts import expert_fields
from jaxperf.io.megatron.layers import read_of, recompute_fields
from jaxperf.io.megatron.meanings import AS_MEASURED, FLAGS, LATENT, NO_COLUMN, READ, WITHOUT_EFFECT, changes_a_step
from jaxperf.io.megatron.options import read_options
from jaxperf.io.megatron.reader import Reader, option_text
from jaxperf.io.megatron.stages import LAYOUT, interleave_of
from jaxperf.io.megatron.vocabulary import shipped_of, vocabulary
from jaxperf.io.training_configuration import TrainingConfiguration, unknown_note

_SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
# FSDP of either kind -> its strategy where none is given.
_FSDP = {"use_torch_fsdp2": "optim_grads_params", "use_megatron_fsdp": "no_shard", "use_custom_fsdp": "no_shard"}
_CONTEXT_METHODS = {"p2p": "ring", "all_gather": "all-gather", "a2a": "ulysses"}
# Latent attention: column -> its option, and Megatron's default, 0 for none.
_LATENT = {
    "q_lora_rank": ("q_lora_rank", 0),
    "kv_lora_rank": ("kv_lora_rank", 32),
    "qk_nope_head_dim": ("qk_head_dim", 128),
    "qk_rope_head_dim": ("qk_pos_emb_head_dim", 64),
    "v_head_dim": ("v_head_dim", 128),
}
_MIXED_METHOD = "a2a+p2p"  # all-to-all within groups of ranks, a ring between these
_FORMATS = {
    "fp4_format": ("e2m1",),
    "fp8_format": ("e4m3", "hybrid"),
    "fp8_recipe": ("tensorwise", "delayed", "mxfp8", "blockwise", "custom"),
}
_GRADIENTS = 4.0 / 6.0  # of the bytes that data-parallel ranks exchange in mixed precision: fp32 there, 16 bits back


def read_megatron(path: str | Path, devices: int | None = None, device: str | None = None) -> TrainingConfiguration:
    """The configuration of a file of arguments.

    **Arguments:** `devices`: how many, where the file does not say (`--nproc_per_node`, `--nnodes`, `--world-size`);
    `device`: its name, which Megatron's arguments never tell.
    **Raises:** `InputError` naming the option for one that is missing, no number, or contradicts another.
    """
    reader = Reader(in_megatrons_words(read_options(path, changes_a_step)), str(path))
    reader.refuse(("fp16", "bf16"), ("recompute_activations", "recompute_granularity"))
    reader.alone(FLAGS)
    notes: list[str] = []
    tensor, pipeline, context = (
        reader.count(name, 1)
        for name in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    )
    total = _devices(reader, devices)
    if total % (tensor * pipeline * context):
        raise InputError(
            f"{path}: {total} devices are no multiple of --tensor-model-parallel-size {tensor} x "
            f"--pipeline-model-parallel-size {pipeline} x --context-parallel-size {context}."
        )
    data = total // (tensor * pipeline * context)
    micro = reader.count("micro_batch_size")
    if not reader.flag("global_batch_size"):
        notes.append(f"--global-batch-size is not given; {micro * data}, Megatron's default.")
    sequence = reader.flag("sequence_parallel")
    if sequence and tensor == 1:
        notes.append("--sequence-parallel has no effect without tensor parallelism.")
    shape = _shape(reader, notes)
    experts = expert_fields(reader, shape["layers"], shape["ffn"], notes)
    shipped = shipped_of(reader, tensor, shape | experts)
    interleave, zero = interleave_of(reader, pipeline), _zero(reader, notes)
    unknown = tuple(option_text(name) for name in reader.options if not (changes_a_step(name) or _of_no_matter(name)))
    return TrainingConfiguration(
        source=str(path),
        software=software(reader.options),
        model=Path(path).stem if shipped is None else shipped.name,
        vocab=vocabulary(reader, tensor, notes) if shipped is None else None,
        **shape,
        **experts,
        **_offloaded(reader),
        mtp=None if reader.options.get("mtp_num_layers") == ["0"] else reader.optional_count("mtp_num_layers"),
        **recompute_fields(reader, shape["layers"], pipeline * interleave),
        devices=total,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        data_parallel=data,
        context_parallel=context,
        micro_batch=micro,
        global_batch=reader.count("global_batch_size", micro * data),
        interleave=interleave,
        zero=zero,
        overlap_data=_overlap(reader, zero, data, notes),
        sequence_parallel=sequence and tensor > 1,
        dtype=_dtype(reader),
        device=device,
        context_method=_context_method(reader),
        tied=not reader.flag("untie_embeddings_and_output_weights"),
        unknown=unknown,
        notes=(
            *notes,
            *_left_out(reader),
            *_as_measured(reader),
            *unknown_note(unknown, map(option_text, sorted(READ | NO_COLUMN.keys() | LATENT))),
        ),
    )


def _offloaded(reader: Reader) -> dict[str, float]:
    """An optimizer on the host: Megatron-Core's, whose copies are hidden where it says so, or Megatron-DeepSpeed's."""
    if not reader.flag("optimizer_cpu_offload"):
        return {"offload_optimizer": 1.0} if reader.flag("cpu_optimizer") else {}
    share = reader.share("optimizer_offload_fraction", 1.0)
    return {
        "offload_optimizer": share,
        "overlap_offload": float(reader.flag("overlap_cpu_optimizer_d2h_h2d")),
    }


def _of_no_matter(name: str) -> bool:
    return bool(AS_MEASURED.match(name) or WITHOUT_EFFECT.match(name))


def _left_out(reader: Reader) -> tuple[str, ...]:
    """The sentence on options that change a step but have no column, unless they say what is taken anyway."""
    told = {name: " ".join(reader.options[name]) for name in NO_COLUMN if reader.flag(name)}
    for name in read_of(reader):
        told.pop(name, None)
    if LAYOUT in told:
        told[LAYOUT] = "(but for the number of its stages)"
    if reader.count("context_parallel_size", 1) > 1 and _context_method(reader) is None:
        told["cp_comm_type"] = " ".join(reader.options["cp_comm_type"])
    said = [f"{option_text(name)} {value}".strip() for name, value in told.items() if value != NO_COLUMN.get(name)]
    return (f"Not read, though this changes the answer: {', '.join(said)}.",) if said else ()


def _as_measured(reader: Reader) -> tuple[str, ...]:
    """The sentence on how the software is told to overlap, fuse and dispatch."""
    said = [f"{option_text(name)} {' '.join(reader.options[name])}".strip() for name in reader.options]
    said = [text for name, text in zip(reader.options, said, strict=True) if AS_MEASURED.match(name)]
    return (f"Taken as measured runs of this software have it, whatever is given: {', '.join(said)}.",) if said else ()


def _devices(reader: Reader, given: int | None) -> int:
    """The number of devices; `given` wins only where the file says nothing, or what only a running script knows."""
    world, local, nodes = (
        None if given is not None and "$" in "".join(reader.options.get(name, ())) else reader.optional_count(name)
        for name in ("world_size", "nproc_per_node", "nnodes")
    )
    if given is not None and reader.flag("nnodes") and nodes is None:
        local = None  # of one node
    launched = None if local is None else local * (nodes or 1)
    stated = [each for each in (given, world, launched) if each is not None]
    if not stated:
        raise InputError(f"{reader.source}: the number of devices is not stated; say it, or --nproc_per_node.")
    if any(each != stated[0] for each in stated):
        raise InputError(f"{reader.source}: the number of devices is stated as {' and '.join(map(str, stated))}.")
    return stated[0]


def _shape(reader: Reader, notes: list[str]) -> dict[str, Any]:
    hidden, heads = reader.count("hidden_size"), reader.count("num_attention_heads")
    latent = reader.flag("multi_latent_attention")
    if hidden % heads and not reader.flag("kv_channels") and not latent:
        raise InputError(f"{reader.source}: --hidden-size {hidden} is no multiple of --num-attention-heads {heads}.")
    grouped = reader.flag("group_query_attention")
    groups = reader.count("num_query_groups", 1) if grouped else heads
    if reader.flag("num_query_groups") and not grouped:
        notes.append("--num-query-groups has no effect without --group-query-attention.")
    if heads % groups:
        raise InputError(
            f"{reader.source}: --num-attention-heads {heads} is no multiple of --num-query-groups {groups}."
        )
    widths: dict[str, Any] = {}
    if latent:
        widths = {name: reader.count(option, default) or None for name, (option, default) in _LATENT.items()}
    gated = reader.flag("swiglu")
    # Two thirds of 4 h in whole 64s keep the parameters of a gated network those of a plain one.
    default = 8 * hidden // 3 // 64 * 64 if gated else 4 * hidden
    if not reader.flag("ffn_hidden_size"):
        notes.append(f"--ffn-hidden-size is not given; {default}, Megatron's default.")
    return {
        "layers": reader.count("num_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": groups,
        "head_dim": widths["qk_nope_head_dim"] if latent else reader.count("kv_channels", hidden // heads),
        **widths,
        "ffn": reader.count("ffn_hidden_size", default),
        "gated": gated,
        "seq": _sequence(reader),
    }


def _sequence(reader: Reader) -> int:
    reader.refuse(("seq_length", "encoder_seq_length"))
    return reader.count("encoder_seq_length" if reader.flag("encoder_seq_length") else "seq_length")


def _zero(reader: Reader, notes: list[str]) -> int:
    """The stage: of FSDP as its strategy says, of DeepSpeed as stated, 1 for the distributed optimizer."""
    fsdp = next(filter(reader.flag, _FSDP), "")
    if fsdp:
        reader.refuse((fsdp, "zero_stage"))
        strategy = reader.word("data_parallel_sharding_strategy", tuple(_SHARDING))
        if strategy is None and _FSDP[fsdp] == "no_shard":
            notes.append("--data-parallel-sharding-strategy is not given; no_shard, Megatron's default.")
        return _SHARDING[strategy or _FSDP[fsdp]]
    stage = reader.word("zero_stage", ("0", "1", "2", "3"))
    return int(stage) if stage is not None else int(reader.flag("use_distributed_optimizer"))


def _overlap(reader: Reader, zero: int, data: int, notes: list[str]) -> float | None:
    """Share of the data-parallel messages that is hidden; None where the software decides (FSDP, DeepSpeed) or there
    are none."""
    if data == 1 or zero > 1 or reader.flag("zero_stage"):
        return None
    gradients, weights = (float(reader.flag(name)) for name in ("overlap_grad_reduce", "overlap_param_gather"))
    names = ("--overlap-grad-reduce", "--overlap-param-gather")[: 1 + zero]
    missing = [name for name, given in zip(names, (gradients, weights), strict=False) if not given]
    if missing:
        told = f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not given"
        notes.append(f"{told}: what data-parallel ranks exchange then is not hidden.")
    return gradients if zero == 0 else _GRADIENTS * gradients + (1.0 - _GRADIENTS) * weights


def _context_method(reader: Reader) -> str | None:
    """How context ranks exchange keys: one way for all layers, p2p where nothing is said; None for a mixture."""
    words = reader.options.get("cp_comm_type") or ["p2p"]
    allowed = (*_CONTEXT_METHODS, _MIXED_METHOD)
    for word in words:
        if word not in allowed:
            raise InputError(f"{reader.source}: --cp-comm-type is '{word}'; it must be one of {', '.join(allowed)}.")
    return _CONTEXT_METHODS.get(words[0]) if len(set(words)) == 1 else None


def _dtype(reader: Reader) -> str:
    told = {name: reader.word(name, allowed) for name, allowed in _FORMATS.items()}
    if told["fp4_format"]:
        return "nvfp4"
    if told["fp8_format"] or reader.flag("fp8_hybrid") or reader.flag("fp8_e4m3"):
        return "mxfp8" if told["fp8_recipe"] == "mxfp8" else "fp8"
    return "fp16" if reader.flag("fp16") else "bf16" if reader.flag("bf16") else "fp32"
