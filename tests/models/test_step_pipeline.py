"""Pipeline and data parallelism of dense models."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import H100, decode_step, deployment, model, prefill_step

LLAMA = model("llama-2-70b")
ROOMY = H100.replace(memory_capacity=4e12)
STAGES = (2, 4, 8)


@pytest.mark.parametrize("stages", STAGES)
def test_a_pipeline_costs_a_single_sequence_nothing_but_its_sends(stages: int) -> None:
    for step in (decode_step, prefill_step):
        one, many = (step(deployment(ROOMY, pipeline=pipeline), LLAMA, 1, 1024) for pipeline in (1, stages))
        sends = float(many.kernels["pipeline_send"].time)
        assert sends > 0.0 == float(one.kernels["pipeline_send"].time)
        np.testing.assert_allclose(many.time, one.time + sends, rtol=1e-12)


def test_a_send_carries_the_activations_of_a_microbatch_between_neighbours() -> None:
    step = decode_step(deployment(ROOMY, pipeline=4), LLAMA, 64, 1024)
    microbatch = 64 / 4
    assert float(step.kernels["pipeline_send"].bytes_moved) == 3 * microbatch * 8192 * 2
    each = float(ROOMY.launch_latency) + 2 * 3e-6 + microbatch * 8192 * 2 / (0.75 * 450e9)
    np.testing.assert_allclose(step.kernels["pipeline_send"].time, 3 * each, rtol=1e-12)


@pytest.mark.parametrize("stages", STAGES)
def test_a_full_pipeline_turns_out_a_microbatch_per_stage_time(stages: int) -> None:
    """With a sequence per stage the token time is that of one microbatch: stages times the throughput."""
    alone = decode_step(deployment(ROOMY, level="high"), LLAMA, 16, 1024)
    full = decode_step(deployment(ROOMY, pipeline=stages, level="high"), LLAMA, 16 * stages, 1024)
    sends = float(full.kernels["pipeline_send"].time)
    assert float(alone.time) <= float(full.time) <= 1.05 * float(alone.time) + sends


def test_an_uneven_pipeline_waits_for_its_fullest_stage() -> None:
    even, uneven = (decode_step(deployment(ROOMY, pipeline=stages), LLAMA, 64, 1024) for stages in (8, 9))
    # 80 layers: ten each over eight stages; over nine the fullest has nine, and 9 x 9 / 80 is more than one pass
    through = sum(float(cost.time) for cost in uneven.kernels.values())
    assert float(uneven.time - uneven.host) > through
    assert float(even.time) > 0.0


@pytest.mark.parametrize("stages", STAGES)
def test_prefill_occupies_a_stage_for_its_share_of_the_pass(stages: int) -> None:
    one, many = (prefill_step(deployment(ROOMY, pipeline=pipeline), LLAMA, 1, 4096) for pipeline in (1, stages))
    assert float(one.stage_time) == float(one.time)
    assert float(many.time) / stages <= float(many.stage_time) <= 1.1 * float(many.time) / stages


@pytest.mark.parametrize("replicas", [2, 3, 8])
def test_replicas_of_a_dense_model_share_the_sequences(replicas: int) -> None:
    one = decode_step(deployment(ROOMY, tensor=2), LLAMA, 5, 1024)
    many = decode_step(deployment(ROOMY, tensor=2, data=replicas), LLAMA, 5 * replicas, 1024)
    uneven = decode_step(deployment(ROOMY, tensor=2, data=replicas), LLAMA, 4 * replicas + 1, 1024)
    assert float(many.time) == float(uneven.time) == float(one.time)
