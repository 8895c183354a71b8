"""Plain values of a what-if: `memory_bandwidth = "6.7 TB/s"`, or `"2x"` of the base's, in place of a whole table."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any

OWN = "own-file"  # key of the source of such values
UNSOURCED = "stated without a source"  # which explains nothing
_TIMES = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*x\s*")
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(.*)", re.DOTALL)


def spelled_out(stated: Mapping[str, Any], base: Mapping[str, Any], file: str) -> dict[str, Any]:
    """What a user's file states, its plain values as tables that say where they are from.

    **Arguments:** `base`: the tables of the device that the file starts from; `file`: its name. A plain value of what
    is no value of the base is left as it is, and refused with the rest.
    """
    raw = _spelled_out(stated, base, base.get("name", "the base"))
    if raw == stated:
        return raw
    own = {"title": file, "publisher": "the author of the file", "kind": "estimate", "year": datetime.date.today().year}
    sources = raw.get("sources", {})
    return raw | ({"sources": {OWN: own, **sources}} if isinstance(sources, Mapping) else {})


def _spelled_out(stated: Mapping[str, Any], base: Mapping[str, Any], whose: str) -> dict[str, Any]:
    raw = dict(stated)
    formats = all(isinstance(old, Mapping) and "quantity" in old for old in base.values())  # any key is a value's
    for name, given in stated.items():
        old = base.get(name, {"quantity": ""} if formats else None)
        if not isinstance(old, Mapping):
            continue
        if isinstance(given, Mapping) and "quantity" not in old:
            raw[name] = _spelled_out(given, old, whose)
        elif isinstance(given, str | int | float) and not isinstance(given, bool) and "quantity" in old:
            raw[name] = _value(given, old["quantity"], whose)
    return raw


def _value(given: str | float, old: str, whose: str) -> dict[str, Any]:
    """`old`: the base's quantity, empty where it has none."""
    times = _TIMES.fullmatch(str(given))
    found = _NUMBER.fullmatch(old)
    if times is None or found is None:
        return {"quantity": str(given), "source": OWN, "confidence": "estimated", "note": UNSOURCED}
    quantity = f"{float(found[1]) * float(times[1]):.12g}{found[2]}"
    return {"quantity": quantity, "source": OWN, "confidence": "derived", "note": f"{times[1]} x {old} of {whose}"}
