"""Mappings of a four-level machine per processor second, in 32 bits, and with the slope of their energy-delay product.

ResNet-50's 3 x 3 convolution of 64 channels on a Gemmini-like machine: random factors and orders, one compile. Rates
are per processor second, so that other work on the machine does not count; two cores make twice that.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.simulator import processor_time
from benchmarks.table import Row
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.evaluate import nest_cost
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.shapes import convolution

BLOCK, ROUNDS = 16_384, 20
TARGET, SLOPE_TARGET = 500_000, 150_000  # per core; 1,000,000 and 300,000 on two
KEPT = ((True, False, False), (False, False, True), (True, True, False), (True, True, True))


def run() -> list[Row]:
    """Rates of evaluations, and of value and gradient in the factors."""
    jax.config.update("jax_enable_x64", False)
    problem, _ = convolution(64, 64, 56, 56, (3, 3))
    architecture = machine()
    mappings = random_mappings(np.asarray(problem.bounds))

    def score(temporal: jax.Array, mapping: Mapping) -> jax.Array:
        return jnp.log(nest_cost(problem, architecture, dataclasses.replace(mapping, temporal=temporal)).edp)

    # The batch lies along the last axis, so that each factor is one contiguous column.
    values = jax.jit(jax.vmap(score, in_axes=-1))
    slopes = jax.jit(jax.vmap(jax.value_and_grad(score), in_axes=-1))
    rows = []
    for name, call, target in (("evaluations", values, TARGET), ("values and gradients", slopes, SLOPE_TARGET)):
        spent = processor_time(lambda call=call: jax.block_until_ready(call(mappings.temporal, mappings)), ROUNDS)
        what = f"{name} of 4 levels, 8 loops: per processor second"
        rows.append(Row("loopnest", what, BLOCK / spent, "1/s", f">= {target}"))
    return rows


def machine() -> Architecture:
    """Registers, accumulator, scratchpad and DRAM."""
    energies = (0.5e-12, 2e-12, 7e-12, 100e-12)
    bandwidths = (np.inf, 2.0, 32.0, 8.0)
    levels = [
        Level(read_energy=energy, write_energy=energy, update_energy=energy, shared_bandwidth=bandwidth)
        for energy, bandwidth in zip(energies, bandwidths, strict=True)
    ]
    return Architecture(tuple(levels), mac_energy=0.56e-12)


def random_mappings(bounds: np.ndarray) -> Mapping:
    """Prime factors dealt out to the levels, in random orders; batch last."""
    rng = np.random.default_rng(0)
    shape = (len(KEPT), len(bounds), BLOCK)
    temporal = np.ones(shape, np.float32)
    for dimension, bound in enumerate(bounds):
        for prime in _primes(int(bound)):
            temporal[rng.integers(len(KEPT), size=BLOCK), dimension, np.arange(BLOCK)] *= prime
    ones = np.ones(shape, np.float32)
    return Mapping(temporal, ones, ones, np.argsort(rng.random(shape), axis=1).astype(np.float32), KEPT)


def _primes(number: int) -> list[int]:
    return next(([p, *_primes(number // p)] for p in range(2, number + 1) if number % p == 0), [])


if __name__ == "__main__":
    from benchmarks.table import table

    print(table(run()))
