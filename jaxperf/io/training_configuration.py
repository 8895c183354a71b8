"""One configuration of a training run: the model's shape, the layout, and the system where a file states its numbers.

What the importers of Calculon's files and of Megatron's arguments give; `row` has the columns of measured steps.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from hwspecs.errors import InputError
from jaxperf.models.checks import check_count, check_flag

RECOMPUTE = ("none", "selective", "full")
# Columns of a table of training steps, in its order, and some that it lacks; those no importer knows stay empty.
COLUMNS = (
    "id source source_ref verified model family layers hidden heads kv_heads head_dim ffn gated vocab seq experts topk "
    "moe_ffn shared_experts params gpu n_gpus tp pp cp ep dp vp micro_batch global_batch zero recompute seq_par dtype "
    "task metric value step_time_s tokens_s_gpu notes cfg_group model_key vp_known mbs_known recompute_known "
    "repeat_of_release calculon_native context_method etp recomputed_share dense_layers expert_groups groups_per_token "
    "overlap_data recompute_modules offload_optimizer overlap_offload mtp "
    "q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim"
).split()
_SHORT = {  # where the name of a field is not that of its column
    "devices": "n_gpus",
    "tensor_parallel": "tp",
    "pipeline_parallel": "pp",
    "context_parallel": "cp",
    "expert_parallel": "ep",
    "expert_tensor": "etp",
    "data_parallel": "dp",
    "interleave": "vp",
    "sequence_parallel": "seq_par",
    "device": "gpu",
}
_COUNTS = (
    "layers hidden heads kv_heads head_dim ffn seq devices tensor_parallel pipeline_parallel data_parallel "
    "context_parallel expert_parallel interleave micro_batch global_batch"
).split()
_OPTIONAL_COUNTS = (
    "vocab experts topk moe_ffn shared_experts dense_layers expert_tensor expert_groups groups_per_token mtp"
).split()
_LATENT = "q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim".split()
_SIZES = [
    *"layers hidden heads kv_heads head_dim ffn gated vocab experts topk moe_ffn shared_experts dense_layers".split(),
    *_LATENT,
]
# A lesser likeness also pairs two options of Megatron: --expert-tensor- and --expert-model-parallel-size.
_TYPO = 0.86

Share = tuple[float, float]


@dataclass(frozen=True)
class NetworkNumbers:
    """One network of a system: `bandwidth` of a device [byte/s], `latency` [s], `size`: devices joined [1],
    `efficiency`: share of the bandwidth that is reached [1]."""

    bandwidth: float
    latency: float
    size: int
    efficiency: float


@dataclass(frozen=True)
class SystemNumbers:
    """A system in SI units: `matrix_flops`, `vector_flops` [FLOP/s], memory [byte], [byte/s], and the second memory it
    offloads to; `*_efficiency`: (least FLOP or bytes of an operation, share of the rate that it reaches) pairs;
    `networks`: the fastest first."""

    matrix_flops: float
    vector_flops: float
    memory_capacity: float
    memory_bandwidth: float
    offload_capacity: float
    offload_bandwidth: float
    matrix_efficiency: tuple[Share, ...]
    vector_efficiency: tuple[Share, ...]
    memory_efficiency: tuple[Share, ...]
    offload_efficiency: tuple[Share, ...]
    networks: tuple[NetworkNumbers, ...]


@dataclass(frozen=True)
class TrainingConfiguration:
    """A model on a layout; counts [1], sequence and batch in tokens and sequences.

    `source`: the file; `software` as a table of training runs tells it; `moe_ffn`: inner width of one expert;
    `dense_layers` before the first with experts; `expert_tensor` ranks that share an expert; `expert_groups` of a
    router and `groups_per_token` that it keeps a token to; `recomputed_share` of the layers; `overlap_data`: share of
    the messages among data-parallel ranks that is hidden, None where that is not known; `zero`: the stage, 0 to 3;
    `recompute_modules`: those of selective recomputation, with spaces; `offload_optimizer`: share of the parameters
    that the host updates; `overlap_offload`: share of its copies that is hidden; `mtp`: further tokens predicted;
    `kv_lora_rank` and those around it: of latent attention, as in a config.json;
    `context_method`: how context ranks exchange keys, None where that is not known; `tied`: whether input and output
    share a token table, None where the file does not say; `unknown`: options that mean nothing here; `notes`: what had
    to be assumed, and those options.
    **Raises:** `InputError` naming the fields for sizes out of range, a number of devices that the layout does not
    make, and a batch that it does not divide.
    """

    source: str
    software: str
    model: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    gated: bool
    vocab: int | None
    seq: int
    devices: int
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    micro_batch: int
    global_batch: int
    context_parallel: int = 1
    expert_parallel: int = 1
    interleave: int = 1
    experts: int | None = None
    topk: int | None = None
    moe_ffn: int | None = None
    shared_experts: int | None = None
    dense_layers: int | None = None
    expert_tensor: int | None = None
    expert_groups: int | None = None
    groups_per_token: int | None = None
    recomputed_share: float | None = None
    zero: int = 0
    recompute: str = "none"
    sequence_parallel: bool = False
    overlap_data: float | None = None
    recompute_modules: str | None = None
    offload_optimizer: float | None = None
    overlap_offload: float | None = None
    mtp: int | None = None
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None
    v_head_dim: int | None = None
    dtype: str = "bf16"
    task: str = "pretrain"
    device: str | None = None
    context_method: str | None = None
    tied: bool | None = None
    system: SystemNumbers | None = None
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (*_COUNTS, *(name for name in (*_OPTIONAL_COUNTS, *_LATENT) if getattr(self, name) is not None)):
            check_count(f"{self.source}: {name}", getattr(self, name))
        for name in ("gated", "sequence_parallel"):
            check_flag(f"{self.source}: {name}", getattr(self, name))
        check_count(f"{self.source}: zero", self.zero, 0, 3)
        if self.recompute not in RECOMPUTE:
            raise InputError(f"{self.source}: recompute is '{self.recompute}'; it must be {', '.join(RECOMPUTE)}.")
        self._check_layout()

    def _check_layout(self) -> None:
        made = self.tensor_parallel * self.pipeline_parallel * self.context_parallel * self.data_parallel
        if made != self.devices:
            raise InputError(
                f"{self.source}: {self.devices} devices, but tensor {self.tensor_parallel} x pipeline "
                f"{self.pipeline_parallel} x context {self.context_parallel} x data {self.data_parallel} make {made}."
            )
        if self.global_batch % (self.data_parallel * self.micro_batch):
            raise InputError(
                f"{self.source}: a global batch of {self.global_batch} is no multiple of {self.data_parallel} data-"
                f"parallel ranks x micro-batches of {self.micro_batch}."
            )
        if self.interleave > 1 and self.pipeline_parallel == 1:
            raise InputError(f"{self.source}: {self.interleave} interleaved chunks need a pipeline; it has one stage.")
        if (self.experts is None) != (self.topk is None):
            raise InputError(f"{self.source}: experts and topk go together; only one of them is given.")

    def row(self) -> dict[str, Any]:
        """The configuration as a row of a table of training steps; what is not known is None."""
        own = {_SHORT.get(field.name, field.name): getattr(self, field.name) for field in fields(self)}
        own |= {
            "id": self.model,
            "family": "dense" if self.experts is None else "moe",
            "notes": " ".join(self.notes),
            "gated": float(self.gated),
            "seq_par": float(self.sequence_parallel),
            "ep": self.expert_parallel if self.experts is not None else None,
            "params": self._parameters(),
            "model_key": "".join(each for each in self.model.lower() if each.isalnum() or each == "."),
            **dict.fromkeys(("vp_known", "mbs_known", "recompute_known"), True),
            "repeat_of_release": False,
        }
        return {column: own.get(column) for column in COLUMNS}

    def _parameters(self) -> float | None:
        """Weights of the model [1], by which a table of training steps tells a tied model from another."""
        from jaxperf.training.model_build import training_model_from_shape

        if self.tied is None or self.vocab is None:
            return None
        stated: dict[str, Any] = {name: getattr(self, name) for name in _SIZES if getattr(self, name) is not None}
        model = training_model_from_shape(**stated, tied=self.tied)
        return float(model.parameters)


def unknown_note(unknown: Sequence[str], known: Iterable[str]) -> tuple[str, ...]:
    """The sentence on options (perhaps "file: option") that mean nothing here, likely typos of `known` ones first."""
    words = list(known)
    near = {name: difflib.get_close_matches(name.rpartition(": ")[2], words, 1, _TYPO) for name in unknown}
    said = [f"{name} (did you mean {found[0]}?)" if found else name for name, found in near.items()]
    said.sort(key=lambda text: not text.endswith("?)"))
    return (f"Not understood and left out: {', '.join(said)}.",) if said else ()
