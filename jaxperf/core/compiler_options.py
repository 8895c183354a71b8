"""What XLA is told of a program, by how often it will run: `jax.jit(..., compiler_options=...)`."""

from __future__ import annotations

# For a long program of a few points. Fusion copies an operation into every loop that reads it: the 4,000 of a serving
# step become 25,000 to 47,000. Without it, and without LLVM's optimizer, it compiles in less than half the time.
UNFUSED = {"xla_disable_hlo_passes": "fusion", "xla_backend_optimization_level": 0}
# For many points. Up to 512 bits at once where the processor can; XLA:CPU stops at 256 by itself. With AVX-512 the
# decode grid of `make bench` is a fifth faster.
WIDE_VECTORS = {"xla_cpu_prefer_vector_width": 512}
