"""What `jaxperf codesign` says of the machines that it compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SHOWN = 20  # machines in the table; a file holds all


def print_machines(record: dict[str, Any], rows: list[dict[str, Any]], free: list[str], quiet: bool) -> None:
    from jaxperf.io.codesign.rows import MM2
    from jaxperf.report.text import console, counted, print_notes, quantity, table

    out = console()
    running = [row for row in rows if row["feasible"]]
    cells = [
        (
            *(f"{row[name]:g}" for name in free),
            f"{row['cycles']:,.0f}",
            quantity(row["energy_j"], "J", 4),
            f"{row['edp_j_cycle']:.5g}",
            *((quantity(row["power_w"], "W", 3),) if "power_w" in row else ()),
            *((f"{row['area_m2'] / MM2:.4g}",) if "area_m2" in row else ()),
            "*" if row["pareto"] else "",
            row["loses_by"] or "best",
        )
        for row in running[:SHOWN]
    ]
    more = [title for name, title in (("power_w", "power"), ("area_m2", "mm2")) if name in rows[0]]
    columns = (*free, "cycles", "energy", "EDP, J cycle", *more, "front", "against the best")
    out.print(table(f"Machines by {record['objective']}", columns, cells))
    if len(running) > SHOWN:
        out.print(f"{counted(len(running) - SHOWN, 'more machine')} that can run; -o FILE writes all")
    for row in rows[len(running) :]:
        named = ", ".join(f"{name}={row[name]:g}" for name in free)
        out.print(f"infeasible: {named}: {row['reason']}", soft_wrap=True)
    print_notes(out, record["notes"], quiet)
    if not quiet:
        cut = len(rows) - record["mapped"]
        more_cut = f", {cut} more cut to what the mappings of one need" if cut else ""
        out.print(
            f"{counted(record['layers'], 'layer')} of {counted(record['shapes'], 'shape')} on {record['mapped']} of "
            f"{counted(record['machines'], 'machine')}{more_cut}; "
            "* no other machine has both less energy and fewer cycles",
            soft_wrap=True,
        )


def draw_machines(rows: list[dict[str, Any]], free: list[str], plot: Path) -> None:
    """Energy against cycles of all machines that run, a color for each value of the first free field; the front has
    rings and a line."""
    from jaxperf.report.plots import in_prefixes, new_figure, save

    running = sorted((row for row in rows if row["feasible"]), key=lambda row: row["cycles"])
    front = [row for row in running if row["pareto"]]
    figure, axes = new_figure(8.0, 5.0)
    axes.plot(*_places(front), color="#888888", linewidth=1, marker="o", markersize=11, fillstyle="none", label="front")
    for value in sorted({row[free[0]] for row in running}):
        mine = [row for row in running if row[free[0]] == value]
        axes.scatter(*_places(mine), s=22, zorder=2, label=f"{free[0]} {value:g}")
    axes.set(xlabel="cycles", ylabel="energy")
    in_prefixes(axes.xaxis)
    in_prefixes(axes.yaxis, "J")
    axes.set_title("Machines with the best mappings found", loc="left", fontsize="medium")
    axes.legend(frameon=False, fontsize="small")
    save(figure, plot)


def _places(rows: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    return [row["cycles"] for row in rows], [row["energy_j"] for row in rows]
