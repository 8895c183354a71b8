"""Traces with requests that follow others or share texts: drawn from a description that names its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxperf.io.huggingface import read_text
from jaxperf.io.json_text import parse_unique
from jaxperf.io.request_traces import RequestTrace, read_requests
from jaxperf.serving.workloads.drawn import Drawn, Stage, Text
from jaxperf.serving.workloads.kinds import draw_workload


@dataclass(frozen=True)
class SessionTrace(RequestTrace):
    """Drawn requests: `texts`, `after`, `delay`, `asked` and `stages` as `workloads.drawn.Drawn` has them."""

    texts: Sequence[Text] = ()
    after: np.ndarray | None = None
    delay: np.ndarray | None = None
    asked: np.ndarray | None = None
    stages: Sequence[Stage] = ()


def read_sessions(path: str | Path) -> RequestTrace:
    """A `SessionTrace` where a `.json` file describes a workload with a `kind`, else as `read_requests` does.

    **Raises:** `InputError` as `read_requests` and `draw_workload` do.
    """
    path = Path(path)
    if not path.name.lower().endswith(".json"):
        return read_requests(path)
    described = parse_unique(read_text(path), str(path))
    if not isinstance(described, dict) or "kind" not in described:
        return read_requests(path)
    return trace_of(draw_workload(described, str(path)))


def trace_of(drawn: Drawn) -> SessionTrace:
    """Drawn requests with a row for each: its times, its tokens, and the row that it follows or when it was asked."""
    columns = {"arrived_at": drawn.arrived, "prefill_tokens": drawn.prompt, "decode_tokens": drawn.output}
    extra = {"asked_at": drawn.asked, "after": drawn.after, "delay": drawn.delay}
    columns |= {name: values for name, values in extra.items() if values is not None}
    number = len(drawn.arrived)
    listed = {"req": list(range(number)), **{name: values.tolist() for name, values in columns.items()}}
    rows = [dict(zip(listed, cells, strict=True)) for cells in zip(*listed.values(), strict=True)]
    return SessionTrace(
        rows=rows,
        row=np.arange(number),
        arrived=drawn.arrived,
        prompt=drawn.prompt,
        output=drawn.output,
        hashes=None,
        reasons={},
        notes=(),
        texts=drawn.texts,
        after=drawn.after,
        delay=drawn.delay,
        asked=drawn.asked,
        stages=drawn.stages,
    )
