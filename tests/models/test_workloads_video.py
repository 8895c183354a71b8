"""The denoiser of latent videos: published sizes, tokens of a video, and attention over all of them."""

from __future__ import annotations

import pytest

from hwspecs.errors import InputError
from jaxperf.models.graph import Graph
from jaxperf.models.workloads.catalog import workload
from jaxperf.models.workloads.counts import graph_flops, op_flops, parameter_bytes
from jaxperf.models.workloads.video import DENOISERS, TEXT_TOKENS, video_tokens

# "1.3B" and "14B" of arXiv:2503.20314, section 4.2, to the elements of the released weights (Wan-AI on Hugging Face).
PARAMETERS = {"wan-2.1-1.3b": 1_418_996_800, "wan-2.1-14b": 14_288_491_584}


def attention_flops(graph: Graph, name: str) -> float:
    """Of one layer."""
    return sum(op_flops(op) for op in graph[f"blocks.{name}.flash"].forward)


@pytest.mark.parametrize("name", DENOISERS)
def test_parameters_are_the_published_ones(name: str) -> None:
    assert parameter_bytes(workload(name, "inf", 24, 1, dtype="bf16")) == 2 * PARAMETERS[name]


@pytest.mark.parametrize("name", DENOISERS)
def test_attention_is_over_all_patches_of_all_frames(name: str) -> None:
    """4 s^2 d FLOP a layer of s tokens and width d, and 4 s t d for the t tokens of the text; their share grows."""
    width, batch, shares = DENOISERS[name].width, 2, []
    for seq in (7, 512, 4096, 75_600):
        graph = workload(name, "inf", seq, batch)
        own = attention_flops(graph, "self")
        assert own == pytest.approx(4 * batch * seq**2 * width, rel=1e-12)
        assert attention_flops(graph, "cross") == pytest.approx(4 * batch * seq * TEXT_TOKENS * width, rel=1e-12)
        shares.append(DENOISERS[name].layers * own / graph_flops(graph))
    assert shares == sorted(shares) and shares[0] < 0.01 < 0.7 < shares[-1]


@pytest.mark.parametrize(
    ("video", "tokens"),
    [((81, 720, 1280), 75_600), ((81, 480, 832), 32_760), ((1, 720, 1280), 3_600), ((5, 16, 16), 2)],
)
def test_tokens_of_a_video(video: tuple[int, int, int], tokens: int) -> None:
    assert video_tokens(*video) == tokens


@pytest.mark.parametrize(
    ("video", "words"),
    [
        ((80, 720, 1280), "frames cannot be 80: it is 1 and 4 for each further latent, such as 77 or 81."),
        ((81, 721, 1280), "height cannot be 721: it is 16 and 16 for each further patch, such as 720 or 736."),
        ((81, 720, 1281), "width cannot be 1281: it is 16 and 16 for each further patch, such as 1280 or 1296."),
        ((81, 0, 1280), "height cannot be 0: it is 16 and 16 for each further patch, such as 16 or 32."),
        ((0, 720, 1280), "frames cannot be 0: it is 1 and 4"),
    ],
)
def test_a_video_that_patches_do_not_fill_is_refused(video: tuple[int, int, int], words: str) -> None:
    with pytest.raises(InputError) as raised:
        video_tokens(*video)
    assert words in str(raised.value)
