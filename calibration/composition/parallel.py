"""Layouts of one iteration over several devices, as tables of iterations write them: dp4, tp4, pp4_1, dp2-tp2."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PART = re.compile(r"[-_+ ]?(?:(dp|tp)([0-9]{1,6})|(pp)([0-9]{1,6})(?:_([0-9]{1,6}))?)")


@dataclass(frozen=True)
class Layout:
    """Replicas (`data_parallel`), devices that share each layer (`tensor_parallel`), stages (`pipeline_parallel`), and
    the micro-batches that a replica's sequences are worked through in."""

    data_parallel: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    microbatches: int = 1

    @property
    def devices(self) -> int:
        """All devices."""
        return self.data_parallel * self.tensor_parallel * self.pipeline_parallel

    def local_batch(self, batch: int) -> int | None:
        """Sequences of one micro-batch on one replica; `None` where `batch` does not divide into them."""
        parts = self.data_parallel * self.microbatches
        return None if batch % parts else batch // parts


ONE_DEVICE = Layout()


def parse_layout(text: str) -> Layout | None:
    """The layout that a variant such as "dp4", "tp4", "pp4_1" (stages_micro-batches) or "dp2-tp2-pp2_4" names, each
    axis at most once; `None` for another text."""
    found: dict[str, int] = {}
    place = 0
    while place < len(text):
        part = _PART.match(text, place)
        if part is None or (part[1] or part[3]) in found:
            return None
        found[part[1] or part[3]] = int(part[2] or part[4])
        if part[3]:
            found["micro"] = int(part[5] or 1)
        place = part.end()
    if not found or min(found.values()) < 1:
        return None
    return Layout(found.get("dp", 1), found.get("tp", 1), found.get("pp", 1), found.get("micro", 1))
