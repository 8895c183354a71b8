"""vLLM's own scheduler (the package, no GPU) with an executor that only takes time: what `vllm_v1` must agree with.

The loop is that of the package's `EngineCore.step`: schedule, execute, take in what was sampled. Where nothing can ever
be scheduled it would turn for ever; there the request in front is rejected, as the compiled simulator does.

`python -m tests.serving.simulator.vllm_engine [COUNT]` compares COUNT (1,000) random traces of each kind, in an
environment that has `vllm` and a PyTorch for CPUs beside jaxperf. Nothing of the project depends on it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import jax
import vllm
from vllm.config import SchedulerConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from tests.serving.simulator import fuzz, reference

MODEL_LENGTH = 4096  # tokens, more than any request of a fuzzed trace
LOOKAHEADS = (  # tokens of drafts, which newer versions count at the top of their configuration
    "num_speculative_tokens",
    "num_lookahead_tokens",
    "num_prefill_lookahead_tokens",
    "num_hash_lookahead_tokens",
)
OWN = 1_000_000  # the first token that no path has


class Absent(SimpleNamespace):
    """A configuration that says nothing of what it was not given: versions differ in what they look for."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def _never(*_: object) -> bool:
    return False


def _always(*_: object) -> bool:
    return True


def scheduler_of(numbers: Mapping[str, Any], caching: bool, by_priority: bool) -> Scheduler:
    """The package's scheduler of a full-attention model; one block more, because it keeps an empty one for itself."""
    import torch

    size, blocks = int(numbers["block_size"]), int(numbers["blocks"]) + 1
    spec = FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=1, dtype=torch.float32)
    config = Absent(
        scheduler_config=SchedulerConfig(
            max_num_seqs=int(numbers["cap"]),
            max_num_batched_tokens=int(numbers["chunk"]),
            max_model_len=MODEL_LENGTH,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            policy="priority" if by_priority else "fcfs",
        ),
        cache_config=Absent(num_gpu_blocks=blocks, enable_prefix_caching=caching, block_size=size),
        model_config=Absent(max_model_len=MODEL_LENGTH),
        parallel_config=Absent(
            decode_context_parallel_size=1, prefill_context_parallel_size=1, pipeline_parallel_size=1
        ),
        observability_config=Absent(),
        aux_output_config=Absent(),
        ec_manager_config=Absent(get_encoder_cache_manager_obj=lambda: None),
        **dict.fromkeys(LOOKAHEADS, 0),
    )
    return (AsyncScheduler if numbers.get("ahead") else Scheduler)(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        ),
        structured_output_manager=Absent(should_advance=_never, accept_tokens=_always),
        block_size=size,
        mm_registry=Absent(supports_multimodal_inputs=_never),
    )


def tokens_of(one: reference.Request, size: int) -> list[int]:
    """Tokens of a request, alike in two just where their blocks are the same nodes of the prefix tree."""
    own = [OWN + one.number] * one.total
    shared = [node for node in one.path for _ in range(size)]
    return (shared + own[len(shared) :])[: one.total]


class Engine:
    """The scheduler, what of each request has been made, and how much of it must be there before it decodes."""

    def __init__(self, numbers: Mapping[str, Any], requests: list[reference.Request]) -> None:
        init_none_hash(sha256)
        self.size = int(numbers["block_size"])
        self.scheduler = scheduler_of(
            numbers, any(len(one.path) for one in requests), any(o.priority for o in requests)
        )
        self.ours = {str(one.number): one for one in requests}
        self.tokens = {key: tokens_of(one, self.size) for key, one in self.ours.items()}
        self.known = {key: one.prompt for key, one in self.ours.items()}
        self.evicted: set[str] = set()

    def add(self, one: reference.Request) -> None:
        key = str(one.number)
        self.scheduler.add_request(
            Request(
                request_id=key,
                prompt_token_ids=self.tokens[key][: one.prompt],
                sampling_params=SamplingParams(max_tokens=one.total - one.prompt, ignore_eos=True),
                pooling_params=None,
                arrival_time=float(one.number),
                priority=one.priority,
                block_hasher=get_request_block_hasher(self.size, sha256),
            )
        )

    def batch(self, output: SchedulerOutput) -> list[tuple[Any, int]]:
        """What is computed, as the plain reference counts it: a decode's last token is made, not yet in the cache."""
        batch = []
        for key, tokens in output.num_scheduled_tokens.items():
            if key in self.evicted:
                self.evicted.remove(key)
                self.known[key] = self.scheduler.requests[key].num_tokens
            before = self.scheduler.requests[key].num_computed_tokens - tokens
            decodes = before >= self.known[key]
            batch.append((SimpleNamespace(processed=before + decodes, prefilled=decodes), tokens))
        self.evicted |= set(output.preempted_req_ids or ())
        return batch

    def sampled(self, output: SchedulerOutput) -> dict[str, bool]:
        """The requests of a step just formed, and whether it computes the last of their tokens that are known."""
        return {key: not self.scheduler.requests[key].is_prefill_chunk for key in output.num_scheduled_tokens}

    def finish(self, output: SchedulerOutput, sampled: Mapping[str, bool], end: float) -> None:
        """Have the scheduler take in a token of every request that made one."""
        requests = {key: self.scheduler.requests[key] for key in sampled}
        tokens = [[self.tokens[key][requests[key].num_tokens]] if made else [] for key, made in sampled.items()]
        places = {key: index for index, key in enumerate(sampled)}
        self.scheduler.update_from_output(
            output, ModelRunnerOutput(req_ids=list(sampled), req_id_to_index=places, sampled_token_ids=tokens)
        )
        for key, made in sampled.items():
            ours, request = self.ours[key], requests[key]
            ours.restarts = request.num_preemptions
            if made and ours.first_token < 0.0:
                ours.first_token = end
            if request.is_finished():
                ours.completed = end

    def reject(self) -> None:
        key = self.scheduler.waiting.peek_request().request_id
        self.ours[key].rejected = True
        self.ours[key].restarts = self.scheduler.requests[key].num_preemptions
        self.scheduler.finish_requests(key, RequestStatus.FINISHED_ABORTED)


def simulate(
    name: str,
    numbers: Mapping[str, Any],
    requests: list[reference.Request],
    seconds: Callable[[reference.Batch], float],
) -> list[reference.Step]:
    """As `reference.simulate`, by vLLM's scheduler; its queue has as many batches as there are stages, or two ahead."""
    assert name == "vllm_v1"
    engine, coming, clock, steps = Engine(numbers, requests), list(requests), 0.0, []
    stages = [0.0] * int(numbers.get("stages", 1))
    flights, longest = [], len(stages) + bool(numbers.get("ahead"))
    while any(one.completed < 0.0 and not one.rejected for one in requests):
        while coming and coming[0].arrived <= clock:
            engine.add(coming.pop(0))
        output = engine.scheduler.schedule()
        batch = engine.batch(output)
        if batch:
            for key in output.num_scheduled_tokens:
                ours = engine.ours[key]
                ours.scheduled = clock if ours.scheduled < 0.0 else ours.scheduled
            start = end = max(clock, stages[0])
            took = seconds(batch) / len(stages)
            for stage, free_at in enumerate(stages):
                stages[stage] = end = max(end, free_at) + took
            free = engine.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
            decodes = sum(one.prefilled for one, _ in batch)
            held = (numbers["blocks"] - free) * took
            steps.append((start, end - start, len(batch), sum(tokens for _, tokens in batch), decodes, held))
            flights.append((output, engine.sampled(output), end))
            if len(flights) < longest:
                continue
        if flights:
            output, sampled, clock = flights.pop(0)
            engine.finish(output, sampled, clock)
        elif not output.preempted_req_ids and engine.scheduler.waiting:
            engine.reject()
        elif not output.preempted_req_ids and coming:
            clock = coming[0].arrived
    return steps


# Not pipelines that take requests as they come, which it does not; a prompt computed elsewhere needs a connector.
OTHERS = (", two stages", ", four stages", ", prompts brought", ", formed ahead, prompts brought")
KINDS = [kind for kind in fuzz.KINDS if "vllm_v1" in kind[2] and kind[0] not in OTHERS]


def main(count: int) -> int:
    jax.config.update("jax_enable_x64", True)
    wrong = 0
    for what, drawn, _ in KINDS:
        starts = range(0, count, 1000)
        found = [
            text
            for start in starts
            for text in fuzz.compare("vllm_v1", min(1000, count - start), start, drawn, simulate)
        ]
        wrong += len(found)
        print(
            f"vLLM {vllm.__version__}{what}: {count} traces, {len(found)} disagree", *found[:3], sep="\n  ", flush=True
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000))
