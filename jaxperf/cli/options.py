"""Options that several commands share, and the parsing of what they hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hwspecs.errors import InputError, did_you_mean
from jaxperf.cli.interrupts import EXIT_INTERRUPTED as EXIT_INTERRUPTED
from jaxperf.core.cells import float_or_nan

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec
    from jaxperf.serving.unit_costs import Prices

EXIT_INPUT = 2  # of what the user asks, something cannot be; one sentence says what
EXIT_INFEASIBLE = 3  # not one of what was asked can run, or has a prediction

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A name, a config.json or a Hugging Face directory.")]
Weights = Annotated[
    str | None,
    typer.Option("--weights", metavar="FORMAT", help="Weight format: bf16, fp8, int4, ... (default: the config's)."),
]
KvCache = Annotated[str, typer.Option("--kv-cache", metavar="FORMAT", help="Format of the KV cache: bf16, fp8, ...")]
Prompt = Annotated[int, typer.Option("--prompt", metavar="N", help="Prompt tokens per request.")]
Output = Annotated[int, typer.Option("--output", metavar="N", help="Output tokens per request.")]
TensorParallel = Annotated[int, typer.Option("--tp", "--tensor-parallel", metavar="N", help="Tensor-parallel ranks.")]
PipelineParallel = Annotated[int, typer.Option("--pp", "--pipeline-parallel", metavar="N", help="Pipeline stages.")]
ExpertParallel = Annotated[int, typer.Option("--ep", "--expert-parallel", metavar="N", help="Expert-parallel ranks.")]
DataParallel = Annotated[int, typer.Option("--dp", "--data-parallel", metavar="N", help="Attention replicas.")]
Batch = Annotated[int, typer.Option("--batch", metavar="N", help="Sequences that decode together.")]
Launch = Annotated[str, typer.Option("--launch", metavar="MODE", help="How kernels are launched: graph or eager.")]
DevicesDirectory = Annotated[
    list[Path] | None,
    typer.Option("--devices-dir", metavar="DIR", help="Folder of your own device TOML files; may be repeated."),
]
SustainedRates = Annotated[
    Path | None,
    typer.Option(
        "--params",
        metavar="PARAMS",
        help="Parameters made by jaxperf calibrate, of which PARAMS.sustained.json is read (default: the shipped).",
    ),
]
Price = Annotated[
    list[str] | None,
    typer.Option(
        "--price", metavar="PRICE", help="h100-sxm=2.50,l40s=0.80 in dollars per device-hour, or a TOML file."
    ),
]
Electricity = Annotated[
    float | None,
    typer.Option("--electricity", metavar="PRICE", help="Dollars per kWh, on top of the devices' prices (default: 0)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no notes.")]
OutputFile = Annotated[
    Path | None, typer.Option("-o", "--out", metavar="FILE", help="Also write a .parquet, .csv or .json file.")
]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE.png", help="Also draw a picture (.png .svg .pdf).")]


def say_not_written(*paths: Path | None, why: str = "nothing is feasible") -> None:
    """One line for each file that was asked for and is not written because nothing can run, or `why` else."""
    for path in paths:
        if path is not None:
            typer.echo(f"jaxperf: '{path}' is not written: {why}.", err=True)


def parse_option(option: str, text: str, unit: str, zero: bool = False) -> float:
    """`30ms` as a number in `unit`, above 0 unless `zero` will do. Raises `InputError` naming the option."""
    import hwspecs

    try:
        return hwspecs.parse_quantity(text, unit, zero)
    except InputError as error:
        raise InputError(f"{option}: {error}") from None


def parse_seconds(option: str, text: str) -> float:
    """`30ms` or `2`, of seconds, as seconds from 0. Raises `InputError` as `parse_option` does."""
    plain = float_or_nan(text)
    return plain if 0.0 <= plain < math.inf else parse_option(option, text, "s", zero=True)


def parse_slo(text: str, allowed: Sequence[str]) -> dict[str, float]:
    """`ttft=1s,tpot=30ms` of `--slo` as seconds.

    **Raises:** `InputError` for an unknown key, a missing value or a wrong unit.
    """
    import hwspecs

    found: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, sign, value = (piece.strip() for piece in part.partition("="))
        if key not in allowed:
            raise InputError(
                f"--slo: unknown target '{key}'; allowed: {', '.join(allowed)}.{did_you_mean(key, allowed)}"
            )
        if not sign or not value:
            raise InputError(f"--slo: '{part}' has no value; write {key}=30ms.")
        if key in found:
            raise InputError(f"--slo: {key} is given twice; give it once.")
        try:
            found[key] = hwspecs.parse_quantity(value, "s")
        except InputError as error:
            raise InputError(f"--slo: {key}: {error}") from None
    return found


def parse_prices(entries: Sequence[str], specs: Mapping[str, DeviceSpec]) -> dict[str, float]:
    """`h100-sxm=2.50` entries, one or more with commas between, or TOML files of them, as dollars per device-hour.

    **Arguments:** `specs`: the devices asked about; a file may also price others, so that one list serves all.
    **Raises:** `InputError` for an unknown device or a price that is not a positive number.
    """
    found: dict[str, float] = {}
    for entry in entries:
        if entry.lower().endswith(".toml"):
            for name, value in _price_file(entry).items():
                _add_price(found, _asked_device(name, specs), _price(name, value))
            continue
        for one in entry.split(","):
            name, sign, value = (piece.strip() for piece in one.partition("="))
            if not sign or not name:
                raise InputError(f"--price: '{one}' has no price; write h100-sxm=2.50 (dollars per device-hour).")
            device = _asked_device(name, specs)
            if device is None:
                raise InputError(f"--price: device '{name}' is not among those asked about.{did_you_mean(name, specs)}")
            _add_price(found, device, _price(name, value))
    return found


def _add_price(found: dict[str, float], device: str | None, price: float) -> None:
    if device is not None and found.setdefault(device, price) != price:
        raise InputError(f"--price: {device} has two prices, {found[device]:g} and {price:g}.")


def parse_unit_prices(
    entries: Sequence[str] | None, electricity: float | None, specs: Mapping[str, DeviceSpec], every: bool = True
) -> Prices:
    """`--price` and `--electricity` of the devices asked about.

    **Raises:** `InputError` as `parse_prices` does, and where `every` device needs a price and one has none.
    """
    from jaxperf.serving.unit_costs import Prices

    if electricity is not None and not 0.0 < electricity < math.inf:
        raise InputError(f"--electricity: {electricity} must be a number above zero [$/kWh].")
    prices = parse_prices(entries or [], specs)
    missing = [name for name in specs if name not in prices]
    if every and prices and missing:
        raise InputError(f"--price: there is none of {', '.join(missing)}; give one of every device, or of none.")
    return Prices(prices, electricity)


def _price_file(path: str) -> dict[str, object]:
    from hwspecs.files import read_toml

    try:
        return read_toml(Path(path))
    except InputError as error:
        raise InputError(f"--price: {error}") from None


def _asked_device(name: str, specs: Mapping[str, DeviceSpec]) -> str | None:
    """The device asked about that a name or alias means; None for another known device."""
    import hwspecs

    own = (spec.name for spec in specs.values() if name == spec.name or name in spec.aliases)
    found = next(own, None)
    if found is not None:
        return found
    try:
        resolved = hwspecs.resolve(name).name
    except InputError as error:
        raise InputError(f"--price: {error}") from None
    return resolved if resolved in specs else None


def _price(name: str, value: object) -> float:
    price = float_or_nan(value)
    if not 0.0 < price < math.inf:
        raise InputError(f"--price: the price of '{name}' is {value!r}; it must be a number above zero [$/hour].")
    return price
