"""Pictures of a serving plan: the front of tokens/s/device and tokens/s/user, and engines over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxperf.report.plan_serve_rows import front_rows
from jaxperf.report.plots import new_figure, pareto_figure
from jaxperf.serving.plan.request import Answer
from jaxperf.serving.plan.simulate import Timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def front_figure(title: str, answers: Sequence[Answer]) -> Figure:
    """The front of every device, one color for each configuration that is on it often."""
    rows = [(answer.device, row) for answer in answers for row in front_rows(answer)]
    names = [f"{device}: {row['configuration']}" if len(answers) > 1 else row["configuration"] for device, row in rows]
    user, device = (np.array([row[f"tokens_per_second_per_{who}"] for _, row in rows]) for who in ("user", "device"))
    return pareto_figure(title, names, user, device, "tokens/s/user", "tokens/s/device")


def timeline_figure(title: str, timelines: Mapping[str, Timeline]) -> Figure:
    """For each engine: prompt tokens of every step, sequences in decode, and the share of the cache that is taken."""
    panels = [(name, timeline, what) for name, timeline in timelines.items() for what in PANELS]
    rows = [(name, timeline, what) for name, timeline, what in panels if np.any(getattr(timeline, what))]
    figure, first = new_figure(10.0, 1.0 + 1.3 * len(rows))
    figure.delaxes(first)
    axes = figure.subplots(len(rows), 1, sharex=False, squeeze=False)[:, 0]
    for place, (name, timeline, what) in enumerate(rows):
        begin = timeline.moments[0]
        if what == "cache":
            axes[place].fill_between(timeline.moments - begin, 100.0 * timeline.cache, color="#7a9e5e", alpha=0.7)
        else:
            times = np.stack([timeline.start, timeline.end], axis=1).ravel() - begin
            axes[place].fill_between(times, np.repeat(getattr(timeline, what), 2), color=COLORS[what], linewidth=0.0)
        axes[place].set_ylabel(PANELS[what], fontsize="small")
        axes[place].set_xlim(0.0, timeline.moments[-1] - begin)
        axes[place].spines[["top", "right"]].set_visible(False)
        if place == 0 or rows[place - 1][0] != name:
            axes[place].set_title(f"{title}: {name}" if place == 0 else name, loc="left", fontsize="medium")
    axes[-1].set_xlabel("seconds")
    return figure


PANELS = {"tokens": "prompt tokens\na step", "decodes": "sequences\nin decode", "cache": "KV cache\ntaken, %"}
COLORS = {"tokens": "#c2703d", "decodes": "#3b6ea5"}
