"""The operations of a graph one by one: time, share, what limits each, and where its number comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jaxperf.io.lowering import Traced, Work
from jaxperf.models.graph import Node, Op
from jaxperf.models.liveness import inference_peak
from jaxperf.report.text import bold, console, gigabytes, interval, milliseconds, number, quantity, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 25  # lines of the printed table and bars of the picture; a file has every operation
COLORS = {"compute": "#b5543c", "memory": "#3b6ea5", "latency": "#999999"}
# How the columns of a shape are written in a line, and values that go without saying.
SHORT = {
    "input_channels": "in",
    "output_channels": "out",
    "input_size": "size",
    "kernel_size": "window",
    "elements_in": "in",
    "elements_out": "out",
    "bytes_in": "in",
    "bytes_out": "out",
}
USUAL = {"batch": 1.0, "stride": 1.0, "padding": 0.0, "prefix": 0.0, "window": 0.0}
WIDTH = 130  # of the table: a narrower terminal wraps it, and no figure is cut
SUMMED = ("count", "time", "lower", "upper", "roofline", "flops", "bytes_moved", "share")


@dataclass(frozen=True)
class Price:
    """The time of one run of an operation with its 90 % interval and plain roofline, and `unlimited`, without the limit
    of power [s]; the format it is computed in, what limits it, its tier ("measured", "adapted", "transfer", "roofline",
    "" where it has no time), what to know."""

    time: float
    lower: float
    upper: float
    roofline: float
    unlimited: float
    dtype: str
    limiter: str
    tier: str
    reason: str


Prices = Mapping[tuple[Any, ...], Price]


def operation_rows(traced: Traced, prices: Prices) -> list[dict[str, Any]]:
    """One row a node of the graph, all its runs together: times [s], FLOP, bytes, share of the time."""
    rows = [_row(node, traced.work[node.name], [prices[op.key] for op in node.forward]) for node in traced.graph.nodes]
    total = sum(row["time"] for row in rows if not math.isnan(row["time"]))
    return [row | {"share": row["time"] / total if total else math.nan} for row in rows]


def _row(node: Node, work: Work, prices: Sequence[Price]) -> dict[str, Any]:
    ops = node.forward
    times = {
        name: sum(getattr(price, name) * op.count for price, op in zip(prices, ops, strict=True))
        for name in ("time", "lower", "upper", "roofline")
    }
    longest = max(range(len(ops)), key=lambda at: prices[at].time * ops[at].count)
    return {
        "name": node.name,
        "operation": node.kind,
        "family": ops[longest].family,
        "shape": "; ".join(map(shape_words, ops)),
        "dtype": prices[longest].dtype or ops[longest].dtype,
        "count": ops[longest].count,
        **times,
        "flops": work.flops,
        "bytes_moved": work.bytes_moved,
        "limiter": prices[longest].limiter,
        "tier": prices[longest].tier,
        "reason": "; ".join(dict.fromkeys(reason for price in prices for reason in price.reason.split("; ") if reason)),
    }


def shape_words(op: Op) -> str:
    """`m 8192 n 4096 k 1024`: the columns of an operation's shape, without those that are as usual."""
    shown = {name: value for name, value in op.shape.items() if USUAL.get(name) != value}
    return " ".join(f"{SHORT.get(name, name)} {value:.0f}" for name, value in shown.items())


def totals(traced: Traced, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums over the operations with a time [s]; the ends of the interval as if all errors were of one sign."""
    timed = [row for row in rows if not math.isnan(row["time"])]
    work, program = traced.total, traced.program
    found = inference_peak(traced.graph)
    return {
        "operations": len(rows),
        "launches": sum(op.count for node in traced.graph.nodes for op in node.forward if op.family != "none"),
        **{name: sum(row[name] for row in timed) for name in ("time", "lower", "upper", "roofline")},
        "flops": work.flops,
        "product_flops": work.product_flops,
        "bytes_moved": work.bytes_moved,
        "inputs_bytes": program.bytes_of(program.inputs),
        "parameters_bytes": program.bytes_of(program.parameters),
        "peak_activation_bytes": found.nbytes,
        "peak_at": found.action,
        "unknown": traced.graph.unknown,
        "without_time": len(rows) - len(timed),
        "notes": list(traced.notes),
    }


def grouped(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Alike operations together, the longest first."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("operation", "family", "shape", "dtype", "tier"))
        group = found.setdefault(key, dict(row) | dict.fromkeys(SUMMED, 0.0))
        group.update({name: group[name] + row[name] for name in SUMMED})
    return sorted(found.values(), key=lambda group: -group["time"] if group["time"] == group["time"] else math.inf)


def print_breakdown(record: Mapping[str, Any], quiet: bool) -> None:
    """Print what `jaxperf trace` and `jaxperf estimate --onnx` found."""
    out = console()
    total = record["totals"]
    ends = interval(total["lower"], total["upper"], 1e3)
    whole, lost = record["whole"], total["without_time"]
    missing = f"without {lost} of {total['operations']} operations, which have no time there, " if lost else ""
    out.print(
        bold(
            record["name"],
            f" on {record['device']}: {missing}{milliseconds(whole['time'])} ms "
            f"{interval(whole['lower'], whole['upper'], 1e3)}; roofline {milliseconds(total['roofline'])} ms",
        ),
        soft_wrap=True,
    )
    out.print(
        f"{milliseconds(total['time'])} ms {ends} in {total['launches']:,.0f} kernels, "
        f"{milliseconds(whole['host'])} ms of the host: {whole['source']}",
        soft_wrap=True,
    )
    out.print(_work_line(total), soft_wrap=True)
    if quiet:
        return
    groups = grouped(record["rows"])
    columns = ("operation", "times", "shape", "format", "ms", "90 %", "share", "GFLOP", "GB", "limited by", "tier")
    out.width = max(out.width, WIDTH)
    out.print(
        table("Operations, the alike together, longest first", columns, [_cells(each) for each in groups[:SHOWN]])
    )
    if len(groups) > SHOWN:
        rest = sum(each["time"] for each in groups[SHOWN:] if not math.isnan(each["time"]))
        out.print(
            f"and {len(groups) - SHOWN} more kinds, {milliseconds(rest)} ms together; -o FILE has every operation"
        )
    for sentence in _notes(record):
        out.print(f"note  {sentence}", soft_wrap=True)


def _work_line(total: Mapping[str, Any]) -> str:
    held = total["inputs_bytes"] + total["parameters_bytes"]
    return (
        f"{quantity(total['flops'], 'FLOP')}, {total['product_flops'] / max(total['flops'], 1.0):.0%} of it in matrix "
        f"products; {gigabytes(total['bytes_moved'])} moved; memory {gigabytes(held)} of inputs and parameters "
        f"+ {gigabytes(total['peak_activation_bytes'])} at the peak ({total['peak_at']})"
    )


def _cells(group: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        group["operation"],
        f"{group['count']:.0f}",
        group["shape"],
        group["dtype"],
        milliseconds(group["time"]),
        interval(group["lower"], group["upper"], 1e3),
        "-" if math.isnan(group["share"]) else f"{group['share']:.1%}",
        number(group["flops"] / 1e9),
        number(group["bytes_moved"] / 1e9),
        group["limiter"] or "-",
        group["tier"] or "-",
    )


def _notes(record: Mapping[str, Any]) -> list[str]:
    """What is not in the numbers, and what they rest on, one sentence each."""
    total = record["totals"]
    reasons: dict[str, int] = {}
    for row in record["rows"]:
        for reason in filter(None, row["reason"].split("; ")):
            reasons[reason] = reasons.get(reason, 0) + 1
    unknown = ", ".join(f"{name} ({count})" for name, count in total["unknown"].items())
    return [
        *([f"unknown operations, taken for the movement of their bytes: {unknown}"] if unknown else []),
        *total["notes"],
        *(f"{reason} ({count} operations)" for reason, count in sorted(reasons.items(), key=lambda item: -item[1])),
    ]


def breakdown_figure(title: str, rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Horizontal bars of the longest kinds of operations with their intervals, colored by what limits them."""
    from jaxperf.report.plots import new_figure

    groups = [each for each in grouped(rows) if not math.isnan(each["time"])][:SHOWN]
    figure, axes = new_figure(9.0, 1.4 + 0.24 * len(groups))
    for limiter in dict.fromkeys(each["limiter"] for each in groups):
        at = [position for position, each in enumerate(groups) if each["limiter"] == limiter]
        mine = [groups[position] for position in at]
        times = [each["time"] * 1e3 for each in mine]
        ends = (
            [(each["time"] - each["lower"]) * 1e3 for each in mine],
            [(each["upper"] - each["time"]) * 1e3 for each in mine],
        )
        axes.barh(
            at,
            times,
            color=COLORS.get(limiter, "#cccccc"),
            xerr=ends,
            ecolor="#666666",
            capsize=2,
            label=limiter or "-",
        )
    labels = [f"{each['operation']} x {each['count']:.0f}  {each['shape']}" for each in groups]
    axes.set_yticks(range(len(groups)), labels, fontsize=6)
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("ms, all runs together (whisker: 90 % interval)")
    axes.set_title(title, loc="left", fontsize="medium")
    axes.legend(title="limited by", frameon=False, loc="lower right")
    return figure
