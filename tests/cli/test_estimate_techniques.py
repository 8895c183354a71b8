"""`estimate` with techniques: a line each, the same in JSON, and what is refused."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace
from typing import Any

import pytest
from typer.main import get_command

from jaxperf.cli.main import app
from jaxperf.cli.technique_lines import technique_lines
from jaxperf.serving.techniques.chosen import Techniques
from jaxperf.serving.techniques.power import PowerCap, PowerLaw
from jaxperf.serving.techniques.wide_experts import ExpertCopies

GPT2 = ("estimate", "gpt2", "--device", "h100-sxm", "--prompt", "64", "--output", "8", "--batch", "4")
LIMITED = (*GPT2, "--kv-offload", "hit=.5,share=.25", "--power-cap", "350W")


def test_lines_and_numbers(cli, parse_json) -> None:
    text = cli(*LIMITED, "--quiet").stdout
    assert "kv-offload prefill: " in text and "power      prefill " in text and "energy: uncalibrated" in text
    assert "J/token at cap [" in text and "at TDP" not in text
    answer = parse_json(cli(*LIMITED, "--json").stdout)
    told = answer["techniques"]
    assert told["decode_power"] <= 350.0 * (1 + 1e-9) and 0.0 < told["decode_clock"] <= 1.0
    assert told["energy_calibrated"] is False and told["limit_met"] is True
    assert told["prefill_load"] == pytest.approx(32 * 12 * 2 * 768 * 2 / 50e9), "half of 64 tokens, 12 layers, bf16"
    decode = [row for row in answer["kernels"] if row["phase"] == "decode"]
    assert "cache_load" in {row["kernel"] for row in decode}
    assert sum(row["share"] for row in decode) == pytest.approx(1.0)
    answer = parse_json(cli(*LIMITED[:-1], "71W", "--json").stdout)
    told, energy = answer["techniques"], answer["metrics"]["energy_per_token"]
    assert told["limit_met"] is False and told["average_power"] > 71.0
    assert energy == pytest.approx(told["drawn_energy_per_token"], rel=1e-6), "what is drawn, not the limit"


def test_a_line_a_technique() -> None:
    told = {
        **{"tokens_per_round": 2.2, "token_distribution": [0.2, 0.4, 0.4], "round_time": 0.02, "draft_time": 0.005},
        **{"plain_tpot": 0.018, "plain_ttft": 0.1, "distinct_adapters": 5.0, "adapter_bytes": 1.5e8},
        **{"miss_share": 0.1, "swap_time": 1e-3, "prefill_power": 350.0, "prefill_clock": 0.8},
        **{"decode_power": 420.0, "decode_clock": 0.15, "drawn_energy_per_token": 3.0},
        **{"prefill_exchange_left": 0.05, "decode_exchange_left": 1e-3, "skew": 1.5, "balanced_skew": 1.01},
        **{"copy_bytes": 2.5e9, "ttft_without_copies": 0.12, "tpot_without_copies": None},
    }
    some = SimpleNamespace()
    techniques = Techniques(
        some, some, None, PowerCap(PowerLaw(0.3, 1.0, 0.4), 350.0), two_batches=True, copies=ExpertCopies(64, 1.5, 1.01)
    )  # type: ignore[arg-type]
    explanation = SimpleNamespace(told=told, metrics={"tpot": 0.012, "ttft": 0.08})
    answer = SimpleNamespace(techniques=techniques, feasible=True, explanation=explanation, break_even=64.0)
    answer.paying = 128.0
    speculation, adapters, copies, batches, power = technique_lines(answer)  # type: ignore[arg-type]
    assert speculation == (
        "speculate  2.20 tokens a round (1 20%, 2 40%, 3 40%) of 20.0 ms, 25% of it the draft; TPOT 1.50 x as fast as "
        "the plain 18.0 ms; no gain from batch 64 on"
    )
    assert "5.00 adapters" in adapters and "10.0% of the requests load theirs, 1.00 ms" in adapters
    assert copies == (
        "experts    64 copies, 2.5 GB of weights a device: the busiest rank has 1.01 x the mean load, 1.50 x without; "
        "without copies it does not run"
    )
    assert batches == (
        "batches    two: prefill waits 50.0 ms, decode waits 1.00 ms for its exchange; TTFT 1.25 x, TPOT 1.50 x as "
        "fast as plain; decode gains from batch 128 on"
    )
    assert "decode 420 W at clock 0.15 of 350 W" in power and "cannot be met at the lowest clock" in power
    answer.break_even, answer.feasible = math.inf, False
    assert technique_lines(answer) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--speculate", "gpt2"), "must be DRAFT:k=4,acceptance=.8"),
        (("--speculate", "gpt2:k=2"), "--speculate: acceptance is missing"),
        (("--speculate", "gpt2:acceptence=.8"), "unknown key 'acceptence'.*Did you mean acceptance"),
        (("--speculate", "gpt2:k=3,acceptance=.8,.7"), "acceptance has 2 values for 3 positions"),
        (("--speculate", "gpt2:acceptance=1.2"), "acceptance is '1.2'; it must be a number from 0 to 1"),
        (("--speculate", "gpt2:k=2.5,acceptance=.8"), "k is '2.5'; it must be a whole number"),
        (("--speculate", "gpt2:k=2,k=3,acceptance=.8"), "k is given twice"),
        (("--speculate", "gpt2:acceptance=.8,tp=2"), "The draft's tp is 2, more than the target's 1"),
        (("--speculate", "bert-base:acceptance=.8"), "A draft must be a decoder"),
        (("--speculate", "mtp:acceptance=.8"), "gpt2 is described without layers for multi-token prediction"),
        (("--speculate", "no-such-model:acceptance=.8"), "no-such-model"),
        (
            ("--speculate", "medusa:acceptance=.8,tp=2"),
            "tp is for a draft model; medusa runs on",
        ),
        (("--speculate", "gpt2:acceptance=nan"), "acceptance is 'nan'"),
        (("--speculate", "gpt2:k=1e400,acceptance=.8"), "k is '1e400'"),
        (("--lora", ""), "--lora: "),
        (("--lora", "n=1e9"), "whole number from 1 to 100000"),
        (("--lora", "n=8,zipf=nan"), "zipf is 'nan'"),
        (("--kv-offload", "hit=.5,host=0GB/s"), "--kv-offload: host: "),
        (("--power-cap", "nan"), "--power-cap: "),
        (("--lora", "n=8,rank=x"), "--lora: rank is 'x'"),
        (("--lora", "n=8,loaded=9"), "loaded is '9'; it must be a whole number from 0 to 8"),
        (("--lora", "n=8,targets=some"), "targets is 'some'; allowed: attention, all"),
        (("--lora", "n=8,targets=all,attention"), "targets has 2 values; give it one"),
        (("--lora", "n=8,host=fast"), "--lora: host: "),
        (("--kv-offload", ""), "--kv-offload: '' has a setting without a name; allowed: hit, from_host"),
        (("--kv-offload", "hit=.5,"), "'hit=.5,' has a setting without a name"),
        (("--kv-offload", "hit="), "'hit=' has no value"),
        (("--kv-offload", "hit=2"), "hit is '2'; it must be a number from 0 to 1"),
        (("--kv-offload", "hidden=maybe"), "hidden is 'maybe'; allowed: yes, no"),
        (("--wide-experts", "batches=3"), "batches is '3'; it must be a whole number from 1 to 2"),
        (("--wide-experts", "copies=8"), "gpt2 has no experts"),
        (("--wide-experts", "batch=2"), "unknown key 'batch'.*Did you mean batches"),
        (("--wide-experts", "batches=2"), "takes a mixture of experts and data_parallel of 2 or more"),
        (("--power-cap", "fast"), "--power-cap: "),
        (("--power-cap", "40W"), "must be above the idle power, 70 W, and at most 700 W"),
        (("--power-cap", "900W"), "at most 700 W"),
        (("--power-cap", "300W", "--pp", "2"), "one pipeline stage; pipeline_parallel is 2"),
    ],
)
def test_what_is_refused(refuse, arguments: tuple[str, ...], said: str) -> None:
    told = " ".join(refuse(*GPT2, *arguments).split())
    assert re.search(said, told), told


def test_models_that_are_not_timed_are_refused(refuse) -> None:
    rest = ("--device", "h100-sxm", "--prompt", "64", "--output", "8")
    assert "without encoders" in refuse("estimate", "t5-small", *rest, "--power-cap", "350W")
    assert "LatentMixer are not timed" in refuse("estimate", "deepseek-v2-lite", *rest, "--lora", "n=8,rank=4")
    mixtral = ("estimate", "mixtral-8x7b", *rest, "--tp", "8", "--lora")
    assert "adapters of experts are not timed" in " ".join(refuse(*mixtral, "n=8,rank=4,targets=all").split())


def test_two_micro_batches_need_something_to_halve(refuse) -> None:
    point = ("estimate", "mixtral-8x7b", "--device", "h100-sxm", "--prompt", "64", "--output", "8", "--dp", "8")
    asked = (*point, "--ep", "8", "--wide-experts", "batches=2")
    few = refuse(*asked, "--batch", "8")
    assert "need 2 sequences for each of 8 attention replicas, batch 16" in " ".join(few.split())
    capped = refuse(*asked, "--batch", "16", "--power-cap", "350W")
    assert "not timed together with LoRA adapters or a power limit" in " ".join(capped.split())


def test_ranks_share_experts_and_copies_evenly(refuse) -> None:
    point = ("estimate", "mixtral-8x7b", "--device", "h100-sxm", "--prompt", "64", "--output", "8", "--batch", "16")

    def said(*arguments: str) -> str:
        return " ".join(refuse(*point, "--wide-experts", *arguments).split())

    assert "4 ranks do not share 8 experts and 3 copies; give 4 copies" in said("copies=3", "--dp", "4", "--ep", "4")
    assert "give 4 or 8 copies" in said("copies=5", "--dp", "4", "--ep", "4")
    assert "skew is '5'; it must be a number from 1 to 4" in said("copies=4,skew=5", "--dp", "4", "--ep", "4")
    assert "are of ranks that hold experts; expert_parallel is 1" in said("copies=4", "--dp", "4")


def test_help_shows_every_key_with_its_default() -> None:
    """What the brackets show is what is taken where the key is not given; n and rank, hit are the user's to give."""
    shown = {
        "lora": "n=64,rank=16[,loaded=n][,zipf=0][,targets=attention|all][,host=50GB/s]",
        "kv_offload": "hit=.5[,from_host=1][,share=0][,hidden=yes|no][,host=50GB/s]",
    }
    commands: Any = get_command(app)
    told = {each.name: getattr(each, "help", "") for each in commands.commands["estimate"].params}
    for name, keys in shown.items():
        assert keys in told[name]


def test_the_defaults_that_help_shows_are_those_taken(cli, parse_json) -> None:
    for option, short, full in (
        ("--lora", "n=8,rank=16", "n=8,rank=16,loaded=8,zipf=0,targets=attention,host=50GB/s"),
        ("--kv-offload", "hit=.5", "hit=.5,from_host=1,share=0,hidden=yes,host=50GB/s"),
    ):
        answers = [parse_json(cli(*GPT2, option, text, "--json").stdout) for text in (short, full)]
        assert answers[0]["metrics"] == answers[1]["metrics"]
