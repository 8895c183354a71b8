"""The optimizer's step: Adam reads and writes its states once, split over the ranks by ZeRO-1 and beyond; on the
device, or for a share of its parameters on the host, whose memory holds their states then."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar
from jaxperf.training.efficiencies import TrainingEfficiencies
from jaxperf.training.layout import Layout
from jaxperf.training.memory import StageParameters, kept_parameters
from jaxperf.training.overlap import exposed_time


class OptimizerStep(eqx.Module):
    """What a step ends with: the update of the parameters `on_device` and `on_host`; `copies` of gradients to the host
    and of weights back, and what of them the host's update does not hide, `exposed` [s]."""

    on_device: Float[Array, "*batch"]
    on_host: Float[Array, "*batch"]
    copies: Float[Array, "*batch"]
    exposed: Float[Array, "*batch"]

    @property
    def time(self) -> Float[Array, "*batch"]:
        """All that is waited for [s]."""
        return self.on_device + self.on_host + self.exposed


def optimizer_step(
    own: StageParameters, layout: Layout, memory_bandwidth: Scalar, e: TrainingEfficiencies
) -> OptimizerStep:
    """t = P_local (2 o + 2 g + w) / bandwidth: states read and written, gradients read for their norm and for the step,
    weights written. Nothing where there are no states: a run that ends with its gradients.

    Of a share f that is offloaded (ZeRO-Offload, arXiv:2101.06840; Megatron-Core's hybrid optimizer), the device reads
    the gradients once for their norm, the host's memory moves f P_local (2 o + g + w) for the step, and f P_local (g +
    w) are copied, which the host's update hides as far as the software does (`overlap_offload`). The device and the
    host update in turn.

    **Arguments:** `own`: parameters of a stage of the rank [1]; `memory_bandwidth`: sustained [byte/s].
    """
    states = jnp.where(layout.optimizer_bytes > 0.0, 1.0, 0.0)
    learned = states * layout.copies * kept_parameters(layout, *own.learned(layout), layout.zero > 0.5)
    there, here = layout.offload_optimizer * learned, (1.0 - layout.offload_optimizer) * learned
    once = 2.0 * layout.optimizer_bytes + layout.gradient_bytes + layout.weight_bytes  # of a parameter, by its update
    casts = layout.quantized * (layout.weight_bytes + 2.0 * layout.operand_bytes) * (own.dense + own.experts)
    on_device = here * once + learned * layout.gradient_bytes + states * layout.copies * casts
    on_host = there * once / e.host_memory_bandwidth
    copies = there * (layout.gradient_bytes + layout.weight_bytes) / e.host_bandwidth
    exposed = exposed_time(copies, on_host, layout.overlap_offload * e.overlap_offload)
    return OptimizerStep(on_device / memory_bandwidth, on_host, copies, exposed)
