"""A mapping back as Timeloop's YAML, version 0.4."""

from __future__ import annotations

from typing import Any

import yaml

from jaxperf.io.timeloop.case import Case


def mapping_yaml(case: Case) -> str:
    """The `mapping` of a case as Timeloop reads it: data spaces, temporal and spatial factors of each level.

    Spatial loops are written for the level that spreads them; where the architecture gives them to a container of its
    own, its name has to be put in place of the level's.
    """
    entries: list[dict[str, Any]] = []
    for level in reversed(range(len(case.levels))):
        kept = dict(zip(case.names.operands, case.mapping.kept[level], strict=True))
        target = {"target": case.levels[level]}
        keep, bypass = ([name for name, is_kept in kept.items() if is_kept == side] for side in (True, False))
        entries.append({**target, "type": "dataspace", "keep": keep, "bypass": bypass})
        entries.append({**target, "type": "temporal", **_temporal(case, level)})
        for spread, split in ((case.mapping.spatial_x, True), (case.mapping.spatial_y, False)):
            loops = {n: float(f) for n, f in zip(case.names.dimensions, spread[level], strict=True) if float(f) > 1.0}
            if loops:
                factors = [f"{name}={bound:.0f}" for name, bound in loops.items()]
                order = {"permutation": [*loops], "split": len(loops) if split else 0}
                entries.append({**target, "type": "spatial", "factors": factors, **order})
    return yaml.safe_dump({"mapping": entries}, sort_keys=False, default_flow_style=None)


def _temporal(case: Case, level: int) -> dict[str, Any]:
    """Factors, and the order of the loops from the innermost."""
    names = case.names.dimensions
    order = sorted(range(len(names)), key=lambda d: float(case.mapping.rank[level, d]))
    factors = [f"{names[d]}={float(case.mapping.temporal[level, d]):.0f}" for d in order]
    return {"factors": factors, "permutation": [names[d] for d in order]}
