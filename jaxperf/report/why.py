"""Why one choice costs more than another, from the terms that both are made of."""

from __future__ import annotations

from collections.abc import Mapping

EXPLAINED = 0.9  # of what grew: then nothing more is named
MOST = 3  # terms that grew are named
WORTH = 0.1  # of what was named: a term that shrank by less is not


def why_more(terms: Mapping[str, float], other: Mapping[str, float]) -> str:
    """What makes `other` cost more than `terms`, in shares of the whole: the terms that grew, largest first, until nine
    tenths of it are named, and the largest that shrank where that is much; empty where nothing changed."""
    whole = sum(terms.values())
    changes = dict(sorted(((name, other[name] - terms[name]) for name in terms), key=lambda item: -abs(item[1])))
    grew = {name: change for name, change in changes.items() if change > 0.0}
    named, explained = [], 0.0
    for name, change in list(grew.items())[:MOST]:
        named.append(f"{name} {change / whole:+.1%}")
        explained += change
        if explained > EXPLAINED * sum(grew.values()):
            break
    shrunk = next(((name, change) for name, change in changes.items() if change < 0.0), None)
    if shrunk is not None and -shrunk[1] > WORTH * explained:
        named.append(f"though {shrunk[0]} {shrunk[1] / whole:+.1%}")
    return ", ".join(named)
