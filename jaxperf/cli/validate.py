"""`jaxperf validate LEVEL [DATA...]`: the errors of one level, everything that is called unseen held out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer

from hwspecs.errors import InputError, did_you_mean
from jaxperf.cli.measured import Families
from jaxperf.cli.options import AsJson, OutputFile, Quiet
from jaxperf.cli.validate_batches import validate_batches
from jaxperf.cli.validate_collectives import validate_collectives
from jaxperf.cli.validate_edge import validate_edge
from jaxperf.cli.validate_gemmini import validate_gemmini
from jaxperf.cli.validate_graphs import validate_graphs
from jaxperf.cli.validate_kernels import validate_kernels
from jaxperf.cli.validate_power import validate_power
from jaxperf.cli.validate_rank import validate_rank
from jaxperf.cli.validate_serving import validate_serving
from jaxperf.cli.validate_training import validate_training

VALIDATORS: Mapping[str, Callable[[Sequence[Path], Path | None, bool, bool], None]] = MappingProxyType(
    {
        "batches": validate_batches,
        "graphs": validate_graphs,
        "collectives": validate_collectives,
        "training": validate_training,
        "serving": validate_serving,
        "rank": validate_rank,
        "power": validate_power,
        "gemmini": validate_gemmini,
        "edge": validate_edge,
    }
)
LEVELS = ("kernels", *VALIDATORS)


def validate(
    level: Annotated[str, typer.Argument(metavar="LEVEL", help=f"What is validated: {', '.join(LEVELS)}.")],
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DATA", help="Tables of measured kernels, or folders (default: the data beside jaxperf)."
        ),
    ] = None,
    family: Families = None,
    card: Annotated[
        bool, typer.Option("--card", help="kernels: only the table that the parameters carry, without a refit.")
    ] = False,
    params: Annotated[
        Path | None,
        typer.Option("--params", metavar="PARAMS", help="--card: of these parameters (default: the shipped)."),
    ] = None,
    whole_folds: Annotated[
        bool,
        typer.Option(
            "--whole-folds", help="kernels: hold out generations alone, each from a fit as long as the shipped one."
        ),
    ] = False,
    out: OutputFile = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Errors on devices and shapes that the fit never saw. And on generations, with roofline and fitted constant
    beside."""
    if level not in LEVELS:
        raise InputError(f"Cannot validate '{level}'; allowed: {', '.join(LEVELS)}.{did_you_mean(level, LEVELS)}")
    if level in VALIDATORS:
        if family or card or params is not None or whole_folds:
            options = "--family, --card, --params and --whole-folds"
            raise InputError(f"{options} go with validate kernels, not with {level}.")
        return VALIDATORS[level](data or [], out, as_json, quiet)
    if card and (data or whole_folds):
        raise InputError("--card is of parameters alone, which --params names; leave DATA and --whole-folds out.")
    if params is not None and not card:
        raise InputError("--params goes with --card; without it everything is fitted anew.")
    if card:
        from jaxperf.cli.validate_card import show_card

        return show_card(params, family or [], out, as_json)
    validate_kernels(data or [], family or [], whole_folds, out, as_json, quiet)
