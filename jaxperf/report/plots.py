"""Pictures: ranking, Pareto front, roofline. Matplotlib is an extra and is imported only here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwspecs.errors import InputError
from jaxperf.io.tables import check_output
from jaxperf.io.whole_file import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

PICTURE_ENDINGS = (".png", ".svg", ".pdf")
MAX_COLORS = 10  # more devices than this share one gray


def check_picture(path: Path | None) -> None:
    """Refuse a picture that cannot be drawn before anything is computed, as `check_output` does.

    **Raises:** `InputError` for a wrong ending, a folder that is missing or not writable, or a missing matplotlib.
    """
    if path is not None:
        check_output(path, PICTURE_ENDINGS)
        new_figure(1.0, 1.0)


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """One empty figure, drawn without a display. Raises `InputError` where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("Pictures need matplotlib: pip install 'jaxperf[plot]'.") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def in_prefixes(axis: Axis, unit: str = "") -> None:
    """Numbers along an axis with the prefixes of units, 88.5 nJ, where matplotlib would set a power above the title."""
    from matplotlib.ticker import EngFormatter

    axis.set_major_formatter(EngFormatter(unit=unit))


def save(figure: Figure, path: str | Path) -> None:
    """Write the picture, whole or not at all. Raises `InputError` where it cannot be written."""
    path = Path(path)
    with whole_file(path) as temporary:
        figure.savefig(temporary, dpi=150, format=path.suffix[1:].lower())


def ranking_figure(
    title: str, unit: str, names: Sequence[str], scores: Sequence[float], ends: Sequence[tuple[float, float]]
) -> Figure:
    """Horizontal bars, best on top, each with its interval."""
    figure, axes = new_figure(8.0, 1.2 + 0.2 * len(names))
    values = np.asarray(scores)
    lower, upper = np.asarray(ends).reshape(-1, 2).T
    axes.barh(names, values, color="#3b6ea5", xerr=[values - lower, upper - values], ecolor="#666666", capsize=2)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"{unit} (bar: nominal, whisker: interval)")
    axes.set_title(title, loc="left", fontsize="medium")
    return figure


def pareto_figure(title: str, labels: Sequence[str], x: np.ndarray, y: np.ndarray, x_name: str, y_name: str) -> Figure:
    """Non-dominated points, one color for each label that appears most, joined in the order of x."""
    figure, axes = new_figure(8.0, 5.0)
    order = np.argsort(x)
    axes.plot(x[order], y[order], color="#bbbbbb", linewidth=1, zorder=1)
    names, counts = np.unique(np.asarray(labels), return_counts=True)
    shown = set(names[np.argsort(-counts)][:MAX_COLORS])
    for name in names:
        mine = np.asarray(labels) == name
        style: dict[str, Any] = {} if name in shown else {"color": "#888888"}
        axes.scatter(x[mine], y[mine], s=18, label=name if name in shown else None, zorder=2, **style)
    axes.set(xscale="log", yscale="log", xlabel=x_name, ylabel=y_name)
    axes.set_title(title, loc="left", fontsize="medium")
    axes.legend(frameon=False, fontsize="small")
    return figure


def roofline_figure(
    title: str, peak: float, bandwidth: float, kernels: Mapping[str, tuple[float, float, float]]
) -> Figure:
    """Kernels under the datasheet roofline.

    **Arguments:** `peak` [FLOP/s]; `bandwidth` [byte/s]; `kernels`: name -> (FLOP, bytes, time [s]).
    """
    figure, axes = new_figure(8.0, 5.0)
    points = {name: (f / b, f / t) for name, (f, b, t) in kernels.items() if f > 0 and b > 0}
    intensities = [intensity for intensity, _ in points.values()]
    span = np.geomspace(min([*intensities, 0.1]) / 2, max([*intensities, peak / bandwidth]) * 4, 200)
    axes.plot(span, np.minimum(peak, span * bandwidth), color="black", linewidth=1.5, label="datasheet roofline")
    for name, (intensity, rate) in points.items():
        axes.scatter(intensity, rate, s=22)
        axes.annotate(name, (intensity, rate), fontsize=7, xytext=(4, 3), textcoords="offset points")
    axes.set(xscale="log", yscale="log", xlabel="arithmetic intensity [FLOP/byte]", ylabel="achieved [FLOP/s]")
    axes.set_title(title, loc="left", fontsize="medium")
    axes.legend(frameon=False)
    return figure
