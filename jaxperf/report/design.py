"""A design said: what became of each fact and each measure, what limits it, and what a little more would change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import hwspecs
from hwspecs.variant import part_of
from jaxperf.core.formats import FORMATS
from jaxperf.core.relative_energy import memory_power
from jaxperf.report.text import bold, console, layout_words, quantity, table
from jaxperf.serving.design.answer import CAPACITY, Design, Question
from jaxperf.serving.design.measures import MEASURES
from jaxperf.serving.design.sized import SIZES
from jaxperf.serving.unit_costs import ENERGY_NOTE

INTERVALS = ("ttft", "tpot", "e2e_latency")  # measures that a fit gives one
METERED = "power is by a law fitted to one device (`jaxperf validate power`)"
UNCALIBRATED = "energy: uncalibrated (one device was metered, none under a limit)"
SIZED = (
    "peaks go with cores and clock, dies with the cores, the TDP with cores x clock^3 and its memory's part with the "
    "bandwidth; links cost nothing; L2 and what kernels sustain of their peaks are those of the base: a chip of its "
    "family, not another architecture"
)


def design_record(question: Question, found: Design, calibrated: bool) -> dict[str, Any]:
    """The whole answer as plain data, SI units; `calibrated`: whether the law of power met its targets."""
    best = found.best
    told = [note for note in found.made.notes if note != ENERGY_NOTE]  # of energy at the TDP, which is not asked here
    return {
        "model": question.model.name,
        "base": question.spec.name,
        "device": found.made.spec.name,
        "point": dict(found.base.point),
        "compute": FORMATS[found.base.point["weights"]].compute,
        "num_devices": int(found.base.explanation.metrics["num_devices"]),
        "minimize": question.wanted.minimize,
        "limits": dict(question.wanted.limits),
        "feasible": best.held,
        "at_an_end": list(best.edges),
        "prices": dict(best.prices),
        "rows": [*_fact_rows(question, found), *_measure_rows(question, found)],
        "notes": [*told, SIZED, *_unknown(question), METERED if calibrated else UNCALIBRATED],
        "provenance": dict(found.made.provenance.record),
    }


def _unknown(question: Question) -> list[str]:
    """What a design counts for nothing, or needs beside it."""
    spec, notes = question.spec, []
    if "memory_bandwidth" in question.free and memory_power(spec) == 0.0:
        notes.append(f"what a byte of memory draws is not known of {spec.name}: bandwidth adds nothing to the TDP")
    if spec.name not in hwspecs.names():
        notes.append(f"a file of this design starts from {spec.name}: --devices-dir with the folder of that finds it")
    return notes


def _fact_rows(question: Question, found: Design) -> list[dict[str, Any]]:
    rows = []
    for name, number in found.changes.items():
        if isinstance(number, Mapping):
            old = getattr(question.spec, name)
            rows += [_row(f"{name}.{part}", part_of(old, part), at) for part, at in number.items()]
        else:
            rows.append(_row(name, getattr(question.spec, name), number))
    return rows


def _row(name: str, old: Any, number: float) -> dict[str, Any]:
    empty = dict.fromkeys(("lower", "upper", "limit", *(f"per_{size}" for size in SIZES)))
    return {"what": "fact", "name": name, "unit": old.unit, "base": old.si, "design": float(number), **empty}


def _measure_rows(question: Question, found: Design) -> list[dict[str, Any]]:
    made, rows = found.made.explanation.metrics, []
    for name, (unit, _) in MEASURES.items():
        if name not in found.before:
            continue
        ends = {end: float(made[f"{name}_{end}"]) if name in INTERVALS else None for end in ("lower", "upper")}
        slopes = {f"per_{size}": found.best.slopes[name][size] for size in SIZES}
        limit = question.wanted.limits.get(name)
        numbers = {"base": found.before[name], "design": found.best.measures[name], **ends, "limit": limit}
        rows.append({"what": "measure", "name": name, "unit": unit, **numbers, **slopes})
    return rows


def print_design(record: Mapping[str, Any], provenance: str, quiet: bool) -> None:
    """Print the answer as text."""
    out, point = console(), record["point"]
    served = (
        f" on {record['num_devices']} x {record['device']}, from {record['base']} ({layout_words(point)}), batch "
        f"{point['batch']}, {point['prompt']} tokens in, {point['output']} out, weights {point['weights']}"
    )
    out.print(bold(record["model"], f"{served}\n"), soft_wrap=True)
    facts = [row for row in record["rows"] if row["what"] == "fact"]
    multiplied = f"peak_flops.{record['compute']}"  # one of the peaks stands for all
    shown = [row for row in facts if not row["name"].startswith("peak_flops") or row["name"] == multiplied]
    cells = [
        (row["name"], _said(row, "base"), _said(row, "design"), f"{row['design'] / row['base']:.2f}") for row in shown
    ]
    out.print(table("The device", ("fact", record["base"], record["device"], "ratio"), cells))
    rows = [row for row in record["rows"] if row["what"] == "measure"]
    columns = ("measure", record["base"], record["device"], "90 %", "limit")
    out.print(table(f"Least {record['minimize']}", columns, [_measure_cells(row) for row in rows]))
    slopes = [(row["name"], *(f"{row[f'per_{size}']:+.2f}" for size in SIZES)) for row in rows]
    out.print(table("% more for 1 % more of", ("measure", *SIZES), slopes))
    for line in _sentences(record):
        out.print(line, soft_wrap=True)
    if quiet:
        return
    out.print(f"from       {provenance}", soft_wrap=True)
    for note in record["notes"]:
        out.print(f"note       {note}", soft_wrap=True)


def _measure_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    ends = "" if row["lower"] is None else f"[{_said(row, 'lower')}, {_said(row, 'upper')}]"
    limit = "" if row["limit"] is None else _said(row, "limit")
    return row["name"], _said(row, "base"), _said(row, "design"), ends, limit


def _said(row: Mapping[str, Any], column: str) -> str:
    return quantity(row[column], row["unit"], 4)


def _sentences(record: Mapping[str, Any]) -> list[str]:
    """What limits the design."""
    lines = []
    if not record["feasible"]:
        named = {row["name"]: row for row in record["rows"] if row["what"] == "measure"}
        missed = [name for name, limit in record["limits"].items() if named[name]["design"] > limit]
        lines.append(f"infeasible: no sizes within these ranges hold the limit of {' and '.join(missed)}; the nearest")
    for name, price in record["prices"].items():
        lines.append(f"limited by {name}: 1 % more of it would take {price:.2f} % off {record['minimize']}")
    for name in record["at_an_end"]:
        lines.append(f"{name} is at an end of its range; --free {name}=LOW:HIGH gives another")
    if CAPACITY in [row["name"] for row in record["rows"]]:
        lines.append(f"{CAPACITY} is what the memory has to hold; it costs nothing here")
    return lines
