"""Analytical performance models of accelerators and LLM workloads, compiled with JAX.

The public names below are imported on first use (PEP 562), so that `jaxperf --help` never imports JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from jaxperf.core.version import VERSION

if TYPE_CHECKING:
    from hwspecs.errors import InputError
    from jaxperf.api import decode_step, load_device, load_devices, prefill_step, serve_step, sweep
    from jaxperf.core.device import Device
    from jaxperf.io.huggingface import load_model, read_config
    from jaxperf.io.jaxpr_graph import trace
    from jaxperf.io.lowering import lower
    from jaxperf.io.onnx_graph import read_onnx
    from jaxperf.io.workloads import load_workload
    from jaxperf.models.liveness import inference_peak
    from jaxperf.models.training_memory import training_memory
    from jaxperf.report.asked import estimate, rank
    from jaxperf.report.asked_design import design
    from jaxperf.sweeps.values import arange, geomspace, linspace, powers
    from jaxperf.training.search.plan import plan_train

__version__ = VERSION

__all__ = [
    "Device",
    "InputError",
    "arange",
    "decode_step",
    "design",
    "estimate",
    "geomspace",
    "inference_peak",
    "linspace",
    "load_device",
    "load_devices",
    "load_model",
    "load_workload",
    "lower",
    "plan_train",
    "powers",
    "prefill_step",
    "rank",
    "read_config",
    "read_onnx",
    "serve_step",
    "sweep",
    "trace",
    "training_memory",
]

_HOMES = {
    "Device": "jaxperf.core.device",
    "InputError": "hwspecs.errors",
    "arange": "jaxperf.sweeps.values",
    "decode_step": "jaxperf.api",
    "design": "jaxperf.report.asked_design",
    "estimate": "jaxperf.report.asked",
    "geomspace": "jaxperf.sweeps.values",
    "inference_peak": "jaxperf.models.liveness",
    "linspace": "jaxperf.sweeps.values",
    "load_device": "jaxperf.api",
    "load_devices": "jaxperf.api",
    "load_model": "jaxperf.io.huggingface",
    "load_workload": "jaxperf.io.workloads",
    "lower": "jaxperf.io.lowering",
    "plan_train": "jaxperf.training.search.plan",
    "powers": "jaxperf.sweeps.values",
    "prefill_step": "jaxperf.api",
    "rank": "jaxperf.report.asked",
    "read_config": "jaxperf.io.huggingface",
    "read_onnx": "jaxperf.io.onnx_graph",
    "serve_step": "jaxperf.api",
    "sweep": "jaxperf.api",
    "trace": "jaxperf.io.jaxpr_graph",
    "training_memory": "jaxperf.models.training_memory",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'jaxperf' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
