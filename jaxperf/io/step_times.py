"""Tables of step times on disk: one .npz of milliseconds a layer, as predicted for Vidur."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from hwspecs.errors import InputError
from jaxperf.models.config import Attention, ModelConfig
from jaxperf.serving.simulator.step_time import StepTimeTable

# Operators whose time depends on the tokens of the step rounded up to eight, summed; the last two see them unrounded
# or only under tensor parallelism.
ROUNDED = (
    *("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj", "mlp_act", "attn_rope"),
    *("input_layernorm", "post_attention_layernorm", "add"),
)
REQUIRED = (
    *ROUNDED,
    *("attn_kv_cache_save", "attn_decode", "attn_decode_bs", "attn_decode_kv", "attn_prefill", "attn_prefill_kv"),
)
ALL_REDUCE_LAUNCH = 0.02  # ms added to each all-reduce by Vidur for its launch
GROUPED_BATCHING = 1.1  # factor of Vidur on attention over several requests with grouped-query attention
ROUNDING = 8


def load_step_times(path: str | Path, model: ModelConfig, tensor_parallel: int) -> StepTimeTable:
    """The step times of a model from a table of one of its layers.

    **Arguments:** `model`: how many layers there are and whether their key-value heads are shared.
    **Raises:** `InputError` for a file that is not such a table, and for times that are not positive.
    """
    arrays = _arrays(Path(path))
    layers = len(model.layers)
    scale = layers * 1e-3
    tokens = np.arange(len(arrays["add"]))
    rounded = np.minimum(-(-tokens // ROUNDING) * ROUNDING, tokens[-1])
    linear = sum((arrays[name][rounded] for name in ROUNDED), arrays["attn_kv_cache_save"])
    if tensor_parallel > 1:
        if "all_reduce" not in arrays:
            raise InputError(f"{path} has no all_reduce, which tensor parallelism of {tensor_parallel} needs.")
        linear = linear + 2.0 * (arrays["all_reduce"][rounded] + ALL_REDUCE_LAUNCH)
    grouped = GROUPED_BATCHING if _shares_heads(model) else 1.0
    decode = np.vstack([np.zeros_like(arrays["attn_decode"][:1]), arrays["attn_decode"]])
    decode[2:] *= grouped
    prefill = np.hstack([np.zeros_like(arrays["attn_prefill"][:, :1]), arrays["attn_prefill"]])
    return StepTimeTable(
        tokens=jnp.asarray(linear * scale),
        decode=jnp.asarray(decode * scale),
        prefill=jnp.asarray(prefill * scale),
        shared_prefill=jnp.float64(grouped),
        bucket=jnp.float64(_bucket(arrays, Path(path))),
        length_step=jnp.float64(1.0),
    )


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name], np.float64) for name in file.files}
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror or 'not a table of step times'}.") from None
    except (ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError, AttributeError, EOFError, TypeError):
        raise InputError(f"{path} is not an .npz file of numbers.") from None
    missing = [name for name in REQUIRED if name not in arrays]
    if missing:
        raise InputError(f"{path} lacks {', '.join(missing)}; a table of step times has {', '.join(REQUIRED)}.")
    if arrays["add"].ndim != 1 or len(arrays["add"]) < 2:
        raise InputError(f"{path}: add has shape {arrays['add'].shape}; it must have a time for 0, 1, ... tokens.")
    for name in ("attn_kv_cache_save", "all_reduce", *ROUNDED):
        if name in arrays and arrays[name].shape != arrays["add"].shape:
            raise InputError(f"{path}: {name} has shape {arrays[name].shape}, but add has {arrays['add'].shape}.")
    for name in ("decode", "prefill"):
        _check_grid(arrays, name, path)
    for name, values in arrays.items():
        if not (np.isfinite(values).all() and (values >= 0.0).all()):
            raise InputError(f"{path}: {name} has times that are negative or not numbers.")
    if not (arrays["mlp_up_proj"][1:] > 0.0).all():
        raise InputError(f"{path}: mlp_up_proj has times that are zero.")
    return arrays


def _check_grid(arrays: dict[str, np.ndarray], name: str, path: Path) -> None:
    values = arrays[f"attn_{name}"]
    contexts = arrays[f"attn_{name}_kv"]
    if values.ndim != 2 or not values.size or contexts.shape != (values.shape[1 if name == "decode" else 0],):
        raise InputError(f"{path}: attn_{name} has shape {values.shape}, which does not go with attn_{name}_kv.")
    sizes = arrays["attn_decode_bs"]
    if name == "decode" and not np.array_equal(sizes, np.arange(1, len(values) + 1)):
        raise InputError(f"{path}: attn_decode_bs must be 1, 2, ..., {len(values)}.")


def _bucket(arrays: dict[str, np.ndarray], path: Path) -> float:
    """The step of the contexts, which both attention tables share and which starts at zero."""
    decode, prefill = arrays["attn_decode_kv"], arrays["attn_prefill_kv"]
    bucket = float(decode[1]) if len(decode) > 1 else 0.0
    for contexts in (decode, prefill):
        if bucket <= 0.0 or not np.array_equal(contexts, bucket * np.arange(len(contexts))):
            raise InputError(f"{path}: attn_decode_kv and attn_prefill_kv must be 0, b, 2 b, ... of one step b.")
    return bucket


def _shares_heads(model: ModelConfig) -> bool:
    """Whether key-value heads are shared by several query heads in some layer."""
    mixers = [layer.mixer for layer in model.layers if isinstance(layer.mixer, Attention)]
    return any(mixer.kv_heads < mixer.heads for mixer in mixers)
