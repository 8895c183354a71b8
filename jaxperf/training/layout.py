"""How a training run is laid out over devices: every choice is a traced number, so that one compile serves them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.formats import COMPUTE_FORMATS, FORMATS, as_index, format_name
from jaxperf.core.numerics import as_float

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe")
IN_PIECES = SCHEDULES[3:]  # those that put gradients of weights into gaps, perfectly here; no measured run has one
CONTEXT_METHODS = ("ring", "all-gather", "ulysses")
RECOMPUTE = ("none", "selective", "full")
# What selective recomputation may compute again, as Megatron-Core names it (`--recompute-modules`): a field each.
MODULES = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts")
# Numbers from 1, and the stages of ZeRO.
FROM_ONE = tuple(
    "tensor pipeline context expert expert_tensor data interleave microbatch global_batch sequence".split()
)
ZERO_STAGES = (0.0, 1.0, 2.0, 3.0)
SHARES = ("recomputed_share", "offload", "offload_optimizer", *(f"recompute_{name}" for name in MODULES))


class Layout(eqx.Module):
    """The parallel layout and the memory choices of one training run; floats that hold integers unless said.

    Groups are placed tensor, then context, then data, then pipeline (Megatron-LM): neighbours in a node are tensor
    ranks. Experts are spread over the `expert` x `expert_tensor` first ranks of a pipeline stage.

    `tensor`, `pipeline`, `context`, `expert`, `expert_tensor`, `data` ranks; `devices` there are, 0 for the product;
    `interleave` chunks of layers a stage; `microbatch` sequences of a replica at once, `global_batch` sequences a
    step, of `sequence` tokens; `behind` sequences that stages on other devices hold, behind these; `zero` stage 0..3;
    `shard_group` data-parallel ranks that share one copy (HSDP), 0 for all; `sequence_parallel` 0 or 1; `recompute`,
    `schedule`, `context_method`: index into `RECOMPUTE`, `SCHEDULES`, `CONTEXT_METHODS`; `recomputed_share` of the
    layers that recompute; `recompute_*` 1 for each of the `MODULES` that "selective" computes again;
    `uneven` 1 where stages may hold different numbers of layers; `flash` 0 where attention writes its scores to memory;
    `offload` share of the kept activations sent to host memory, `offload_optimizer` of the parameters that the host
    updates, in whose memory their states are; `host_memory` that a device may fill there, 0 where nobody says [byte];
    `lora_rank`, 0 for none; `frozen` 1 where the model's weights do not learn; `deduplicate` 1 where a token is sent to
    a rank, and to a node, once for all its experts there.

    `overlap_*`: 1 where the software hides this communication behind compute, 0 where not.

    `compute_format`, `plain_format`: index into `COMPUTE_FORMATS` of the layers' products, and of attention and head;
    bytes of an element of: `weight_bytes` stored and gathered weights, `gradient_bytes`, `optimizer_bytes` master and
    moments (0: the run ends with its gradients), `activation_bytes` residual stream and messages, `operand_bytes`
    inputs of products kept for the backward pass, `dispatch_bytes` tokens on their way to experts; `quantized` 1 where
    operands are cast to a narrow format.
    """

    tensor: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    pipeline: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    context: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    expert: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    expert_tensor: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    data: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    devices: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    interleave: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    microbatch: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    global_batch: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    sequence: Float[Array, "*batch"] = eqx.field(converter=as_float, default=4096.0)
    behind: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    zero: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    shard_group: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    sequence_parallel: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    recompute: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    recomputed_share: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    recompute_core_attn: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    recompute_layernorm: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    recompute_mla_up_proj: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    recompute_mlp: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    recompute_moe: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    recompute_moe_act: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    recompute_shared_experts: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    context_method: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    schedule: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    uneven: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    flash: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    offload: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    offload_optimizer: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    host_memory: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    lora_rank: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    frozen: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    deduplicate: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    overlap_tensor: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    overlap_context: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    overlap_expert: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    overlap_pipeline: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    overlap_data: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    overlap_offload: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    compute_format: Int[Array, "*batch"] = eqx.field(converter=as_index, default=COMPUTE_FORMATS.index("bf16"))
    plain_format: Int[Array, "*batch"] = eqx.field(converter=as_index, default=COMPUTE_FORMATS.index("bf16"))
    weight_bytes: Float[Array, "*batch"] = eqx.field(converter=as_float, default=2.0)
    gradient_bytes: Float[Array, "*batch"] = eqx.field(converter=as_float, default=4.0)
    optimizer_bytes: Float[Array, "*batch"] = eqx.field(converter=as_float, default=12.0)
    activation_bytes: Float[Array, "*batch"] = eqx.field(converter=as_float, default=2.0)
    operand_bytes: Float[Array, "*batch"] = eqx.field(converter=as_float, default=2.0)
    dispatch_bytes: Float[Array, "*batch"] = eqx.field(converter=as_float, default=2.0)
    quantized: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)

    @property
    def world(self) -> Float[Array, "*batch"]:
        """Devices the layout fills [1]."""
        return self.tensor * self.context * self.data * self.pipeline

    @property
    def stage_ranks(self) -> Float[Array, "*batch"]:
        """Devices of one pipeline stage over all replicas [1]."""
        return self.tensor * self.context * self.data

    @property
    def copies(self) -> Float[Array, "*batch"]:
        """Ranks of a pipeline that hold a stage, and stages a rank holds: two in DualPipe, which runs the pipeline from
        both ends [1]."""
        return jnp.where(self.schedule > SCHEDULES.index("dualpipe") - 0.5, 2.0, 1.0)

    @property
    def ends_together(self) -> Float[Array, "*batch"]:
        """1 where the first rank of a pipeline has both ends of the model: it is alone, or the schedule is ZB-V, whose
        second chunks run back to it (arXiv:2401.10241, section 6)."""
        vee = jnp.abs(self.schedule - SCHEDULES.index("zb-v")) < 0.5
        return jnp.where((self.pipeline <= 1.0) | vee, 1.0, 0.0)

    @property
    def expert_data(self) -> Float[Array, "*batch"]:
        """Copies of one expert [1]."""
        return self.copies * self.stage_ranks / (self.expert * self.expert_tensor)

    @property
    def microbatches(self) -> Float[Array, "*batch"]:
        """Micro-batches a replica works through in one step [1]."""
        return self.global_batch / (self.data * self.microbatch)

    @property
    def tokens(self) -> Float[Array, "*batch"]:
        """Tokens of one micro-batch on one context-parallel rank [1]."""
        return self.microbatch * self.sequence / self.context

    @property
    def residual_split(self) -> Float[Array, "*batch"]:
        """Ranks that share the rows of the residual stream: the tensor group with sequence parallelism [1]."""
        return jnp.where(self.sequence_parallel > 0.0, self.tensor, 1.0)

    @property
    def shard(self) -> Float[Array, "*batch"]:
        """Ranks that share one copy of what ZeRO splits, context-parallel ones and those of DualPipe's other end
        included [1]."""
        group = jnp.where(self.shard_group > 0.0, jnp.minimum(self.shard_group, self.data), self.data * self.copies)
        return group * self.context

    @property
    def expert_shard(self) -> Float[Array, "*batch"]:
        """Ranks that share one copy of an expert where ZeRO splits it: of the copies those in one shard group, all
        without shard groups; 1 where the experts fill a group or more [1]."""
        inside = self.tensor * self.shard / (self.expert * self.expert_tensor)
        return jnp.maximum(jnp.minimum(inside, self.expert_data), 1.0)

    @property
    def split_gradients(self) -> Float[Array, "*batch"]:
        """1 where a rank keeps its share of the gradients only: ZeRO-3, and ZeRO-2 without a pipeline, whose
        micro-batches add up in whole gradients."""
        return jnp.where((self.zero > 2.5) | ((self.zero > 1.5) & (self.pipeline <= 1.0)), 1.0, 0.0)

    @property
    def split_weights(self) -> Float[Array, "*batch"]:
        """1 where weights themselves are split (ZeRO-3, FSDP)."""
        return jnp.where(self.zero > 2.5, 1.0, 0.0)


def training_layout(
    dtype: str = "bf16",
    *,
    schedule: str = "1f1b",
    recompute: str = "none",
    context_method: str = "ring",
    **numbers: float,
) -> Layout:
    """A `Layout` from names and plain numbers; `dtype` sets the formats and bytes that `numbers` does not.

    **Raises:** `InputError` for a name that does not exist, with the nearest one, and a plain number out of its range;
    of a traced one `structure_checks` tell that.
    """
    unknown = [name for name in numbers if name not in Layout.__dataclass_fields__]
    if unknown:
        allowed = tuple(Layout.__dataclass_fields__)
        raise InputError(f"Layout has no field '{unknown[0]}'.{did_you_mean(unknown[0], allowed)}")
    for name, value in numbers.items():
        _check_range(name, value)
    codes = {
        "schedule": _code("schedule", schedule, SCHEDULES),
        "recompute": _code("recompute", recompute, RECOMPUTE),
        "context_method": _code("context_method", context_method, CONTEXT_METHODS),
    }
    return Layout(**{**format_fields(dtype), **codes, **numbers})


def module_fields(modules: Sequence[str]) -> dict[str, Any]:
    """The `recompute_*` fields of a `Layout` whose selective recomputation is of these `MODULES`.

    **Raises:** `InputError` for one that does not exist, with the nearest name.
    """
    chosen = {MODULES[int(_code("module to recompute", name, MODULES))] for name in modules}
    return {f"recompute_{name}": float(name in chosen) for name in MODULES}


def format_fields(dtype: str) -> dict[str, float]:
    """Formats and bytes of mixed-precision training in `dtype`, with Adam's master weights and moments in fp32.

    Narrow formats (fp8, mxfp8, fp4, ...) multiply narrow and keep narrow operands; weights stay in 16 bits, attention
    and head are multiplied in 16 bits (Transformer Engine; DeepSeek-V3, arXiv:2412.19437, section 3.3). fp32 has no
    second copy of the weights, and nor has fp64, of which everything has 8 bytes.
    """
    name = format_name(dtype)
    facts = FORMATS[name]
    narrow = facts.operand_itemsize < 2.0
    wide = facts.activations if narrow else name
    itemsize = FORMATS[wide].operand_itemsize
    state = max(itemsize, 4.0)  # gradients and moments have fp32 at least
    master = state if itemsize < state else 0.0
    return {
        "compute_format": COMPUTE_FORMATS.index(facts.compute),
        "plain_format": COMPUTE_FORMATS.index(FORMATS[wide].compute),
        "weight_bytes": itemsize,
        "gradient_bytes": state,
        "optimizer_bytes": 2.0 * state + master,
        "activation_bytes": itemsize,
        "operand_bytes": facts.operand_itemsize,
        "dispatch_bytes": itemsize,
        "quantized": float(narrow),
    }


def _check_range(name: str, value: Any) -> None:
    """Raises `InputError` for a plain number that a layout cannot have."""
    if not isinstance(value, int | float):
        return
    if name in FROM_ONE and not value >= 1.0:
        raise InputError(f"Layout.{name} is {value}; it must be a number from 1.")
    if name == "zero" and value not in ZERO_STAGES:
        raise InputError(f"Layout.zero is {value}; it must be a stage of ZeRO: 0, 1, 2 or 3.")
    if name in SHARES and not 0.0 <= value <= 1.0:
        raise InputError(f"Layout.{name} is {value}; it must be a number from 0 to 1.")
    if name == "host_memory" and not value >= 0.0:
        raise InputError(f"Layout.host_memory is {value}; it must be a number of bytes, 0 for any.")
    if name == "sequence_parallel" and value not in (0.0, 1.0):
        raise InputError(f"Layout.sequence_parallel is {value}; it must be 0 or 1.")


def _code(what: str, name: str, allowed: Sequence[str]) -> float:
    key = str(name).strip().lower().replace("_", "-")
    keys = [each.replace("_", "-") for each in allowed]
    if key not in keys:
        raise InputError(f"Unknown {what} {name!r}; allowed: {', '.join(allowed)}.{did_you_mean(key, allowed)}")
    return float(keys.index(key))
