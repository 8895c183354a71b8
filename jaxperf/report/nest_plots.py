"""Pictures of a mapped loop nest: where its energy goes, and how near each level is to its bandwidth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.report.plots import in_prefixes, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


DASH = 5.0  # points, and the diameter of a dot


class Roof(NamedTuple):
    """A port of a level: `bandwidth` of all its instances [word/cycle], `words` that the mapping moves through it."""

    name: str
    bandwidth: float
    words: float


def nest_figure(title: str, answer: Mapping[str, Any], architecture: Architecture, levels: Sequence[str]) -> Figure:
    """Energy by level and tensor, beside the roofline of the machine with a point for every port of a level.

    **Arguments:** `answer`: of `jaxperf.io.timeloop.case.cost_record`; `levels`: names from the innermost.
    """
    figure, left = new_figure(12.0, 5.0)
    grid = figure.add_gridspec(1, 2)
    left.set_subplotspec(grid[0])
    right = figure.add_subplot(grid[1])
    _energy(left, answer)
    _roofline(right, answer, architecture, levels)
    left.set_title(title, loc="left", fontsize="medium")
    return figure


def _energy(axes: Axes, answer: Mapping[str, Any]) -> None:
    """Bars from the innermost level at the bottom; what no tensor takes is leakage, or the units' work."""
    names = list(answer["levels"])
    tensors = list(dict.fromkeys(tensor for level in answer["levels"].values() for tensor in level["tensors"]))
    start = np.zeros(len(names))
    for tensor in tensors:
        parts = [level["tensors"].get(tensor, {}).get("energy_j", 0.0) for level in answer["levels"].values()]
        axes.barh(names, parts, left=start, label=tensor)
        start = start + parts
    whole = np.array([level["energy_j"] for level in answer["levels"].values()])
    axes.barh(names, np.maximum(whole - start, 0.0), left=start, color="#999999", label="units, leakage")
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("energy")
    axes.set_xlim(right=1.05 * float(whole.max()) or None)
    in_prefixes(axes.xaxis, "J")
    axes.legend(frameon=False, fontsize="small")


def _roofline(axes: Axes, answer: Mapping[str, Any], architecture: Architecture, levels: Sequence[str]) -> None:
    macs, achieved = float(architecture.macs), answer["macs"] / answer["cycles"]
    roofs = [
        roof
        for name, level in zip(levels, architecture.levels, strict=True)
        for roof in level_roofs(name, level, answer["levels"][name])
    ]
    reached = [answer["macs"] / roof.words for roof in roofs]
    edges = [*reached, *(macs / roof.bandwidth for roof in roofs), 1.0]
    span = np.geomspace(min(edges) / 2.0, max(edges) * 2.0, 100)
    axes.axhline(macs, color="black", linewidth=1.5, label="units")
    for roof, intensity, dashes, size in zip(roofs, reached, _dashes(roofs), _sizes(reached), strict=True):
        rate = np.minimum(span * roof.bandwidth, macs)
        (line,) = axes.plot(span, rate, linewidth=1, linestyle=dashes, label=roof.name)
        axes.scatter(intensity, achieved, s=size, color=line.get_color(), zorder=3)
    axes.set(xscale="log", yscale="log", xlabel="operations per word through a port", ylabel="operations per cycle")
    axes.set_title("A point on its line: that port limits", loc="left", fontsize="medium")
    axes.legend(frameon=False, fontsize="small")


def _dashes(roofs: Sequence[Roof]) -> Iterator[Any]:
    """Of lines on top of each other each has dashes in the gaps of the others, so that the colors alternate."""
    alike = [[other for other in roofs if math.isclose(other.bandwidth, roof.bandwidth)] for roof in roofs]
    for roof, same in zip(roofs, alike, strict=True):
        gap = DASH * (len(same) - 1)
        yield (DASH * same.index(roof), (DASH, gap)) if gap else "-"


def _sizes(reached: Sequence[float]) -> Iterator[float]:
    """Areas of points: of those at one place each that is drawn earlier is a ring around the later ones [points^2]."""
    for index, intensity in enumerate(reached):
        above = sum(math.isclose(intensity, other) for other in reached[index + 1 :])
        yield (DASH * (1.0 + above)) ** 2


def level_roofs(name: str, level: Level, found: Mapping[str, Any]) -> Iterator[Roof]:
    """The ports of a level whose bandwidth is limited and that move any word."""
    reads, writes = (
        found["instances"] * sum(counts[kind] for counts in found["tensors"].values() for kind in kinds)
        for kinds in (("reads",), ("fills", "updates"))
    )
    ports = {"reads": (level.read_bandwidth, reads), "writes": (level.write_bandwidth, writes)}
    ports["both"] = (level.shared_bandwidth, reads + writes)
    for kind, (bandwidth, words) in ports.items():
        whole = float(bandwidth) * found["instances"]
        if 0.0 < whole < math.inf and words > 0.0:
            yield Roof(f"{name}, {kind}", whole, words)
