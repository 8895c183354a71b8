"""The picture of a design: what it costs over its free sizes, and where each limit lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxperf.report.plots import in_prefixes, new_figure
from jaxperf.report.text import quantity
from jaxperf.serving.design.answer import Design, Question
from jaxperf.serving.design.landscape import Landscape, landscape
from jaxperf.serving.design.measures import MEASURES
from jaxperf.serving.design.search import Wanted
from jaxperf.serving.design.sized import size_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

LEVELS = 12  # of the cost, evenly in its logarithm
MOST = 3.0  # of a measure over its limit that is drawn
REFUSED = "#cccccc"
LINES = ("#c44e52", "#8172b3", "#dd8452", "#55a868", "#4c72b0")


def design_figure(question: Question, found: Design) -> Figure:
    """The cost over two free sizes with a line for each limit, or over one beside the measures that are limited; gray
    where a limit is exceeded or the model cannot run."""
    figure, axes = new_figure(8.0, 6.0)
    seen, wanted = landscape(question, found), question.wanted
    held = np.isfinite(seen.measures["tpot"])
    for name, limit in wanted.limits.items():
        held &= seen.measures[name] <= limit
    (_map if len(seen.sizes) == 2 else _curves)(axes, wanted, seen, held)
    _devices(axes, question, found, list(seen.sizes))
    for axis, name in zip((axes.xaxis, axes.yaxis), seen.sizes, strict=False):
        _ticks(axis, name, size_of(question.spec, name).unit)
    title = f"{question.model.name} from {question.spec.name}: least {wanted.minimize}"
    axes.set_title(title, loc="left", fontsize="medium")
    axes.legend(fontsize="small", framealpha=1.0)
    return figure


def _map(axes: Axes, wanted: Wanted, seen: Landscape, held: np.ndarray) -> None:
    from matplotlib.lines import Line2D

    (x, y), cost = seen.sizes.values(), seen.measures[wanted.minimize].T
    axes.set(xscale="log", yscale="log")
    axes.contourf(x, y, np.where(held.T, 0.0, 1.0), levels=[0.5, 1.5], colors=[REFUSED], alpha=0.7, zorder=2)
    low, high = float(np.nanmin(cost)), float(np.nanmax(cost))
    if low < high:
        levels = np.geomspace(low, high, LEVELS + 1)
        drawn = axes.contourf(x, y, cost, levels=levels, cmap="viridis", zorder=1)
        bar = axes.figure.colorbar(drawn, ax=axes, label=wanted.minimize)
        bar.ax.set_yticks(levels, [quantity(each, _unit(wanted.minimize)) for each in levels.tolist()])
    for (name, limit), color in zip(wanted.limits.items(), LINES, strict=False):
        axes.contour(x, y, seen.measures[name].T, levels=[limit], colors=[color], linewidths=2, zorder=3)
        axes.add_line(Line2D([], [], color=color, linewidth=2, label=f"{name} {quantity(limit, _unit(name))}"))


def _curves(axes: Axes, wanted: Wanted, seen: Landscape, held: np.ndarray) -> None:
    (x,) = seen.sizes.values()
    cost = seen.measures[wanted.minimize]
    axes.set(xscale="log", ylabel="over its limit, or the most in this range")
    axes.plot(x, cost / np.nanmax(cost), color="black", label=wanted.minimize)
    for (name, limit), color in zip(wanted.limits.items(), LINES, strict=False):
        axes.plot(x, seen.measures[name] / limit, color=color, label=f"{name} {quantity(limit, _unit(name))}")
    axes.axhline(1.0, color="black", linewidth=0.5)
    axes.fill_between(x, 0.0, 1.0, where=~held, transform=axes.get_xaxis_transform(), color=REFUSED, alpha=0.7)
    axes.set_ylim(0.0, min(axes.get_ylim()[1], MOST))


def _devices(axes: Axes, question: Question, found: Design, names: Sequence[str]) -> None:
    """The base and the design."""
    for spec, marker in ((question.spec, "o"), (found.made.spec, "*")):
        x, *y = (size_of(spec, name).si for name in names)
        whole = marker == "*"  # the design lies within the ranges, if at an end
        style = {"marker": marker, "s": 120, "c": "white", "ec": "black", "clip_on": not whole}
        axes.scatter(x, *(y or [0.05]), zorder=5, label=spec.name, **style)


def _ticks(axis: Axis, name: str, unit: str) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_label_text(name if unit == "1" else f"{name} [{unit}]")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_formatter(NullFormatter())
    in_prefixes(axis)


def _unit(name: str) -> str:
    return MEASURES[name][0] if name in MEASURES else "1"
