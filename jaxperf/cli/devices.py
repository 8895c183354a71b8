"""`jaxperf devices [NAME]`: what is known of each device, with its sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jaxperf.cli.options import AsJson, DevicesDirectory

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec


def devices(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show one device with its sources.")] = None,
    devices_dir: DevicesDirectory = None,
    as_json: AsJson = False,
) -> None:
    """List the devices, or show one with the source and confidence of every value."""
    import hwspecs
    from jaxperf.io.tables import json_text

    registry = hwspecs.open_registry(devices_dir or ())
    if name is not None:
        spec = registry.load(name)
        typer.echo(json_text(spec.to_dict())) if as_json else _show(spec)
        return
    specs = registry.load_all().values()
    if as_json:
        typer.echo(json_text([spec.to_dict() for spec in specs]))
    else:
        _list(list(specs))


def _list(specs: list[DeviceSpec]) -> None:
    from jaxperf.report.text import console, quantity, table

    columns = ("device", "bf16 dense", "memory", "bandwidth", "link, one way", "TDP", "values by confidence")
    rows = []
    for spec in specs:
        peak = spec.peak_flops.get("bf16") or spec.peak_flops.get("fp16") or spec.peak_flops.get("fp32")
        rows.append(
            (
                spec.name,
                quantity(peak.si, "FLOP/s") if peak else "-",
                quantity(spec.memory_capacity.si, "byte"),
                quantity(spec.memory_bandwidth.si, "byte/s"),
                quantity(spec.node.link_bandwidth.si, "byte/s"),
                quantity(spec.tdp.si, "W"),
                _confidences(spec),
            )
        )
    out = console()
    out.print(table(f"{len(specs)} devices", columns, rows))
    out.print("Peaks are dense; V100, T4 and older show fp16 or fp32. `jaxperf devices NAME` shows every source.")


def _confidences(spec: DeviceSpec) -> str:
    from collections import Counter

    counts = Counter(value.confidence for _, value in spec.values())
    return ", ".join(f"{count} {confidence}" for confidence, count in counts.most_common())


def _show(spec: DeviceSpec) -> None:
    """One row a value; sources and notes below, numbered and wrapped, so that it reads at 100 columns."""
    from jaxperf.report.text import bold, console, paragraph, table

    values = list(spec.values())
    keys = list(dict.fromkeys(key for _, value in values for key in _keys(value.source)))
    rows = [
        (path, value.quantity, value.confidence, ", ".join(str(keys.index(key) + 1) for key in _keys(value.source)))
        for path, value in values
    ]
    out = console()
    out.print(bold(spec.name, f"  {spec.display_name}, {spec.architecture}, {spec.released}"), soft_wrap=True)
    aliases = ", ".join(spec.aliases) or "-"
    out.print(paragraph("aka", f"{aliases}; links: {spec.node.link}, {spec.node.topology}"), soft_wrap=True)
    out.print(table("", ("value", "quantity", "confidence", "sources"), rows))
    for number, key in enumerate(keys, 1):
        source = spec.sources[key]
        text = f"{source.title} ({source.publisher}, {source.year})"
        out.print(paragraph(f"{number:3d}", text), soft_wrap=True)
    notes = [(path, value.note) for path, value in values if value.note]
    out.print() if notes else None
    for path, note in notes:
        out.print(paragraph("note", f"{path}: {note}"), soft_wrap=True)


def _keys(source: str | tuple[str, ...]) -> tuple[str, ...]:
    return (source,) if isinstance(source, str) else source
