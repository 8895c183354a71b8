"""`jaxperf models [NAME]`: the models that ship with the project, what was understood of a config, or of a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError
from jaxperf.cli.options import AsJson, OutputFile, Quiet

if TYPE_CHECKING:
    from rich.console import Console

    from jaxperf.io.model_check import Checked
    from jaxperf.models.config import ModelConfig
    from jaxperf.models.quantization import Quantization

EXIT_REFUSED = 2  # some of the user's files were refused: the user's input, as everywhere else
SUMMARY = (  # the keys of `summary`, in order
    *("name", "architecture", "parameters", "active_parameters", "mtp_parameters", "flops_per_token", "layers"),
    *("encoder_layers", "hidden"),
    *("kv_bytes_per_token", "max_context", "weights", "stored_bytes", "quantization", "kv_cache", "assumptions"),
)
COLUMNS = ("parameters", "active", "layers", "KV bytes/token (bf16)", "weights", "stored", "architecture")


def models(
    name: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="A name, a config.json or a Hugging Face directory.")
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            "--check",
            metavar="DIR",
            help="Read every model config below DIR and say what was understood, guessed and refused. "
            "Exit code 0 when every file was read, 2 when one or more were refused.",
        ),
    ] = None,
    classes: Annotated[bool, typer.Option("--classes", help="List the model classes that can be read.")] = False,
    out: OutputFile = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """List the models, or show what was understood of one. Or check a folder of configs."""
    if sum((name is not None, check is not None, classes)) > 1:
        raise InputError("MODEL, --check and --classes exclude each other; give one of them.")
    from jaxperf.io.tables import check_output

    check_output(out)
    if check is not None:
        _check(check, out, as_json, quiet)
    elif classes:
        _classes(out, as_json)
    else:
        _models(name, out, as_json)


def _models(name: str | None, written: Path | None, as_json: bool) -> None:
    from jaxperf.io.huggingface import load_model, model_names
    from jaxperf.io.tables import json_text, write_rows

    found = [load_model(each) for each in ([name] if name is not None else model_names())]
    rows = [summary(config) for config in found]
    if as_json:
        typer.echo(json_text(rows if name is None else rows[0]))
    else:
        _print_models(found, rows, name is None)
    if written is not None:
        write_rows([_flat(row) for row in rows], written, {})


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A summary as cells of a table: its sentences in one."""
    return row | {"assumptions": "; ".join(row["assumptions"])}


def _print_models(found: Sequence[ModelConfig], rows: Sequence[dict[str, Any]], several: bool) -> None:
    from jaxperf.report.text import console, table

    out = console()
    cells = [(row["name"], *_cells(row)) for row in rows]
    out.print(table(f"{len(rows)} models" if several else "", ("model", *COLUMNS), cells))
    if not several:
        _details(out, found[0])


def _details(out: Console, config: ModelConfig) -> None:
    """What one row has no room for: the work of a token, layers that are not counted, towers and assumptions."""
    from jaxperf.models.flops import flops_per_token
    from jaxperf.models.parameters import encoder_parameters, mtp_parameter_count

    if config.layers:
        most = config.max_context or 1
        further = f", {flops_per_token(config, most) / 1e9:,.3g} G the last of {most:,}" if most > 1 else ""
        out.print(f"a generated token takes {flops_per_token(config, 1) / 1e9:,.3g} GFLOP{further}", soft_wrap=True)
    if config.mtp_layers:
        size = _count(mtp_parameter_count(config))
        out.print(f"not counted: {size} in layers that predict further tokens", soft_wrap=True)
    for encoder in config.encoders:
        length = f", {encoder.length} positions for one input" if encoder.length else ""
        size = encoder_parameters(encoder)
        out.print(f"{encoder.kind} tower: {_count(size)}, {len(encoder.layers)} layers{length}", soft_wrap=True)
    if config.quantization is not None:
        out.print(_quantization(config.quantization), soft_wrap=True)
    for sentence in config.assumptions:
        out.print(f"assumed: {sentence}", soft_wrap=True)


def _quantization(scheme: Quantization) -> str:
    """The scheme in one line."""
    from jaxperf.models.quantization import bits_per_weight

    operands = f"activations {scheme.activations}" if scheme.activations else "activations not quantized"
    cache = f", KV cache {scheme.kv_cache}" if scheme.kv_cache else ""
    excluded = f", {len(scheme.excluded)} names of modules excluded" if scheme.excluded else ""
    others = "".join(f", {each.weights} in {len(each.targets)} names of modules" for each in scheme.others)
    bits = f"{float(bits_per_weight(scheme)):.4g} bits a weight"
    return f"quantized: {scheme.method}, {bits}, {operands}{cache}{others}{excluded}"


def _classes(written: Path | None, as_json: bool) -> None:
    from jaxperf.io.families import FAMILIES
    from jaxperf.io.tables import json_text, write_rows

    names = sorted(FAMILIES)
    typer.echo(json_text(names) if as_json else "\n".join(names))
    if written is not None:
        write_rows([{"class": name} for name in names], written, {})


# --- a folder ---------------------------------------------------------------------------------------------------------


def _check(folder: str, written: Path | None, as_json: bool, quiet: bool) -> None:
    """Prints the table, or the same as JSON; exits with `EXIT_REFUSED` when a file was refused."""
    from jaxperf.io.model_check import check_folder
    from jaxperf.io.tables import check_apart, json_text, write_rows

    with _file_bar(quiet) as report:
        checked = check_folder(folder, report)
    check_apart(written, [Path(folder) / item.path for item in checked])
    counts = _totals(checked)
    if as_json:
        typer.echo(json_text({"folder": folder, "files": [_plain(item) for item in checked], "totals": counts}))
    else:
        _print(checked, counts, quiet)
    if written is not None:
        write_rows([_cells_of(item) for item in checked], written, {})
    if counts["refused"]:
        raise typer.Exit(EXIT_REFUSED)


def _totals(checked: Sequence[Checked]) -> dict[str, int]:
    from jaxperf.io.model_check import GUESSED, REFUSED, UNDERSTOOD

    found = {status: sum(item.status == status for item in checked) for status in (UNDERSTOOD, GUESSED, REFUSED)}
    return {"files": len(checked), **found}


def _plain(item: Checked) -> dict[str, Any]:
    """One file as plain data; a refused one has its reason and nothing else."""
    if item.model is None:
        return {"path": item.path, "status": item.status, "reason": item.reason}
    return {"path": item.path, "status": item.status, **summary(item.model)}


def _cells_of(item: Checked) -> dict[str, Any]:
    """One file as cells of a table, in which a refused one has a reason alone."""
    read = dict.fromkeys(SUMMARY) if item.model is None else _flat(summary(item.model))
    return {"path": item.path, "status": item.status, "reason": item.reason, **read}


def _print(checked: Sequence[Checked], counts: dict[str, int], quiet: bool) -> None:
    from jaxperf.report.text import console, table

    out = console()
    out.width = max(out.width, 40 + max(len(item.path) for item in checked) + 100)  # a path is never cut
    cells = [
        (item.path, item.status, *(("",) * len(COLUMNS) if item.model is None else _cells(summary(item.model))))
        for item in checked
    ]
    out.print(table("", ("file", "status", *COLUMNS), [tuple(_printable(cell) for cell in row) for row in cells]))
    for item in checked if not quiet else ():
        sentences = (item.reason,) if item.model is None else item.model.assumptions
        for sentence in sentences:
            label = "refused" if item.model is None else "assumed"
            out.print(_printable(f"{label}: {item.path}: {sentence}"), soft_wrap=True)
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if status != "files")
    out.print(f"{counts['files']} files: {said}")


def _printable(text: str) -> str:
    """Names of files may hold anything; what a terminal would act on is shown escaped."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


@contextmanager
def _file_bar(quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar of the files done, on a terminal only."""
    from jaxperf.report.text import console

    terminal = console(stderr=True)
    if quiet or not terminal.is_terminal:
        yield None
        return
    from rich.progress import Progress

    with Progress(console=terminal, transient=True) as bar:
        task = bar.add_task("reading configs", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


# --- one model --------------------------------------------------------------------------------------------------------


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        _count(row["parameters"]),
        _count(row["active_parameters"]),
        str(row["layers"] or row["encoder_layers"]),
        f"{row['kv_bytes_per_token']:,}" if row["kv_bytes_per_token"] else "-",
        row["weights"],
        f"{row['stored_bytes'] / 1e9:.3g} GB",
        row["architecture"],
    )


def _count(parameters: int) -> str:
    """Parameters in billions, below that in millions."""
    return f"{parameters / 1e9:.2f} B" if parameters >= 1e9 else f"{parameters / 1e6:.1f} M"


def summary(config: ModelConfig) -> dict[str, Any]:
    """Counts of one model as plain data; `flops_per_token` of the first token, None where there is no decoder."""
    from jaxperf.models.flops import flops_per_token
    from jaxperf.models.parameters import (
        active_parameter_count,
        kv_bytes_per_token,
        mtp_parameter_count,
        parameter_count,
    )
    from jaxperf.models.storage import stored_bytes

    scheme = config.quantization
    return {
        "name": config.name,
        "architecture": config.architecture,
        "parameters": parameter_count(config),
        "active_parameters": active_parameter_count(config),
        "mtp_parameters": mtp_parameter_count(config),
        "flops_per_token": flops_per_token(config, 1) if config.layers else None,
        "layers": len(config.layers),
        "encoder_layers": sum(len(encoder.layers) for encoder in config.encoders),
        "hidden": config.hidden,
        "kv_bytes_per_token": kv_bytes_per_token(config, 2),
        "max_context": config.max_context,
        "weights": config.weight_format,
        "stored_bytes": stored_bytes(config),
        "quantization": None if scheme is None else scheme.method,
        "kv_cache": None if scheme is None else scheme.kv_cache,
        "assumptions": list(config.assumptions),
    }
