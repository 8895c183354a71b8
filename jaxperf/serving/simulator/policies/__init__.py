"""Scheduling policies, one file each; `POLICIES` names them as settings files do."""

from __future__ import annotations

from jaxperf.serving.simulator.policies.base import Policy
from jaxperf.serving.simulator.policies.lightllm import LIGHTLLM
from jaxperf.serving.simulator.policies.orca import ORCA
from jaxperf.serving.simulator.policies.sarathi import SARATHI, SARATHI_OF_VIDUR
from jaxperf.serving.simulator.policies.static_batch import STATIC_BATCH
from jaxperf.serving.simulator.policies.vllm_v0 import VLLM_V0
from jaxperf.serving.simulator.policies.vllm_v1 import VLLM_V1

POLICIES: dict[str, Policy] = {
    "vllm": VLLM_V0,
    "vllm_v1": VLLM_V1,
    "sarathi": SARATHI_OF_VIDUR,
    "sarathi_fixed": SARATHI,
    "orca": ORCA,
    "faster_transformer": STATIC_BATCH,
    "lightllm": LIGHTLLM,
}
