"""The number formats of a kernel, by the words that tables have for them."""

from __future__ import annotations

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from calibration.datasets.names import DTYPES
from calibration.datasets.schema import KernelTable
from jaxperf.core.formats import FORMATS as OF_WEIGHTS
from jaxperf.core.formats import NumberFormat, format_name, number_format

# Number format of the weights (and of the matrix unit) and of the activations, by the tables' dtype.
FORMATS: Mapping[str, tuple[str, str]] = {
    dtype: (format_name(dtype), OF_WEIGHTS[format_name(dtype)].activations) for dtype in DTYPES
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
