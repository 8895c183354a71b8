"""The optimizer's step: Adam reads and writes its states once, split over the ranks by ZeRO-1 and beyond."""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar
from jaxperf.training.layout import Layout
from jaxperf.training.memory import StageParameters, kept_parameters


def optimizer_time(own: StageParameters, layout: Layout, memory_bandwidth: Scalar) -> Scalar:
    """t = P_local (2 o + 2 g + w) / bandwidth: states read and written, gradients read for their norm and for the step,
    weights written. Nothing where there are no states: a run that ends with its gradients.

    **Arguments:** `own`: parameters of a stage of the rank [1]; `memory_bandwidth`: sustained [byte/s].
    **Returns:** time [s].
    """
    learned = kept_parameters(layout, *own.learned(layout), layout.zero > 0.5)
    traffic = 2.0 * layout.optimizer_bytes + 2.0 * layout.gradient_bytes + layout.weight_bytes
    casts = layout.quantized * (layout.weight_bytes + 2.0 * layout.operand_bytes) * (own.dense + own.experts)
    moved = jnp.where(layout.optimizer_bytes > 0.0, learned * traffic + casts, 0.0)
    return layout.copies * moved / memory_bandwidth
