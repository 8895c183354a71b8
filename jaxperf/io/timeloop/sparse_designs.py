"""Sparse designs that come with the program: those of the exercises of Timeloop, found by the name of a case.

The outputs of the exercises, and cases made of them, do not say how words are stored and what is skipped; the public
architectures of the exercises do.
"""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import Any, NamedTuple

FOLDER = "machines/sparseloop"


class Design(NamedTuple):
    """`name`: of the exercise; `attributes`: of its levels, as an architecture states them; `optimizations`."""

    name: str
    attributes: dict[str, dict[str, Any]]
    optimizations: dict[str, Any]


def design_of(name: str) -> Design | None:
    """The design whose name ends the name of a case, punctuation aside; None where there is none."""
    files = resources.files("jaxperf.loopnest").joinpath(FOLDER).iterdir()
    for file in sorted(files, key=lambda each: each.name):
        own = file.name.removesuffix(".json")
        if _plain(name).endswith(_plain(own)):
            data = json.loads(file.read_text(encoding="utf-8"))
            return Design(own, data["attributes"], data["sparse_optimizations"])
    return None


def _plain(name: str) -> str:
    """Letters and digits of a name, without the ending of a file."""
    return re.sub(r"[^a-z0-9]+", "-", name.casefold().removesuffix(".json"))
