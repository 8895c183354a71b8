"""What is believed of a family's law before any row: priors of its parameters, and of what its levels may differ by."""

from __future__ import annotations

from collections.abc import Mapping

import equinox as eqx
import numpy as np

from calibration.kernels.demand import STREAMS
from calibration.kernels.features import REDUCING
from calibration.kernels.model import LAW_LEVELS

# Prior mean and standard deviation of the law's parameters. 0.2 and 0.18: four fifths of a datasheet rate; 3 us: what
# a kernel takes at least under graph replay; `on_chip`: a core takes 64 bytes a cycle from L2, give or take a tenth,
# once DRAM has delivered (`on_chip_sharpness` 0); `cache_share`: a kernel timed again and again on the same buffers
# finds them in L2 while they fill most of it; `floor_clock`: half of the floor is cycles on the device, half is not;
# `host`: what it takes to launch one kernel, of a call of PyTorch on the A100; `gddr`, `inline_ecc`: GDDR comes nearer
# its datasheet than HBM, and check bits that share its bus take at least the 1/16 of it that they take of the memory
# (A40: 45 of 48 GB are left), and more where a write is of less than they cover; both means were set with the measured
# tables in sight (docs/kernel-laws.md).
PRIORS = {
    "compute": (0.2, 0.1),
    "special": (0.0, 0.2),
    "memory": (0.18, 0.08),
    "floor": (float(np.log(3e-6)), 0.4),
    "power": (0.0, 0.2),
    "power_clock": (2.0, 0.3),  # voltage follows the clock
    "throttle": (1.0, 0.01),
    "on_chip": (0.0, 0.15),
    "on_chip_sharpness": (0.0, 0.2),
    "sharpness": (1.0, 0.4),
    "block": (float(np.log(0.5e-6)), 0.7),
    "floor_clock": (0.5, 0.25),
    "host": (float(np.log(27e-6)), 0.4),
    "ahead": (float(np.log(1e-6)), 0.01),  # nothing of it, but of streams
    "cache_share": (-0.4, 0.4),
    "cache_slope": (1.0, 0.3),
    "gddr": (-0.08, 0.04),
    "inline_ecc": (0.12, 0.05),
}
ATTENTION = {"compute": (0.5, 0.3), "memory": (0.3, 0.2), "floor": (float(np.log(5e-6)), 0.7)}
# With the exponentials and the loads of operands beside them, products run at nearly their peak. A block first has to
# load what it computes, so that times add up nearly as much as they overlap; it starts in two microseconds, the latency
# of its first loads and of its last writes; and the floor is cycles of the device, several latencies in a row. Set with
# the measured tables in sight (docs/kernel-laws.md).
PREFILL = ATTENTION | {
    "compute": (0.12, 0.1),
    "sharpness": (0.2, 0.15),
    "block": (float(np.log(2e-6)), 0.4),
    "floor_clock": (0.9, 0.1),
}
# The rates of its blocks are those of `calibration.datasets.decode_kernels`, and so is the unit of their starts: some
# 9,000 cycles, 5 us at the H100's clock. A cache that is read again and again from the first key to the last is found
# in L2 as a whole or hardly at all (least recently used): a steep fall where it fills most of it. All were set with the
# tables in sight.
DECODE = {
    "compute": (0.0, 0.2),
    "block": (float(np.log(5e-6)), 0.3),
    "cache_share": (-0.2, 0.15),
    "cache_slope": (2.3, 0.2),
}
LATENT = {
    "compute": (0.05, 0.1),
    "memory": (0.11, 0.08),
    "floor_clock": (0.9, 0.1),
    "sharpness": (1.2, 0.2),
    "block": (float(np.log(5e-6)), 0.3),
    "cache_share": (-0.2, 0.15),
    "cache_slope": (2.3, 0.2),
    "floor": (float(np.log(5e-6)), 0.4),
}
# Where a family differs by what is known of it: softmax shares the pipeline of an attention kernel, grouped
# GEMMs are several launches with a sort before them, row-wise kernels are often launched eagerly.
FAMILY_PRIORS = {
    # The power limit is a term of its own; a matrix unit that it does not slow comes near its peak (0.93 on the H20).
    # The tables cycle half a dozen weights, so a sixth of L2 each. The floor is what is left without the waits of a
    # reduction's steps (`calibration.kernels.products`).
    "gemm": {"compute": (0.06, 0.05), "cache_share": (-1.8, 0.3), "floor": (float(np.log(2e-6)), 0.4)},
    "attention_prefill": PREFILL,
    "attention_decode": ATTENTION | DECODE,
    "mla_prefill": PREFILL,
    "mla_decode": LATENT,
    # Blocks, their steps and their traffic from L2 are counted (`calibration.kernels.experts`), so that products run
    # nearer their peak and memory its rate; set with the tables in sight.
    "moe": {
        "compute": (0.2, 0.2),
        "memory": (0.12, 0.1),
        "floor": (float(np.log(15e-6)), 0.7),
        "on_chip": (0.6, 0.3),
        "block": (float(np.log(0.6e-6)), 0.3),
        "cache_share": (0.0, 0.2),
        "cache_slope": (float(np.log(6.0)), 0.3),
    },
}
# Matrix products on vector units: every operand passes the register file, so a FLOP takes several times the energy of
# one in a matrix unit. The voltage follows the clock in part: from device to device a FLOP costs f^1.3, and a device
# that its limit would slow by s at one voltage is slower by s^0.6 (1/3 with V in proportion to f, 1 where V is
# constant). Both are of a calculation by hand from the rates of the T4, A100 and L4 under their limits; devices under
# their limit are too few to fit `throttle`, so it is held. Tables are launched eagerly.
ON_VECTOR_UNITS = {
    "compute": (0.15, 0.1),
    "memory": (0.6, 0.4),
    "floor": (float(np.log(20e-6)), 0.7),
    "power": (2.3, 0.3),
    "power_clock": (1.3, 0.3),
    "throttle": (0.6, 0.01),
}
FAMILY_PRIORS |= dict.fromkeys(("gemm_vector", "bmm", "convolution"), ON_VECTOR_UNITS)
# Streams on vector units take a core between ten and several hundred instructions an element; four fifths of the
# bandwidth is then the memory's doing, and what is missing from it the cores'.
# A call of PyTorch that is timed between two events: the host takes half of its time before the kernel starts (P100 22
# of 45 us, V100 16 of 32, A100 14 of 27, MI100 10 of 17), and its whole time is seen where the kernel is shorter than
# the rest. 20 us is what is assumed of a host that is not known; the measured ones, 14 to 60 us, are the stacks'. Both
# were set with the tables in sight.
CALLED = {"host": (float(np.log(20e-6)), 0.3), "ahead": (float(np.log(0.5)), 0.2)}
FAMILY_PRIORS |= dict.fromkeys(STREAMS, {"compute": (2.0, 0.5), "memory": (0.2, 0.15)} | CALLED)
# Those that reduce wait between their two passes over a row: nearer the upper end of that. Of softmax, no core can take
# longer than the fastest large rows show, 21 to 26 times its instructions' time on A100, P100 and MI210; what short
# rows take beyond is not the cores'. Set with the tables in sight.
FAMILY_PRIORS |= {name: FAMILY_PRIORS[name] | {"compute": (3.5, 0.5)} for name in REDUCING}
FAMILY_PRIORS["softmax"] |= {"compute": (3.0, 0.2)}
# A product on matrix units fetches its next tiles while it multiplies, from DRAM and from L2 at once. The rows of a fit
# tell that in no family; it was chosen on devices left out, with NeuSight's iterations in sight (docs/kernel-laws.md):
# decode attention is so as well since its blocks have a rate of their own; other attention and RoPE are better with the
# sum.
PIPELINED = ("gemm", "moe", "mla_pre", "mla_post", "mla_decode", "attention_decode")
# Streams whose warps load while others compute; of RoPE and lookups the sum remained better.
PIPELINED += ("norm", "softmax", "elementwise", "quantize")
FAMILY_PRIORS |= {
    family: FAMILY_PRIORS.get(family, {}) | {"on_chip_sharpness": (float(np.log(4.0)), 0.2)} for family in PIPELINED
}
# A kernel repeated on the same operands finds them all in L2 or, once they exceed it, none of them (least recently
# used): a steep fall near its size, on an H100 at three quarters of it, on an L40S at the whole. Rows of a head's
# product lie apart in memory, which then gives less. Set with the tables in sight.
REPEATED = {"cache_share": (-0.2, 0.15), "cache_slope": (float(np.log(8.0)), 0.3)}
FAMILY_PRIORS["quantize"] |= REPEATED | {"cache_share": (-0.1, 0.15)}
for _family in ("mla_pre", "mla_post"):
    FAMILY_PRIORS[_family] |= REPEATED | {"memory": (0.3, 0.15)}
OFFSET_SPREAD = (0.3, 0.2, 0.5)  # how far the levels' compute, memory and floor may be from the family's
FAMILY_OFFSET_SPREAD = dict.fromkeys(STREAMS, (1.0, 0.15, 0.5))
# Of kernels with many stacks, how fast one runs is its own: what a format or a framework has in common is little, and
# where a generation has it alone, cannot be told from the generation.
MANY_STACKS = ("gemm", "norm", "elementwise")
FAMILY_OFFSET_SPREAD |= dict.fromkeys(("gemm", "norm", "softmax"), (0.15, 0.1, 0.5))
FAMILY_OFFSET_SPREAD["elementwise"] = (1.0, 0.1, 0.5)  # from vectors of 16 bytes to one element a thread
FAMILY_OFFSET_SPREAD["norm"] = (0.15, 0.1, 1.0)  # one fused kernel in a graph, or ten that a host launches
# A stack's offsets relative to those. Attention libraries write a kernel for each generation, so that most stacks have
# run on one device alone: what seems to be the stack's may be the device's, and more of it is left to the correction.
STACK_SHARE: dict[str, float] = dict.fromkeys(("attention_prefill", "attention_decode", "mla_prefill"), 0.5)
STACK_SHARE |= dict.fromkeys(MANY_STACKS, 2.0)
HABIT_SPREAD, HABIT_OFFSET_SPREAD = 0.3, 0.1  # how far a habit's power may be from 0, and a level's from the family's
# Families whose tables name the kernel that a library chose after looking at the device: such a name says where it ran,
# so the law, which has to hold on other devices, learns nothing from it.
NAMED_BY_LIBRARY: frozenset[str] = frozenset(("gemm_vector", "bmm", "convolution"))


class Priors(eqx.Module):
    """Of a family's law: mean and standard deviation of each scalar; `spread`: standard deviations of the levels'
    offsets, in the order of `model.LAW`; `stack`: a stack's relative to those; `levels`: which levels have any."""

    scalars: Mapping[str, tuple[float, float]]
    spread: tuple[float, float, float]
    stack: float
    levels: tuple[str, ...]


def priors_of(family: str) -> Priors:
    """What is believed of a family's law before any row."""
    levels = LAW_LEVELS[:-1] if family in NAMED_BY_LIBRARY else LAW_LEVELS
    scalars = PRIORS | FAMILY_PRIORS.get(family, {})
    return Priors(scalars, FAMILY_OFFSET_SPREAD.get(family, OFFSET_SPREAD), STACK_SHARE.get(family, 1.0), levels)
