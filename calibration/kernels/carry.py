"""Some families fitted anew, the others carried over from earlier parameters as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibration.kernels.card import stated_errors
from calibration.kernels.parameters import Parameters

UNIONS = ("data", "adapted_to")  # lists of the card, of which both fits have their part
NAMES = ("devices", "excluded")


def carried(old: Parameters, new: Parameters) -> Parameters:
    """The families of `new`, and those of `old` that it lacks, bit by bit.

    The card is that of `new` with what `old` states of the families that are left: their errors, what they were adapted
    to, and their data. `fits` says by family when and by which command it was fitted.
    """
    left = {name: family for name, family in old.families.items() if name not in new.families}
    card = {**old.card, **new.card}
    card |= {name: _together(old.card.get(name, []), new.card.get(name, [])) for name in UNIONS}
    card |= {name: sorted({*old.card.get(name, []), *new.card.get(name, [])}) for name in NAMES}
    errors = [row for row in stated_errors(old.card) if row["family"] in left]
    card["errors"] = errors + new.card.get("errors", [])
    card["adapted"] = {name: cells for name, cells in old.card.get("adapted", {}).items() if name in left}
    card["adapted"] |= new.card.get("adapted", {})
    card["fits"] = {name: fit for name, fit in fits(old).items() if name in left} | fits(new)
    if "command" in new.card:
        card["command"] = with_command(old, new.card["command"]).card["command"]
    return Parameters({**left, **new.families}, card)


def with_command(parameters: Parameters, command: str) -> Parameters:
    """The card's command followed by one more."""
    before = [parameters.card["command"]] if "command" in parameters.card else []
    return Parameters(parameters.families, {**parameters.card, "command": " && ".join([*before, command])})


def fits(parameters: Parameters) -> dict[str, dict[str, str]]:
    """When and by which command each family was fitted; of a card without such a list, what it states of them all."""
    whole = {name: parameters.card[name] for name in ("created", "command") if name in parameters.card}
    return parameters.card.get("fits", dict.fromkeys(parameters.families, whole))


def _together(old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    return [*old, *(each for each in new if each not in old)]
