"""`jaxperf collectives TABLE -o OUT`: a table of collectives with predictions, the same rows in the same order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError
from jaxperf.cli.collectives_said import MICRO, counted, print_record, summary
from jaxperf.cli.kernels import check_column, check_places
from jaxperf.cli.option_checks import check_name
from jaxperf.cli.options import AsJson, DevicesDirectory, Quiet
from jaxperf.cli.predicted import OutTable, end, source_record, stamp

if TYPE_CHECKING:
    from calibration.collectives.parameters import CollectiveParameters
    from calibration.collectives.predict import Columns
    from calibration.datasets import Read

BACKENDS = ("fitted", "astra", "topology")
CYCLES = "predicted_cycles"
Params = Annotated[
    Path | None,
    typer.Option("--params", metavar="PARAMS", help="Made by calibration.collectives.refit (default: the shipped)."),
]


def collectives(
    table: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="Rows of gpu, op, num_gpus and bytes, or a log of nccl-tests."),
    ],
    out: OutTable,
    backend: Annotated[
        str,
        typer.Option("--backend", metavar="NAME", help="fitted; astra: cycles of its cases; topology: closed forms."),
    ] = "fitted",
    adapt: Annotated[
        Path | None, typer.Option("--adapt", metavar="FEW", help="Measured rows of a new system; 24 are enough.")
    ] = None,
    params: Params = None,
    devices_dir: DevicesDirectory = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Predict a table of collectives. Time, 90 % interval, alpha-beta form, algorithm, and where each number comes
    from."""
    check_name("--backend", backend, BACKENDS)
    if backend != "fitted":
        if adapt is not None or params is not None:
            raise InputError(f"--backend {backend} fits nothing: leave --adapt and --params away.")
        record = _astra(table, out) if backend == "astra" else _topology(table, out)
    else:
        record = _fitted(table, out, adapt, params, [str(folder) for folder in devices_dir or ()])
    end(record, as_json, quiet, print_record)


def _fitted(
    table: Path, out: Path, adapt: Path | None, params: Path | None, directories: Sequence[str]
) -> dict[str, Any]:
    """Predicts by law and fitted curves, writes, and returns what is said about it."""
    from jaxperf.cli.compute import start_jax

    start_jax()
    import hwspecs
    from calibration.collectives.parameters import load_collectives
    from calibration.collectives.predict import UNREAD, predict_collectives
    from calibration.collectives.rows import FAMILY, read_collectives
    from calibration.datasets.reasons import with_problems
    from calibration.datasets.text import as_text
    from jaxperf.cli.measured import problems_record

    is_log = _is_log(table)
    _check(table, out, is_log)
    hwspecs.open_registry(directories)
    parameters, few = load_collectives(params), []
    if adapt is not None:
        few = [read_collectives(adapt, directories)]
        parameters = _adapted(parameters, few[0], adapt, directories)
    read = read_collectives(table, directories)
    columns = predict_collectives(read.table(FAMILY), read.rows, parameters, directories)
    columns["reason"] = with_problems(as_text(columns["reason"]), read, UNREAD)
    known = {"devices": parameters.card.get("devices", []), "adapted": len(parameters.adapted)}
    source = {"parameters": source_record(parameters.card, params, **known)}
    _write(read, table, out, columns, stamp(source), is_log)
    return {
        "table": str(table),
        "out": str(out),
        **summary(read, columns),
        "problems": problems_record([read, *few]),
        **source,
    }


def _adapted(
    parameters: CollectiveParameters, few: Read, path: Path, directories: Sequence[str]
) -> CollectiveParameters:
    from calibration.collectives.adapt import adapt
    from calibration.collectives.rows import measured_table

    return adapt(parameters, measured_table(few, path), directories)


def _is_log(table: Path) -> bool:
    from calibration.datasets import format_of

    return format_of(table) == "nccl_log"


def _check(table: Path, out: Path, is_log: bool) -> None:
    """What can be found wrong with the two files before anything is computed."""
    from calibration.collectives.predict import ADDED
    from calibration.datasets.tables import DEVICE_COLUMNS
    from jaxperf.io.tables import check_output

    if not is_log:
        check_places(table, out, ADDED)
        check_column(table, DEVICE_COLUMNS)
        check_column(table, ("op",))
        return

    check_output(out)


def _write(read: Read, table: Path, out: Path, columns: Columns, metadata: Mapping[str, str], is_log: bool) -> None:
    """The table with the columns added; a log, which is no table, as rows of what it says."""
    from calibration.collectives.rows import FAMILY
    from calibration.datasets import write_with

    found = read.table(FAMILY)
    if not is_log or found is None:
        return write_with(table, out, columns, metadata)
    import numpy as np

    from jaxperf.io.tables import write_rows

    text = {"gpu": found.device, "version": found.version, "dtype": found.dtype, "op": found.text["op"]}
    numbers = {name: found.shape[name] for name in ("num_gpus", "gpus_per_node", "bytes")}
    own = {name: np.asarray(values)[found.row] for name, values in columns.items()}
    every = {**text, **numbers, "latency_us": found.measured * MICRO, **own}
    rows = [dict(zip(every, cells, strict=True)) for cells in zip(*map(np.asarray, every.values()), strict=True)]
    write_rows(rows, out, metadata)


def _astra(table: Path, out: Path) -> dict[str, Any]:
    """Predicts cycles as ASTRA-sim counts them, writes, and returns what is said about it."""
    import numpy as np

    from calibration.datasets import write_with
    from jaxperf.network.astra_table import DEFAULTS, REQUIRED, predict_astra, unstated

    check_places(table, out, (CYCLES, "reason"))
    cells, notes = _cells(table, (*REQUIRED, *DEFAULTS, "npus"))
    with _of(table):
        found = predict_astra(cells)
    cycles = [None if value is None else int(value) for value in found[CYCLES]]
    write_with(table, out, {name: np.array(values, object) for name, values in {**found, CYCLES: cycles}.items()})
    known = [value is not None for value in cycles]
    return _told(table, out, known, found["reason"], notes + Counter(unstated(cells)))


def _topology(table: Path, out: Path) -> dict[str, Any]:
    """Predicts closed forms on networks of axes and links, writes, and returns what is said about it."""
    from jaxperf.cli.compute import start_jax

    start_jax(quick=True)
    import numpy as np

    from calibration.datasets import write_with
    from jaxperf.network.topology_table import ADDED, OPTIONAL, REQUIRED, predict_topology

    check_places(table, out, ADDED)
    cells, misspelled = _cells(table, (*REQUIRED, *OPTIONAL))
    with _of(table):
        found = predict_topology(cells)
    columns = {
        name: np.array(values, object if name in ("algorithm", "reason") else float) for name, values in found.items()
    }
    write_with(table, out, columns)
    known = [value == value for value in found["predicted_us"]]
    notes = Counter(reason for reason, has in zip(found["reason"], known, strict=True) if has)
    return _told(table, out, known, found["reason"], misspelled + notes)


def _cells(table: Path, known: Sequence[str]) -> tuple[dict[str, list[Any]], Counter[str]]:
    """The columns of a table, those that are `known` by these names in whatever case they are written, and a sentence
    for each that is spelled nearly as a known one that is not there -> the rows."""
    from calibration.datasets.columns import standard_columns
    from calibration.datasets.files import read_pieces
    from jaxperf.io.column_names import misspelled_notes, standard_name

    meant = {standard_name(name): name for name in known}
    cells: dict[str, list[Any]] = {}
    for piece in read_pieces(table):
        for standard, written in standard_columns(table, piece.column_names, meant.__contains__).items():
            cells.setdefault(meant.get(standard, written), []).extend(piece[written].to_pylist())
    notes = misspelled_notes(cells, known, [name for name in known if name not in cells])
    return cells, Counter(dict.fromkeys(notes, len(next(iter(cells.values()), ()))))


@contextmanager
def _of(table: Path) -> Iterator[None]:
    """What is wrong with the columns of a table names it."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{table}: {error}") from None


def _told(table: Path, out: Path, known: Sequence[bool], reasons: Sequence[str], notes: Counter[str]) -> dict[str, Any]:
    without = Counter(reason for reason, has in zip(reasons, known, strict=True) if not has)
    return {
        "table": str(table),
        "out": str(out),
        "rows": len(known),
        "predicted": sum(known),
        "groups": [],
        "without_prediction": counted(without),
        "notes": counted(notes),
    }
