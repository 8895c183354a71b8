"""Several schemes in one checkpoint, each for modules of its own, as one `Quantization`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

from jaxperf.io.config_fields import Fields
from jaxperf.models.quantization import Quantization, bits_per_weight

OTHER_EXPERTS = re.compile(r"\.experts\.[1-9]\d*(\.|\Z)")  # experts of a layer are stored alike: the first tells
CLASS_NAME = re.compile(r"[A-Z]\w*")  # "Linear": modules of this class, and no module's name
ENDS_NOTE = "The token table or the output head is quantized in the checkpoint; both are counted unquantized."
ENDS = ("lm_head", "embed_tokens", "re:.*lm_head", "re:.*embed_tokens")


def mixed(fields: Fields, parts: Sequence[tuple[Iterable[str], Quantization]]) -> Quantization:
    """The first scheme that has no modules is that of all others. Without one the narrowest stands in front, as it
    holds the bulk of the weights, and what no scheme names is unquantized. A note where tables or head have a scheme.

    **Arguments:** `parts`: the modules of each scheme, as in `Quantization.targets`, none for all others.
    """
    listed: dict[Quantization, list[str]] = {}
    rest = None
    for modules, scheme in parts:
        names = [name.removesuffix(".weight") for name in modules]
        _note_ends(fields, names)
        if not names and rest is None:
            rest = scheme
        elif not names and scheme != rest:
            fields.notes.append("Several schemes are for all modules of a class; the first was taken for all of them.")
        listed.setdefault(scheme, []).extend(name for name in names if not OTHER_EXPERTS.search(name))
    front = min(listed, key=bits_per_weight) if rest is None else rest
    others = tuple(
        dataclasses.replace(scheme, targets=tuple(dict.fromkeys(names)))
        for scheme, names in listed.items()
        if scheme != front and names
    )
    targets = () if rest is not None else tuple(dict.fromkeys(listed[front]))
    return dataclasses.replace(front, targets=targets, others=others)


def module_names(listed: Iterable[str]) -> tuple[str, ...]:
    """The names and patterns of modules; none where a list names classes, such as "Linear", which all matrices are."""
    return () if any(CLASS_NAME.fullmatch(each) for each in listed) else tuple(listed)


def _note_ends(fields: Fields, names: Iterable[str]) -> None:
    if any(name.endswith(ENDS) for name in names):
        fields.notes.append(ENDS_NOTE)
