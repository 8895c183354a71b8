"""Layouts of one iteration over several devices, as tables of iterations write them: dp4, tp4, pp4_1, dp2-tp2, cp8."""

from __future__ import annotations

import re
from dataclasses import dataclass

from jaxperf.models.workloads.context import METHODS

_PART = re.compile(
    r"[-_+ ]?(?:(dp|tp)([0-9]{1,6})|(pp)([0-9]{1,6})(?:_([0-9]{1,6}))?|(cp)([0-9]{1,6})(?:_(ulysses|ring))?)"
)


@dataclass(frozen=True)
class Layout:
    """Replicas (`data_parallel`), devices that share each layer (`tensor_parallel`), stages (`pipeline_parallel`), the
    micro-batches that a replica's sequences are worked through in, and devices that share the tokens of a sequence
    (`context_parallel`) by a method of `jaxperf.models.workloads.context`."""

    data_parallel: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    microbatches: int = 1
    context_parallel: int = 1
    context_method: str = METHODS[0]

    @property
    def devices(self) -> int:
        """All devices."""
        return self.data_parallel * self.tensor_parallel * self.pipeline_parallel * self.context_parallel

    def local_batch(self, batch: int) -> int | None:
        """Sequences of one micro-batch on one replica; `None` where `batch` does not divide into them."""
        parts = self.data_parallel * self.microbatches
        return None if batch % parts else batch // parts


ONE_DEVICE = Layout()


def parse_layout(text: str) -> Layout | None:
    """The layout that a variant such as "dp4", "tp4", "pp4_1" (stages_micro-batches), "dp2-tp2-pp2_4" or "cp8_ring"
    (context ranks_method, by default Ulysses) names, each axis at most once; `None` for another text."""
    found: dict[str, int] = {}
    place, method = 0, METHODS[0]
    while place < len(text):
        part = _PART.match(text, place)
        axis = "" if part is None else part[1] or part[3] or part[6]
        if part is None or axis in found:
            return None
        found[axis] = int(part[2] or part[4] or part[7])
        if part[3]:
            found["micro"] = int(part[5] or 1)
        method = part[8] or method
        place = part.end()
    if not found or min(found.values()) < 1:
        return None
    ranks = found.get("cp", 1)
    data, tensor, stages, micro = (found.get(name, 1) for name in ("dp", "tp", "pp", "micro"))
    return Layout(data, tensor, stages, micro, ranks, method if ranks > 1 else METHODS[0])  # one rank has no method
