"""Groups that divide no node against their ranks placed one by one."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from jaxperf.report.plan import placed_lines
from jaxperf.training.placement import CONTIGUOUS, torn_groups
from jaxperf.training.search.plan import Answer

FEW = st.sampled_from((1, 2, 3, 4, 6, 8, 12))


@given(st.tuples(FEW, FEW, FEW, FEW), st.sampled_from((1, 4, 6, 12)), st.sampled_from((1, 6, 8, 72)))
def test_torn_groups_are_those_of_ranks_placed_one_by_one(degrees: tuple[int, ...], expert: int, node: int) -> None:
    layout = dict(zip(("tensor", "context", "data", "pipeline"), map(float, degrees), strict=True)) | {"expert": expert}
    world, found = degrees[0] * degrees[1] * degrees[2] * degrees[3], torn_groups(layout, node)
    for name, fields in CONTIGUOUS.items():
        ranks, nodes = (
            int(layout[fields[0]] * layout.get(fields[1], 1.0)) if fields[1:] else degrees[0],
            defaultdict(set),
        )
        for rank in range(world):
            nodes[rank // ranks].add(rank // node)
        torn = sum(len(each) > -(-ranks // node) for each in nodes.values())
        assert (found[name].torn if name in found else 0) == torn


def test_six_tensor_ranks_on_nodes_of_eight_are_told() -> None:
    layout = {"tensor": 6.0, "context": 1.0, "data": 4.0, "pipeline": 1.0, "expert": 1.0}
    lines = placed_lines(cast(Answer, SimpleNamespace(choices=[SimpleNamespace(layout=layout)], node=8)))
    assert lines[0].startswith("placed    groups of 6 tensor ranks divide no node of 8: 2 of its devices")
    assert "2 of 4 lie in one node more" in lines[0]
    whole = cast(Answer, SimpleNamespace(choices=[SimpleNamespace(layout=layout | {"tensor": 4.0})], node=8))
    assert placed_lines(whole) == []
