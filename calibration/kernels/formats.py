"""The number formats of a kernel, by the words that tables have for them."""

from __future__ import annotations

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from calibration.datasets.schema import KernelTable
from jaxperf.core.formats import NumberFormat, number_format

# Number format of the weights (and of the matrix unit) and of the activations, by the tables' dtype.
FORMATS: Mapping[str, tuple[str, str]] = {
    "fp64": ("fp64", "fp64"),
    "fp32": ("fp32", "fp32"),
    "tf32": ("tf32", "tf32"),
    "bf16": ("bf16", "bf16"),
    "fp16": ("fp16", "fp16"),
    "fp8": ("fp8", "bf16"),
    "fp8_block": ("fp8", "bf16"),
    "int8": ("int8", "bf16"),
    "sq": ("int8", "bf16"),
    "int8_weight_only": ("int8_wo", "bf16"),
    "int4_weight_only": ("int4", "bf16"),
    "w4a16_mxfp4": ("mxfp4_wo", "bf16"),
    "nvfp4": ("fp4", "bf16"),
}


class Formats(eqx.Module):
    """The formats of one kernel: weights, activations, KV cache."""

    weights: NumberFormat
    activations: NumberFormat
    cache: NumberFormat


def format_columns(table: KernelTable) -> tuple[Formats, np.ndarray]:
    """The distinct formats of a table, stacked, and which of them each row has; an unknown dtype counts as bf16."""
    spelled = np.char.add(np.char.add(table.dtype.astype(str), "|"), table.cache.astype(str))
    distinct, which = np.unique(spelled, return_inverse=True)
    each = []
    for text in distinct:
        dtype, _, cache = text.partition("|")
        weights, activations = FORMATS.get(dtype, ("bf16", "bf16"))
        kept = FORMATS.get(cache, (activations, ""))[0]
        each.append(Formats(number_format(weights), number_format(activations), number_format(kept)))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each), which
