"""`jaxperf validate batches [DATA...]`: fixed batches with each device held out, published predictors beside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwspecs.errors import InputError
from jaxperf.cli.measured import shared_folder
from jaxperf.cli.validate_shared import tell

if TYPE_CHECKING:
    from calibration.composition.batches_refit import HeldOut
    from calibration.composition.batches_rows import BatchTable

BATCHES = "static_batch/e2e_static_batch.csv"
LINKS = ("static_batch/all_reduce.parquet", "kernels/collectives.parquet")
PEERS = ("pipeweave", "neusight")  # their predictions are the columns PEER_prefill_s and PEER_decode_s
ROOFLINE = "roofline"
WIDTH = 150


def validate_batches(data: Sequence[Path], out: Path | None, as_json: bool, quiet: bool) -> None:
    """The error table of fixed batches.

    **Arguments:** `data`: the table of batches and tables of all-reduces, the first preferred; by default those of the
    measured data beside the project.
    """
    from jaxperf.cli.measured import start_single_precision

    start_single_precision()
    from calibration.composition.batches_parameters import PHASES
    from calibration.composition.batches_refit import SPLITS, all_reduces, coverage, error_rows, hold_out
    from calibration.composition.batches_rows import read_batches
    from calibration.kernels.parameters import load_parameters
    from jaxperf.io.tables import check_output

    check_output(out)
    batches, *links = data or shared_batches()
    table = read_batches(batches)
    found = hold_out(table, all_reduces(links), load_parameters())
    shares = {split: dict(zip(PHASES, coverage(found, split), strict=True)) for split in SPLITS}
    record = {
        "file": batches.name,
        "rows": len(found.measured),
        "devices": device_rows(table, found),
        "pooled": error_rows(found),
        "coverage": shares,
    }
    tell(record, "devices", ("pooled", "coverage"), out, as_json, quiet, _print)


def shared_batches() -> list[Path]:
    """The batches and all-reduces in `JAXPERF_DATA`, or in the folder of measured data beside the project.

    **Raises:** `InputError` where they are missing.
    """
    folder = shared_folder()
    found = [folder / name for name in (BATCHES, *LINKS) if (folder / name).exists()]
    if len(found) < 2 or found[0] != folder / BATCHES:
        raise InputError(
            f"No measured batches at '{folder}': give DATA, or set JAXPERF_DATA to a folder with {BATCHES}."
        )
    return found


def device_rows(table: BatchTable, found: HeldOut) -> list[dict[str, Any]]:
    """Errors a device and phase, the device held out, the last rows over all devices; peers on the rows they state."""
    import numpy as np

    from calibration.composition.batches_parameters import PHASES

    devices = np.array(found.folds["device"])
    roofline = _roofline(found)
    rows = []
    for name in (*dict.fromkeys(found.folds["device"]), "all"):
        own = np.full(len(devices), True) if name == "all" else devices == name
        for place, phase in enumerate(PHASES):
            errors = {"ours": np.expm1(found.residual["device"][own, place])}
            for peer in PEERS:
                errors[peer] = _stated(table, found, peer, phase)[own] / found.measured[own, place] - 1.0
            errors[ROOFLINE] = roofline[own, place] / found.measured[own, place] - 1.0
            figures = {f"{who}_{key}": value for who, each in errors.items() for key, value in _figures(each).items()}
            rows.append({"device": name, "phase": phase, "rows": int(own.sum()), **figures})
    return rows


def _stated(table: BatchTable, found: HeldOut, peer: str, phase: str) -> Any:
    """The predictions of a peer that the table states [s], NaN elsewhere."""
    import numpy as np

    column = f"{peer}_{phase.removesuffix('_step')}_s"
    cells = [table.records[batch.row].get(column) for batch in found.known.batches]
    return np.array([math.nan if cell in (None, "") else float(cell) for cell in cells])


def _roofline(found: HeldOut) -> Any:
    """(prefill, decode step) of the plain roofline at the batch's mean lengths: every efficiency 1 [rows, 2] [s]."""
    import numpy as np

    from jaxperf.api import decode_step, prefill_step
    from jaxperf.core.device import load_device

    steps = {name: (prefill_step(model), decode_step(model)) for name, model in _models(found).items()}
    times = []
    for batch in found.known.batches:
        prefill, decode = steps[batch.model]
        given = {"batch": len(batch.prompts), "tensor_parallel": batch.ranks, "weights": "bf16", "level": "high"}
        device, prompt = load_device(batch.device), float(np.mean(batch.prompts))
        decoded = decode(device, context=prompt + batch.output / 2.0, **given)
        times.append((float(prefill(device, prompt=prompt, **given).stage_time), float(decoded.time)))
    return np.array(times)


def _models(found: HeldOut) -> dict[str, Any]:
    """The models of the batches by name."""
    return {batch.model: model for batch, model in zip(found.known.batches, found.known.models, strict=True)}


def _figures(error: Any) -> dict[str, float]:
    import numpy as np

    known = np.abs(error[np.isfinite(error)])
    if not len(known):
        return {"mean": math.nan, "median": math.nan, "rows": 0}
    return {"mean": float(known.mean()), "median": float(np.median(known)), "rows": len(known)}


def _print(record: dict[str, Any], quiet: bool) -> None:
    from jaxperf.report.text import console, table

    out = console()
    out.width = max(out.width, WIDTH)
    who = ("ours", *PEERS, ROOFLINE)
    heads = ("device", "phase", "rows", *(f"{name} mean / median (rows)" for name in who))
    cells = [
        (row["device"], row["phase"].replace("_", " "), str(row["rows"]), *(_cell(row, name) for name in who))
        for row in record["devices"]
    ]
    out.print(table("Each device held out: error of the measured time", heads, cells))
    cells = [
        (
            row["split"],
            row["phase"].replace("_", " "),
            f"{row['mean']:.1%}",
            f"{row['median']:.1%}",
            _share(record, row),
        )
        for row in record["pooled"]
    ]
    heads = ("held out", "phase", "mean", "median", "in 90 %")
    out.print(table(f"All {record['rows']} rows, by what the scalars did not see", heads, cells))
    if not quiet:
        out.print(
            "row: device measured; device: its generation measured; generation: none of it measured; fitted: nothing "
            "held out. A peer's rows are those that it states. Coverage of each fold by the interval of the other "
            "folds' residuals. The kernel parameters are the shipped ones in every split.",
            soft_wrap=True,
        )


def _cell(row: dict[str, Any], who: str) -> str:
    if not row[f"{who}_rows"]:
        return "-"
    return f"{row[f'{who}_mean']:.1%} / {row[f'{who}_median']:.1%} ({row[f'{who}_rows']})"


def _share(record: dict[str, Any], row: dict[str, Any]) -> str:
    found = record["coverage"].get(row["split"])
    return "" if found is None else f"{found[row['phase']]:.0%}"
