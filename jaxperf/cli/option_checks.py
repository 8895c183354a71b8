"""Which options a command line names, and whether what they hold is one of a few words, or a number in range."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from hwspecs.errors import InputError, did_you_mean

if TYPE_CHECKING:
    import typer


def given_options(context: typer.Context) -> dict[str, str]:
    """Parameter -> option as it is spelled, of all that the command line names."""
    spelled = {parameter.name or "": parameter.opts[-1] for parameter in context.command.params}
    sources = {name: context.get_parameter_source(name) for name in spelled}
    return {
        name: spelled[name] for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"
    }


def check_without(needed: str, options: Sequence[str], given: Collection[str]) -> None:
    """Raises `InputError` for options that mean nothing where what is `needed` is not given."""
    for option in options:
        if option in given:
            raise InputError(f"{option} goes with {needed}; give that too, or leave {option} away.")


def check_name(option: str, name: str, known: Sequence[str]) -> None:
    """Raises `InputError` for a name that is none of those that the option may be."""
    if name not in known:
        raise InputError(f"{option}: '{name}' is not one of {', '.join(known)}.{did_you_mean(name, known)}")


def check_integers(given: Mapping[str, tuple[int, int]]) -> None:
    """Raises `InputError` for an option below the least that it may be, or beyond 32 bits."""
    from jaxperf.models.checks import check_count

    for option, (value, least) in given.items():
        check_count(option, value, least, 2**31 - 1)
