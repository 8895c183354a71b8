"""The rates of composed steps that `jaxperf calibrate` makes beside its parameters, and what it says of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibration.datasets import Read
    from calibration.kernels.parameters import Parameters
    from calibration.sustained.own import OwnRates
    from jaxperf.core.sustained_file import SustainedTable


def base_rates(params: Path | None) -> SustainedTable:
    """What the new rates go over: those beside --params, else the shipped. Raises `InputError` for a damaged file."""
    from jaxperf.core.sustained_file import load_sustained_table, place_of

    return load_sustained_table(params if params is not None and place_of(params).exists() else None)


def save_rates(
    parameters: Parameters,
    reads: Sequence[Read],
    base: SustainedTable,
    out: Path,
    excluded: Sequence[str],
    directories: Sequence[Path],
) -> OwnRates:
    """Fit and write the rates beside the parameters at `out`, which are written already. Raises `InputError`."""
    from calibration.sustained.own import own_rates
    from calibration.sustained.table import save_sustained
    from jaxperf.core.parameter_files import paths

    own = own_rates(parameters, reads, base, excluded, [str(folder) for folder in directories])
    checksum = json.loads(paths(out)[1].read_text(encoding="utf-8"))["sha256"]
    save_sustained(own.record, checksum, reads, out, parameters.card["command"], excluded)
    return own


def rates_record(own: OwnRates) -> dict[str, Any]:
    """The devices with rates of their own by family and format class, and why families have none."""
    covered: dict[str, dict[str, list[str]]] = {}
    for (family, form), devices in own.covered.items():
        covered.setdefault(family, {})[form] = list(devices)
    return {"covered": covered, "left": list(own.left)}


def rates_sentences(own: OwnRates) -> list[str]:
    """The same as sentences."""
    cells = [f"{family} {form} of {', '.join(devices)}" for (family, form), devices in own.covered.items()]
    told = f"{'; '.join(cells)}; everything else" if cells else "none of these rows; everything"
    sentence = f"rates for estimate, rank and sweep come from {told} stays as it was in the shipped or given rates"
    return [sentence, *(f"no rates of {reason}" for reason in own.left)]
