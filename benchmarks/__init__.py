"""Benchmarks: ratios measured in one run, each beside its target. `python -m benchmarks [NAME ...] [--json FILE]`.

What is measured:

- `vs_numpy`: the whole decode step of Llama-3-70B (collectives, host, memory, feasibility) over a grid of more than a
  million points, by a jaxperf sweep and by `numpy_decode`, an independent NumPy implementation of the same equations
  that broadcasts each quantity over its own axes only; NumPy also blocked so that its temporaries stay in the cache.
  And what the ratio would be if the formula cost nothing: a sweep of the same results, one operation each.
- `vs_llm_analysis`: time per configuration of llm-analysis 0.2.2 (PyPI, optional) and of jaxperf in a sweep.
- `fraction_of_copy`: the GEMM formula over dense float32 columns, as bandwidth over that of a copy on this machine.
- `one_compile`: programs that XLA compiles during a sweep of many blocks.
- `million_sweep`: cold start to a Parquet file of more than a million configurations; time and peak memory.
- `kernel_table`: a million kernels predicted with the shipped parameters, in memory and by the whole command.
- `graph_grid`: whole iterations predicted and composed, devices x batches, and their slope.
- `training_sweep`: training layouts a second, against the same equations in plain Python.
- `stochastic`: the distribution of a step time against Monte-Carlo.
- `loopnest`, `mapper`: mappings a processor second; the mapper against other searches and its own bound.
- `simulator`, `fleet`: requests a processor second of the serving simulator, one replica and coupled ones.
- `steady_state`: configurations a processor second of the steady state (`steady_errors`, on its own, compares it with
  the simulator).
- `cold_start`: `python -m jaxperf --help` and the imports.
- `compile_time`: tracing and compiling the point functions of a study.

How: every benchmark runs in a process of its own. Comparisons are pinned to one core before JAX starts its threads,
contenders agree on the results before they are timed, alternate (A B A B ...), and each counts with the median of its
processor time. What a user waits for (`million_sweep`, `cold_start`) runs unpinned. Absolute rates depend on the
machine and on what else runs there; the ratios are the result.
"""
