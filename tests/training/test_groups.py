"""The links of every group of a layout against its ranks placed one by one over nodes of eight."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator

import jax
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jaxperf.core.numerics import as_float
from jaxperf.training.communication import layout_groups
from jaxperf.training.efficiencies import assumed_training_efficiencies
from jaxperf.training.layout import Layout, training_layout
from tests.devices import H100

NODE = 8
IDEAL = dataclasses.replace(assumed_training_efficiencies(), link_local=as_float(1.0), link_network=as_float(1.0))
found = jax.jit(lambda layout: layout_groups(H100, layout, IDEAL))
Degrees = tuple[int, int, int, int]  # tensor, context, data, pipeline


def placed(degrees: Degrees, shard: int, experts: int, both: bool) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """(group, which of its kind, rank): tensor ranks beside each other, then context, data and pipeline ranks; experts
    over the first ranks of a stage. `both`: a rank has the stage of its place and that from the other end."""
    tensor, context, data, pipeline = degrees
    stage = tensor * context * data
    copies = (1 + both) * stage // experts
    together = min(max(tensor * context * (shard or data * (1 + both)) // experts, 1), copies)
    for rank in range(stage * pipeline):
        at, p = rank % stage, rank // stage
        t, c, d = at % tensor, at // tensor % context, at // (tensor * context)
        pair = min(p, pipeline - 1 - p) if both else p
        copy = at // experts + (stage // experts if p != pair else 0)
        yield "tensor", (c, d, p), rank
        yield "context", (t, d, p), rank
        yield "expert", (p, at // experts), rank
        yield "shard", (t, d // shard, p) if shard else (t, pair), rank
        yield "replica", (t, c, d % shard, pair) if shard else (rank,), rank
        yield "expert_shard", (pair, at % experts, copy // together), rank
        yield "expert_replica", (pair, at % experts, copy % together), rank


@settings(max_examples=60)
@given(
    degrees=st.tuples(*(st.sampled_from(each) for each in ((1, 2, 4, 8), (1, 2, 4), (1, 2, 4, 8, 16), (2, 4, 8)))),
    shard=st.sampled_from((0, 0, 2, 4, 8)), experts=st.sampled_from((1, 2, 4, 16)), both=st.booleans(),
)  # fmt: skip
def test_groups_have_the_links_of_their_ranks(degrees: Degrees, shard: int, experts: int, both: bool) -> None:
    tensor, context, data, pipeline = degrees
    shard = shard if shard and data % shard == 0 else 0
    assume(tensor * context * data % experts == 0)
    layout = training_layout(
        schedule="dualpipe" if both else "1f1b", tensor=tensor, context=context, data=data, pipeline=pipeline,
        shard_group=shard, expert=experts, global_batch=64 * data,
    )  # fmt: skip
    nodes: dict[str, dict[tuple[int, ...], Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    for name, which, rank in placed(degrees, shard, experts, both):
        nodes[name][which][rank // NODE] += 1
    links = found(layout)
    for name, groups in nodes.items():
        fabric = getattr(links, name)
        shapes = {(each.total(), max(each.values()), len(each)) for each in groups.values()}
        widest = max(shapes, key=lambda shape: shape[-1])  # of DualPipe's pairs those that are furthest apart
        assert (float(fabric.members), float(fabric.local_ranks), float(fabric.nodes)) == widest, name


def test_both_ends_of_a_long_pipeline_meet_over_the_network() -> None:
    """Four stages of four ranks: two of eight copies beside each other were taken for a node's."""
    layout: Layout = training_layout(schedule="dualpipe", data=4, pipeline=4, global_batch=64)
    assert (float(found(layout).shard.local_ranks), float(found(layout).shard.nodes)) == (4, 2)
    one_node = training_layout(schedule="dualpipe", data=4, pipeline=2, global_batch=64)
    assert float(found(one_node).shard.nodes) == 1
