"""A pure JAX function of one point, evaluated over a product of named axes.

One trace per sweep and at most one compile, bounded blocks, streaming to Parquet, top-k and Pareto selections on the
fly. Knows pytrees and names only, nothing about hardware.
"""

from jaxperf.sweeps.axes import Axis, axis, stack, zip_axes
from jaxperf.sweeps.manifest import fingerprint, require_mine
from jaxperf.sweeps.pareto import pareto_mask
from jaxperf.sweeps.plan import MAX_POINTS, Block, Plan
from jaxperf.sweeps.reduce import COUNTED, Count, Pareto, Reducer, Selection, TopK
from jaxperf.sweeps.results import Results
from jaxperf.sweeps.run import BlockResult, Progress, Sweep
from jaxperf.sweeps.select import reduce_sweep
from jaxperf.sweeps.store import SWEEP_KEY, Interrupted, Stored, stream_parquet, write_selection
from jaxperf.sweeps.values import arange, geomspace, linspace, powers, whole

__all__ = [
    "MAX_POINTS",
    "COUNTED",
    "SWEEP_KEY",
    "Axis",
    "Count",
    "Block",
    "BlockResult",
    "Interrupted",
    "Pareto",
    "Plan",
    "Progress",
    "Reducer",
    "Results",
    "Selection",
    "Stored",
    "Sweep",
    "TopK",
    "arange",
    "axis",
    "fingerprint",
    "geomspace",
    "linspace",
    "pareto_mask",
    "powers",
    "reduce_sweep",
    "require_mine",
    "stack",
    "stream_parquet",
    "whole",
    "write_selection",
    "zip_axes",
]
