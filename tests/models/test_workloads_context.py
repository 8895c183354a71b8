"""A video over context ranks: one is the whole model, all of them do its work, what they send, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.models.graph import Graph
from jaxperf.models.workloads.catalog import workload
from jaxperf.models.workloads.context import METHODS, Division, exchanges
from jaxperf.models.workloads.counts import graph_flops, op_flops, parameter_bytes
from jaxperf.models.workloads.video import DENOISERS, rank_graph

WAN = "wan-2.1-14b"
HEADS, WIDTH, LAYERS = (getattr(DENOISERS[WAN], name) for name in ("heads", "width", "layers"))
# What every rank works out whole: the embeddings of text and time, and the keys and values of the text.
REPLICATED = ("text_embedding.", "time.", "blocks.cross.key", "blocks.cross.value", "blocks.modulation")


def rank(ranks: int, method: str, seq: int = 75_600, batch: int = 1) -> Graph:
    return rank_graph(WAN, seq, batch, "bf16", Division(ranks, method))


@pytest.mark.parametrize("method", METHODS)
def test_one_rank_is_the_undivided_model(method: str) -> None:
    assert rank(1, method, 128).nodes == workload(WAN, "inf", 128, 1, dtype="bf16").nodes
    assert exchanges(rank(1, method, 128), 1) == ()


@pytest.mark.parametrize("method", METHODS)
@given(ranks=st.sampled_from((1, 2, 5, 8, 40)), times=st.integers(1, 2000), batch=st.integers(1, 3))
@settings(max_examples=5)
def test_the_work_of_all_ranks_is_the_whole(method: str, ranks: int, times: int, batch: int) -> None:
    own = rank(ranks, method, 40 * times, batch)
    replicated = sum(
        node.repeats * sum(map(op_flops, node.forward)) for node in own.nodes if node.name.startswith(REPLICATED)
    )
    whole = graph_flops(workload(WAN, "inf", 40 * times, batch))
    assert ranks * graph_flops(own) == pytest.approx(whole + (ranks - 1) * replicated, rel=1e-12)
    assert parameter_bytes(own) == parameter_bytes(rank(1, method, 40, 1)), "every rank holds all weights"


def test_ulysses_sends_queries_keys_values_and_what_comes_of_them() -> None:
    """3 s h and s h elements over the ranks and layer (arXiv:2309.14509, section 3.2), two bytes each."""
    own, seq, batch = rank(8, "ulysses", batch=2), 75_600, 2
    before, after = exchanges(own, 8)
    assert (before.size, after.size) == (2 * batch * 3 * seq * WIDTH / 8, 2 * batch * seq * WIDTH / 8)
    assert before.times == after.times == LAYERS and before.behind is after.behind is None
    kernel = own["blocks.self.flash"].forward[0].shape
    assert (kernel["heads"], kernel["q_len"], kernel["batch"]) == (HEADS / 8, seq, batch)


def test_the_ring_sends_keys_and_values_behind_blocks() -> None:
    own, seq = rank(8, "ring"), 75_600
    (each,) = exchanges(own, 8)
    assert (each.size, each.times) == (2 * 2 * seq / 8 * WIDTH, 7 * LAYERS)
    block, merge = own["blocks.self.ring"].forward
    assert each.behind is not None and each.behind.key == block.key and (block.count, merge.count) == (8, 7)
    assert (block.shape["q_len"], block.shape["heads"]) == (seq / 8, HEADS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((WAN, 75_600, Division(7)), "40 heads and 75,600 tokens do not divide over 7 context ranks (ulysses); those "),
        ((WAN, 75_600, Division(16)), "that do: 1, 2, 4, 5, 8, 10, 20, 40."),
        (("wan-2.1-1.3b", 32_760, Division(8)), "wan-2.1-1.3b: 12 heads and 32,760 tokens do not divide over 8"),
        ((WAN, 75_601, Division(8)), "40 heads and 75,601 tokens do not divide over 8 context ranks (ulysses)"),
        ((WAN, 75_601, Division(8, "ring")), "75,601 tokens do not divide over 8 context ranks (ring); those of up to"),
        ((WAN, 75_600, Division(8, "rings")), "is 'rings'; it must be ulysses or ring. Did you mean ring?"),
        ((WAN, 75_600, Division(0)), "ranks is 0"),
        (("gpt2", 128, Division(2)), "Context ranks divide wan-2.1-1.3b, wan-2.1-14b in inference, not 'gpt2'."),
    ],
)
def test_what_does_not_divide_is_refused(arguments: tuple[str, int, Division], words: str) -> None:
    model, seq, division = arguments
    with pytest.raises(InputError) as raised:
        rank_graph(model, seq, 1, "bf16", division)
    assert words in str(raised.value)


def test_a_ring_divides_tokens_alone() -> None:
    assert exchanges(rank_graph("wan-2.1-1.3b", 32_760, 1, "bf16", Division(8, "ring")), 8)[0].times == 7 * 30
