"""Nests whose operands hold zeros: what is stored, what is not read and what is not computed, on top of dense counts.

Wu et al., "Sparseloop: An Analytical Approach To Sparse Tensor Accelerator Modeling", MICRO 2022, and its sources in
Timeloop (src/sparse-analysis, src/workload/density-models, src/workload/format-models).
"""
