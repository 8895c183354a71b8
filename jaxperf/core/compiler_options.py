"""What XLA is told of a program, by how often it will run: `jax.jit(..., compiler_options=...)`."""

from __future__ import annotations

import os

# For a long program of a few points. Fusion copies an operation into every loop that reads it: the 4,000 of a serving
# step become 25,000 to 47,000. Without it, and without LLVM's optimizer, it compiles in less than half the time.
UNFUSED = {"xla_disable_hlo_passes": "fusion,cpu_multi_output_fusion", "xla_backend_optimization_level": 0}
# For many points. Up to 512 bits at once where the processor can; XLA:CPU stops at 256 by itself. With AVX-512 the
# decode grid of `make bench` is a fifth faster.
WIDE_VECTORS = {"xla_cpu_prefer_vector_width": 512}
# For many points, where the process has `JOINT_RESULTS`: several results in one loop. XLA:CPU writes each in a loop of
# its own, which reads again what several need. For programs without loops, slopes and updates of arrays alone: jaxlib
# 0.10.1 aborts on the serving simulator, takes four times as long for the slopes of loop nests, and in one of 300 random
# programs with updates read values that were written since; in none of 1,100 without.
JOINTLY = {"xla_disable_hlo_passes": ""}
# XLA has that fusion but leaves it off, and only a process can turn it on: so it is on, and out of every program's
# passes that does not say `JOINTLY`.
JOINT_RESULTS = (
    "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion=true",
    "--xla_disable_hlo_passes=cpu_multi_output_fusion",
)


def offer_joint_results() -> None:
    """Add `JOINT_RESULTS` to `XLA_FLAGS` of this process and of those that it starts, but beside none of the user's.

    Call it before JAX's first computation, which is when XLA reads its flags.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if not any(flag.split("=")[0] in flags for flag in JOINT_RESULTS):
        os.environ["XLA_FLAGS"] = " ".join([flags, *JOINT_RESULTS]).strip()
