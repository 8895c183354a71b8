"""Run a sweep only for what its reducers keep; nothing else is stored."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from jaxperf.sweeps.reduce import Reducer, Selection, update_all
from jaxperf.sweeps.run import Progress, Sweep


def reduce_sweep(sweep: Sweep, reducers: Sequence[Reducer], progress: Progress | None = None) -> tuple[Selection, ...]:
    """Run the whole sweep, keeping only what the reducers keep.

    **Arguments:** `sweep`: the sweep. `reducers`: such as `TopK` and `Pareto`. `progress`: called after each block.

    **Returns:** one `Selection` per reducer; `sweep.rows(selection)` gives the labels that belong to it.

    **Raises:** `InputError` if a reducer names a metric the sweep lacks.
    """
    for reducer in reducers:
        reducer.check(tuple(sweep.metrics))
    kept: list[Selection | None] = [None] * len(reducers)
    with closing(sweep.blocks()) as blocks:
        for result in blocks:
            kept = update_all(reducers, kept, result.block.start, result.columns)
            if progress is not None:
                progress(result.block.stop, sweep.plan.points)
    return tuple(selection for selection in kept if selection is not None)
