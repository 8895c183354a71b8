"""`jaxperf devices [NAME]`: what is known of each device, with its sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxperf.cli.options import AsJson, DevicesDirectory, OutputFile, Quiet

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec


def devices(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show one device with its sources.")] = None,
    devices_dir: DevicesDirectory = None,
    out: OutputFile = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """List the devices, or show one with its sources. Every value has a source and a confidence."""
    import hwspecs
    from jaxperf.io.tables import check_output, json_text, write_rows

    check_output(out)
    registry = hwspecs.open_registry(devices_dir or ())
    specs = list(registry.load_all().values()) if name is None else [registry.load(name)]
    if as_json:
        records = [spec.to_dict() for spec in specs]
        typer.echo(json_text(records if name is None else records[0]))
    elif name is None:
        _list(specs, quiet)
    else:
        _show(specs[0], quiet)
    if out is not None:
        write_rows([row for spec in specs for row in value_rows(spec)], out, {})


def value_rows(spec: DeviceSpec) -> list[dict[str, Any]]:
    """Every value of a device with what it rests on; `si`: in SI base units, `source`: titles of its sources."""
    return [
        {
            "device": spec.name,
            "value": path,
            "quantity": value.quantity,
            "si": value.si,
            "confidence": value.confidence,
            "source": "; ".join(spec.sources[key].title for key in _keys(value.source)),
            "note": value.note,
        }
        for path, value in spec.values()
    ]


def _list(specs: list[DeviceSpec], quiet: bool) -> None:
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
    if not quiet:
        out.print("Peaks are dense; V100, T4 and older show fp16 or fp32. `jaxperf devices NAME` shows every source.")


def _confidences(spec: DeviceSpec) -> str:
    from collections import Counter

    counts = Counter(value.confidence for _, value in spec.values())
    return ", ".join(f"{count} {confidence}" for confidence, count in counts.most_common())


def _show(spec: DeviceSpec, quiet: bool) -> None:
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
    host = f"; to its host: {spec.host.link}" if spec.host else ""
    out.print(paragraph("aka", f"{aliases}; links: {spec.node.link}, {spec.node.topology}{host}"), soft_wrap=True)
    out.print(table("", ("value", "quantity", "confidence", "sources"), rows))
    for number, key in enumerate(keys, 1):
        source = spec.sources[key]
        text = f"{source.title} ({source.publisher}, {source.year})"
        out.print(paragraph(f"{number:3d}", text), soft_wrap=True)
    notes = [(path, value.note) for path, value in values if value.note and not quiet]
    out.print() if notes else None
    for path, note in notes:
        out.print(paragraph("note", f"{path}: {note}"), soft_wrap=True)


def _keys(source: str | tuple[str, ...]) -> tuple[str, ...]:
    return (source,) if isinstance(source, str) else source
