"""What a co-design says: a row for every machine, best first, and why it is not the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxperf.io.codesign.search import Budgets, Searched, Task
from jaxperf.loopnest.codesign.machines import Totals
from jaxperf.loopnest.evaluate import machine_area
from jaxperf.loopnest.feasible import SENTENCES
from jaxperf.sweeps.pareto import pareto_mask

COSTS = {"edp": "edp_j_cycle", "energy": "energy_j", "cycles": "cycles"}  # column of each objective
MM2 = 1e-6
EQUAL = 1e-9  # of a ratio: rounding of sums


def design_rows(
    searched: Sequence[Searched], totals: Totals, task: Task, objective: str, limits: Budgets
) -> list[dict[str, Any]]:
    """Rows that share their keys; machines that cannot run come last, in the order of the grid. Areas are told where
    the machines have any."""
    parts = [task.cases[0].unit, *task.cases[0].levels]
    # A machine that cannot run has no energies: those of its best mapping are of one that is refused.
    energies = np.where(totals.failed.any(axis=1, keepdims=True), np.nan, totals.parts)
    reasons = [_why_not(each, failed, task) for each, failed in zip(searched, totals.failed, strict=True)]
    power = totals.energy / totals.cycles * (math.nan if limits.clock is None else limits.clock)
    area = np.asarray([float(machine_area(each.design.architecture)) for each in searched])
    if limits.power is not None:
        for index in np.flatnonzero(power > limits.power):
            reasons[index] = f"takes {power[index]:.3g} W in the mean; the budget is {limits.power:.3g} W"
    if limits.area is not None:
        for index in np.flatnonzero(area > limits.area):
            reasons[index] = f"has {area[index] / MM2:.4g} mm2; the budget is {limits.area / MM2:.4g} mm2"
    runs = np.asarray([not reason for reason in reasons])
    shown = np.where(runs[:, None], np.stack([totals.energy, totals.cycles], axis=1), np.nan)
    front = pareto_mask(shown, ("min", "min"))
    rows = [
        {
            **each.design.values,
            "cycles": totals.cycles[index],
            "energy_j": totals.energy[index],
            "edp_j_cycle": totals.energy[index] * totals.cycles[index],
            **({} if limits.clock is None else {"power_w": power[index]}),
            **({} if np.isnan(area).any() else {"area_m2": area[index]}),
            **{f"energy_j.{name}": energy for name, energy in zip(parts, energies[index], strict=True)},
            "waits_for": parts[int(np.argmax(totals.waits[index]))] if runs[index] else "",
            "feasible": bool(runs[index]),
            "pareto": bool(front[index]),
            "reason": reasons[index],
        }
        for index, each in enumerate(searched)
    ]
    # Sorting is stable: equals stay in the order of the grid.
    rows.sort(key=lambda row: (not row["feasible"], row[COSTS[objective]] if row["feasible"] else 0.0))
    return [{**row, "loses_by": _loses_by(row, rows[0], parts, objective)} for row in rows]


def _why_not(searched: Searched, failed: np.ndarray, task: Task) -> str:
    """Why a machine cannot run the network: of the first layer that failed, the reason that refused most mappings."""
    layers = np.flatnonzero(failed)
    if not len(layers):
        return ""
    rejected = searched.rejected[layers[0]]
    first = task.names[layers[0]]
    why = "; ".join(
        f"{SENTENCES[reason]} ({number:,})" for reason, number in sorted(rejected.items(), key=lambda each: -each[1])
    )
    others = f" (and {len(layers) - 1} other shapes)" if len(layers) > 1 else ""
    return f"{first}{others}: {why}"


def _loses_by(row: dict[str, Any], best: dict[str, Any], parts: Sequence[str], objective: str) -> str:
    """The larger of the ratios to the best machine, of cycles or of energy, and where it comes from."""
    if not row["feasible"] or row is best:
        return ""
    names = {"edp": ("cycles", "energy_j"), "energy": ("energy_j",), "cycles": ("cycles",)}[objective]
    ratios = {name: row[name] / best[name] if best[name] else 1.0 for name in names}
    worst = max(names, key=lambda name: ratios[name])
    if math.isclose(ratios[worst], 1.0, rel_tol=EQUAL):
        return "nothing"
    if worst == "cycles":
        return f"{_times(ratios[worst], worst)}, most of them limited by {row['waits_for']}"
    more = {name: row[f"energy_j.{name}"] - best[f"energy_j.{name}"] for name in parts}
    part = max(parts, key=lambda name: more[name])
    return f"{_times(ratios[worst], 'energy')}, {part} {more[part] * 1e6:+,.4g} uJ"


def _times(ratio: float, what: str) -> str:
    """1.24 x the energy; of a ratio that would read as 1, what is more."""
    return f"{ratio:.3g} x the {what}" if f"{ratio:.3g}" != "1" else f"{100.0 * (ratio - 1.0):.2g} % more {what}"
