"""Columns of tables of training runs: their names, others that they go by, and what they may hold."""

from __future__ import annotations

from collections.abc import Mapping

from jaxperf.models.checks import MOST_LAYERS

# Column -> other names it goes by.
NEEDED: Mapping[str, tuple[str, ...]] = {
    "model": (),
    "gpu": ("device",),
    "n_gpus": ("devices", "gpus", "world_size"),
    "seq": ("sequence", "seq_len", "sequence_length"),
    "global_batch": ("global_batch_size", "gbs"),
}
LAYOUT: Mapping[str, tuple[str, ...]] = {
    "tp": ("tensor_parallel",),
    "pp": ("pipeline_parallel",),
    "cp": ("context_parallel",),
    "ep": ("expert_parallel",),
    "dp": ("data_parallel",),
    "vp": ("interleave", "virtual_pipeline"),
    "micro_batch": ("microbatch", "micro_batch_size", "mbs"),
    "zero": ("zero_stage",),
    "shard_group": ("hsdp", "hsdp_shard_size"),
    "seq_par": ("sequence_parallel",),
    "etp": ("expert_tensor", "expert_tensor_parallel"),
    "recomputed_share": ("recompute_share",),
    "overlap_data": (),
    "offload_optimizer": ("optimizer_offload", "optimizer_offload_fraction"),
    "overlap_offload": (),
    "host_memory_gb": (),
    "mtp": ("mtp_layers", "mtp_num_layers"),
    "expert_groups": ("n_group", "router_groups"),
    "groups_per_token": ("topk_group",),
}
SHAPE = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "gated", "vocab")
EXPERTS = ("experts", "topk", "moe_ffn", "shared_experts", "dense_layers")
# Of multi-head latent attention, whose heads then have these widths; as in a config.json, and in Megatron's words.
LATENT: Mapping[str, tuple[str, ...]] = {
    "q_lora_rank": (),
    "kv_lora_rank": (),
    "qk_nope_head_dim": ("qk_head_dim",),
    "qk_rope_head_dim": ("qk_pos_emb_head_dim",),
    "v_head_dim": (),
}
TEXTS: Mapping[str, tuple[str, ...]] = {
    "source": ("framework", "stack"),
    "family": (),
    "dtype": ("precision",),
    "task": (),
    "recompute": ("activation_checkpointing",),
    "recompute_modules": (),
    "context_method": ("cp_comm_type",),
    "schedule": ("pipeline_schedule", "pp_schedule"),
    "notes": (),
    "cfg_group": (),
    "model_key": (),
    "repeat_of_release": (),
    "calculon_native": (),
}
LABEL = "step_time_s"
COLUMNS = {**NEEDED, **LAYOUT, **{name: () for name in (*SHAPE, *EXPERTS)}, **LATENT, "params": (), **TEXTS}
KNOWN = {**COLUMNS, LABEL: ()}

FLAGS = ("seq_par", "gated")
SHARES = ("recomputed_share", "overlap_data", "offload_optimizer", "overlap_offload")
LARGEST = 1e15  # of any count; beyond it a row is a mistake
# What a column may hold; what is a number and not this is told where it matters (`calibration.training.points`).
_COUNT = f"a whole number from 1 to {LARGEST:g}"
ALLOWED = {
    **dict.fromkeys(
        ("n_gpus", "seq", "global_batch", "tp", "pp", "cp", "ep", "dp", "vp", "micro_batch", "shard_group"), _COUNT
    ),
    **dict.fromkeys(("etp", "expert_groups", "groups_per_token"), _COUNT),
    **dict.fromkeys(SHARES, "a number from 0 to 1"),
    "mtp": f"a whole number from 0 to {MOST_LAYERS:,}",
    "zero": "0, 1, 2 or 3",
    **dict.fromkeys(FLAGS, "0 or 1"),
    "host_memory_gb": "a number of GB above 0, of the host for one device",
    "params": f"a number from 1 to {LARGEST:g}",
}
