"""Predict every row of a table of serving: latencies and throughput with intervals, and where they come from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from calibration.datasets.serving import ServingTable
from calibration.serving.fit import states_of
from calibration.serving.law import APART, Rows, beside_work, held_of, law_of, rows_of
from calibration.serving.layouts import Deployed, deployed
from calibration.serving.parameters import WIDTHS, ServingParameters
from calibration.serving.scalars import SCALARS, Design, design_of, levels_of, values_of
from hwspecs.schema import DeviceSpec
from jaxperf.core.feasible import Reason, sentences
from jaxperf.core.sustained_file import SustainedTable
from jaxperf.serving.steady import Steady
from jaxperf.serving.unit_costs import DOLLARS, ENERGY, Prices, unit_costs

# Column -> (field of `Steady`, its unit over that of the column, place of its interval in `WIDTHS`).
COLUMNS = {
    "ttft_ms": ("ttft", 1e3, WIDTHS.index("ttft")),
    "tpot_ms": ("tpot", 1e3, WIDTHS.index("tpot")),
    "e2e_ms": ("e2e", 1e3, WIDTHS.index("e2e")),
    "output_tokens_per_s": ("throughput", 1.0, WIDTHS.index("e2e")),
}
TIMES = tuple(f"{name}{end}" for name in COLUMNS for end in ("", "_lower", "_upper"))
ADDED = (*TIMES, ENERGY, DOLLARS, "tier", "reason")  # columns, in their order; dollars with prices only
OPEN = "whether attention is shared out by heads or by requests is not stated: the one that serves more is taken"
FULL = "the rate is more than the system serves: the queue grows, and the latencies are those of a full engine"
TOGETHER = "prefill and decode are priced on the same devices: two pools need two workers"
NEAR = (
    "the rate is near what the system serves ({:.0f} %), where a small error of step times is a large one of the wait: "
    "the intervals are those of closed loops"
)
CROWDED = 0.8  # of what the system serves
ELSEWHERE = "the device never served in the fit: priced by its kernels"
UNMEASURED = "framework never measured: priced with what all measured ones share"
OTHER_RELEASE = "this release never measured: priced with what those of its engine share"
HELD = "more than half of the TTFT is requests held between client and engine, which no step explains"
OFFLINE = (
    "more than half of a decode step is kernels launched one by one and the host ({:.1f} ms), as offline runs of this "
    "engine had in the fit, while `batches` predicts fixed batches of stacks that were measured"
)
ALONE = "one token out: there is no time between tokens"
AS_SERVED = (
    "fixed batches were fitted of an engine of 2023 alone, which launched kernels one by one: steps are those of this "
    "engine as a server; `batches` predicts fixed batches of stacks that were measured"
)
UNSTATED = "framework is not stated: priced with what all measured ones share"


def predict_serving(
    table: ServingTable,
    parameters: ServingParameters,
    rates: SustainedTable,
    directories: Sequence[str] = (),
    prices_of: Callable[[Mapping[str, DeviceSpec]], Prices] | None = None,
) -> dict[str, np.ndarray]:
    """The columns to add to a table, [rows of the file]; each distinct configuration is priced once.

    **Arguments:** `prices_of`: from the devices of the table to what is paid for them; None for no prices.
    **Returns:** those of `COLUMNS`, each with `_lower` and `_upper`, and of `unit_costs`, NaN where a row has no
    prediction; `tier`: "known", "transfer", "unseen" or ""; `reason`: why there is none, or what was assumed.
    """
    points, reasons = deployed(table, directories)
    columns: dict[str, np.ndarray] = {name: np.full(table.rows, np.nan) for name in TIMES}
    prices = Prices() if prices_of is None else prices_of({point.spec.name: point.spec for point in points})
    columns |= {name: np.full(table.rows, np.nan) for name in unit_costs(math.nan, [], prices)}
    tiers, told = (np.full(table.rows, "", dtype=object) for _ in range(2))
    for row, reason in reasons.items():
        told[row] = reason
    if points:
        found, own_tiers, own_reasons = _found(points, parameters, rates)
        for place, point in enumerate(points):
            rows = list(point.configuration.rows)
            tiers[rows], told[rows] = own_tiers[place], own_reasons[place]
            for name in TIMES:
                columns[name][rows] = found[name][place]
            devices = [(point.spec, point.group * point.replicas)]
            for name, value in unit_costs(float(found["output_tokens_per_s"][place]), devices, prices).items():
                columns[name][rows] = value
    return {**columns, "tier": tiers, "reason": told}


def _found(
    points: Sequence[Deployed], parameters: ServingParameters, rates: SustainedTable
) -> tuple[dict[str, np.ndarray], list[str], list[str]]:
    """Columns, tier and reason of every configuration."""
    rows = rows_of(points, rates)
    design = design_of(points, list(parameters.deviations))
    state, utilization = states_of(jnp.asarray(parameters.values), design, rows)
    tiers = [tier_of(point, parameters) for point in points]
    widths = np.array([parameters.widths[tier][part_of(p)] for tier, p in zip(tiers, points, strict=True)])
    bits = np.asarray(rows.pieces.reason) | np.where(overfull(points, rows), int(Reason.MEMORY), 0)
    runs = (bits & int(Reason.FORMAT)) == 0
    found = {}
    for name, (field, scale, place) in COLUMNS.items():
        value = np.where(runs, np.asarray(getattr(state, field)) * scale, np.nan)
        found |= {name: value, f"{name}_lower": value * np.exp(-widths[:, place])}
        found[f"{name}_upper"] = value * np.exp(widths[:, place])
    busy = np.asarray(utilization)
    found |= throughput_ends(rows, busy, found["output_tokens_per_s"], widths[:, COLUMNS["output_tokens_per_s"][2]])
    full, left_open = busy > 1.0, np.zeros(len(points), bool)
    near = [NEAR.format(100.0 * share) if CROWDED < share <= 1.0 else "" for share in busy.tolist()]
    left_open[rows.others[0] if rows.others else []] = True
    together = [point.configuration.mode == "disagg" and law_of(point) not in APART for point in points]
    engines = [point.configuration.engine for point in points]
    strange = np.array([engine not in parameters.engines for engine in engines])
    stated = np.array([engine != "" for engine in engines])
    held = held_share(state, parameters, design, rows) > 0.5
    new = np.array([point.spec.name not in parameters.devices for point in points])
    versions = np.array([point.configuration.version != "" for point in points])
    alone = runs & np.isnan(found["tpot_ms"])
    served = np.array([as_served(point) for point in points])
    told = {
        OPEN: left_open,
        FULL: full,
        TOGETHER: together,
        HELD: held,
        AS_SERVED: served,
        ELSEWHERE: new,
        ALONE: alone,
        UNMEASURED: strange & stated,
        UNSTATED: strange & ~stated,
        OTHER_RELEASE: versions & ~strange & ~known_releases(design),
    }
    beside = offline_time(points, parameters, design, rows)
    slow = beside > 0.5 * np.asarray(state.tpot)
    offline = [OFFLINE.format(1e3 * time) if much else "" for time, much in zip(beside, slow, strict=True)]
    reasons = [
        "; ".join(
            (
                *point.notes,
                *sentences(int(bit)),
                *(sentence for sentence, those in told.items() if those[place]),
                *filter(None, (queued, launched)),
            )
        )
        for place, (point, bit, queued, launched) in enumerate(zip(points, bits, near, offline, strict=True))
    ]
    return found, tiers, reasons


def known_releases(design: Design) -> np.ndarray:
    """Configurations of whose release a number was fitted [rows]."""
    fields = [(name, list(scalar.deviations)) for name, scalar in SCALARS.items() if "release" in scalar.deviations]
    places = [design.places[name][levels.index("release")] for name, levels in fields]
    return np.any(np.array(places) < len(design.names), axis=0)


def throughput_ends(rows: Rows, busy: np.ndarray, found: np.ndarray, width: np.ndarray) -> dict[str, np.ndarray]:
    """The interval of output tokens a second [rows]: of an open loop that of what the system serves, `found` over its
    utilization where more could be, and no more than comes, of which `found` may differ by what rounding adds."""
    asked = np.asarray(rows.setups.load * rows.setups.output)
    most = np.where(busy > 0.0, asked / np.where(busy > 0.0, busy, 1.0), found)
    could = (most * np.exp(-width), most * np.exp(width))
    lower, upper = (np.where(busy > 0.0, np.minimum(end, asked), end) for end in could)
    return {
        "output_tokens_per_s_lower": np.minimum(lower, found),
        "output_tokens_per_s_upper": np.maximum(upper, found),
    }


def held_share(state: Steady, parameters: ServingParameters, design: Design, rows: Rows) -> np.ndarray:
    """The share of the TTFT of a closed loop that is waited for requests which the engine has not in hand though it has
    room: held x e2e / n of n in flight on a rank, by Little's law; 0 of other loads and of one request [rows]."""
    held = np.asarray(_values(parameters, design)["held"])
    flight = np.asarray(rows.setups.load / (rows.setups.replicas * rows.setups.data))
    closed = np.isin(np.arange(len(flight)), rows.kinds.get("closed", ())) & (flight > 1.0)
    held = np.asarray(held_of(jnp.asarray(held), jnp.asarray(flight)))
    return np.where(closed, held * np.asarray(state.e2e / state.ttft) / np.maximum(flight, 1.0), 0.0)


_beside_work = jax.jit(jax.vmap(beside_work))


def offline_time(
    points: Sequence[Deployed], parameters: ServingParameters, design: Design, rows: Rows
) -> Float[np.ndarray, " rows"]:
    """Of a decode step of fixed batches on engines whose offline runs were fitted: what is not the work of its kernels;
    0 of others [s]."""
    fitted = [f"floor/engine/{engine}" in design.names for engine in levels_of(points)["engine"]]
    static = np.array([point.launched for point in points]) & np.array(fitted)
    time = _beside_work(_values(parameters, design), rows.setups, rows.pieces)
    return np.where(static, np.asarray(time), 0.0)


def _values(parameters: ServingParameters, design: Design) -> dict[str, Float[Array, " rows"]]:
    """The fitted scalars of every configuration."""
    places = {field: jnp.asarray(place) for field, place in design.places.items()}
    return values_of(jnp.asarray(parameters.values), places)


def overfull(points: Sequence[Deployed], rows: Rows) -> np.ndarray:
    """Requests that outgrow the memory before they end: a single one, or a fixed batch, of which no engine puts some
    off [rows]."""
    batches = [p.concurrency / (p.replicas * p.data) if p.configuration.mode == "static" else 1.0 for p in points]
    return np.maximum(np.array(batches), 1.0) > np.asarray(rows.pieces.slots)


def tier_of(point: Deployed, parameters: ServingParameters) -> str:
    """How far a configuration is from what was measured.

    With devices held out errors are as large as with engines held out, so one has the tier of the other.
    """
    if point.spec.name not in parameters.devices:
        return "unseen"
    (kin,) = levels_of([point])["kin"]
    if kin in parameters.kin and not as_served(point):
        return "known"
    return "transfer" if point.configuration.engine in parameters.engines else "unseen"


def as_served(point: Deployed) -> bool:
    """Whether a fixed batch is priced with what its engine had as a server, for want of others."""
    return point.configuration.mode == "static" and not point.launched


def part_of(point: Deployed) -> str:
    """Which of `parameters.PARTS` a configuration is reported with, and has the interval of."""
    mode = point.configuration.mode
    if mode != "agg" and not as_served(point):
        return mode
    return "experts" if point.experts else "dense"
