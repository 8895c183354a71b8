"""What XLA is told of a program, by how often it will run: `jax.jit(..., compiler_options=...)`."""

from __future__ import annotations

import os

import jaxlib.version

# Without LLVM's optimizer: for what runs so seldom that its passes are not repaid.
UNOPTIMIZED = {"xla_backend_optimization_level": 0}
# So that loops are written straight into LLVM's language, not by way of MLIR's: a sweep of 1.5 million points, had it
# not been left to the host, compiled in 2.9 s for 3.9, with half the processor time, and its blocks took 23 ms for 10.
# Later ones refuse an option they do not have.
STRAIGHT = {"xla_cpu_use_fusion_emitters": False} if jaxlib.version.__version_info__ < (0, 11) else {}
# For many points. Up to 512 bits at once where the processor can; XLA:CPU stops at 256 by itself. With AVX-512 the
# decode grid of `make bench` is a fifth faster.
WIDE_VECTORS = {"xla_cpu_prefer_vector_width": 512}
# For many points, in a process with `QUICK_LOOPS`: several results in one loop, which else is one for each that reads
# again what several need. For programs without loops, slopes and updates of arrays alone: jaxlib 0.10.1 aborts on the
# serving simulator, and one of 300 random programs with updates read values that were written since; none of 1,100
# without.
JOINTLY = {"xla_disable_hlo_passes": ""}
# What XLA:CPU leaves off and only a process can turn on. The first: fusion that copies no operation into the loops that
# read it, so that a sweep of training layouts is twice as fast and compiles in half the time; slopes of loop nests take
# four times as long, and a mapper's climb does not end. The second: a loop of up to a GiB, in which a program goes on
# until it is done, becomes one function, in place of a call for every operation in every turn: one lane of the serving
# simulator is five times as fast. The pass that the first brings with it is left to programs that say `JOINTLY`.
QUICK_LOOPS = (
    "--xla_backend_extra_options="
    "xla_cpu_use_multi_output_fusion=true,xla_cpu_small_while_loop_byte_threshold=1073741824",
    "--xla_disable_hlo_passes=cpu_multi_output_fusion",
)


def quicken_loops() -> None:
    """Add `QUICK_LOOPS` to `XLA_FLAGS` of this process and of those that it starts, but beside none of the user's own.

    Call it before JAX's first computation, which is when XLA reads its flags.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if not any(flag.split("=")[0] in flags for flag in QUICK_LOOPS):
        os.environ["XLA_FLAGS"] = " ".join([flags, *QUICK_LOOPS]).strip()


def loops_are_quick() -> bool:
    """Whether this process has them."""
    return QUICK_LOOPS[0] in os.environ.get("XLA_FLAGS", "")
