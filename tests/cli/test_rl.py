"""`jaxperf rl`: an iteration is its phases, its training a row of `train`, and every mistake one sentence."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.cli.rl_training import steps_of
from jaxperf.io.rl_iteration import Iteration
from jaxperf.rl.answers import Answers

SMALL = {
    "device": "a100-sxm-80gb",
    "devices": 4,
    "models": {"actor": "llama-3.2-1b", "reference": "llama-3.2-1b"},
    "prompts": 8,
    "samples": 4,
    "prompt": {"kind": "fixed", "value": 64},
    "output": {"kind": "lognormal", "mean": 60, "cv": 0.8},
    "longest_output": 200,
    "generate": {"sched": "vllm_v1", "tp": 1},
    "train": {"tp": 2, "micro_batch": 2},
}
GIGA = 1e9


@pytest.fixture
def asked(cli, own_folder: Path, parse_json):
    def ask(**changes: Any) -> dict[str, Any]:
        (own_folder / "it.json").write_text(json.dumps({**SMALL, **changes}))
        result = cli("rl", "it.json", "--json", "-o", "out.csv")
        assert result.exit_code == 0, result.output
        return parse_json(result.stdout)

    return ask


def test_a_file_is_a_device(asked, own_folder: Path) -> None:
    (own_folder / "my.toml").write_text('name = "what-if"\nbase = "a100-sxm-80gb"\n')
    assert asked(device="my.toml")["device"] == "what-if"


def test_an_iteration_is_its_phases_and_its_training_a_row_of_train(cli, asked, own_folder: Path, parse_json) -> None:
    said = asked()
    phases = {name: each["seconds"] for name, each in said["phases"].items()}
    assert said["iteration_s"] == pytest.approx(sum(phases.values()))
    assert phases["swap"] == 0.0 < phases["weights"]  # halves become wholes
    assert said["iteration_lower_s"] < said["iteration_s"] < said["iteration_upper_s"]
    assert said["answers"] == 32 and said["longest_output"] <= 200
    assert said["straggler_penalty"] > 0.0
    with open(own_folder / "out.csv") as file:
        rows = {row["phase"]: float(row["seconds"]) for row in csv.DictReader(file)}
    assert rows == pytest.approx({**phases, "iteration": said["iteration_s"]})
    columns = {"model": "llama-3.2-1b", "gpu": "a100-sxm-80gb", "n_gpus": 4, "source": "megatron-core"}
    columns |= {"seq": said["step_sequence"], "global_batch": said["step_sequences"], "tp": 2, "micro_batch": 2}
    (own_folder / "t.csv").write_text(",".join(columns) + "\n" + ",".join(map(str, columns.values())) + "\n")
    assert cli("train", "t.csv", "-o", "t.out.csv").exit_code == 0
    with open(own_folder / "t.out.csv") as file:
        (row,) = csv.DictReader(file)
    assert phases["train"] == pytest.approx(float(row["predicted_step_time_s"]))


def test_devices_that_only_generate_let_the_longer_side_decide(asked) -> None:
    serial, beside = (asked(devices=8, generate_devices=4, ahead=ahead) for ahead in (0, 1))
    sides = {name: each["seconds"] for name, each in serial["phases"].items()}
    assert serial["iteration_s"] == pytest.approx(sum(sides.values()))
    longer = max(sides["generate"], sides["score"] + sides["train"])
    assert beside["iteration_s"] == pytest.approx(longer + sides["weights"])


def test_offloading_leaves_more_cache_and_takes_time_of_the_link(asked) -> None:
    kept, away = asked(), asked(offload=True)
    assert away["num_blocks"] > kept["num_blocks"]
    states, weights = kept["training"]["actor"]["states"], kept["kept_bytes"] - kept["training"]["actor"]["states"]
    assert away["phases"]["swap"]["seconds"] == pytest.approx((2 * states + weights) / (50 * GIGA))
    assert weights == pytest.approx(2 * 1.2358e9 / 2, rel=1e-3)  # two bytes each of half a reference


def test_a_critic_learns_and_scores_too(asked) -> None:
    models = {**SMALL["models"], "critic": "llama-3.2-1b"}
    alone, both = asked(), asked(models=models)
    assert both["phases"]["train"]["seconds"] == pytest.approx(2 * alone["phases"]["train"]["seconds"])
    # A critic has one value a position where the other two have a vocabulary.
    assert 1.2 < both["phases"]["score"]["seconds"] / alone["phases"]["score"]["seconds"] < 1.5
    assert both["phases"]["generate"]["seconds"] >= alone["phases"]["generate"]["seconds"]


def test_answers_are_scored_in_passes_that_are_alike_and_none_is_padded(asked) -> None:
    few = {"prompt": {"kind": "fixed", "value": 256}, "output": {"kind": "fixed", "value": 256}, "longest_output": None}
    layout = {"samples": 1, "train": {"tp": 1, "zero": 3}}  # two sequences a replica

    def score(prompts: int, sequences: int) -> float:
        told = asked(**few, **layout, prompts=prompts, score_tokens=sequences * 512)
        return told["phases"]["score"]["seconds"]

    assert score(8, 2) == score(8, 1000)
    # Five sequences where four fit are two passes, as eight are, but not as long.
    assert score(20, 4) < 0.8 * score(32, 4)


def test_what_has_no_room_is_an_answer_with_its_reason(cli, own_folder: Path, parse_json) -> None:
    large = {"models": {"actor": "llama-2-70b"}, "train": {"tp": 4}}
    (own_folder / "it.json").write_text(json.dumps({**SMALL, **large}))
    result = cli("rl", "it.json", "--json", "-o", "out.csv")
    assert result.exit_code == 3
    assert "GB at the longest answer" in parse_json(result.stdout)["reason"]
    assert not (own_folder / "out.csv").exists()


WRONG = {
    "models.aktor is not a known field. Did you mean actor?": {"models": {"aktor": "gpt2"}},
    "prompts is missing": {"prompts": None},
    "samples is 0, but must be at least 1": {"samples": 0},
    "score has 'critic'; allowed, of models: actor, reference": {"score": ["critic"]},
    "generate has 'model', which the iteration itself says": {"generate": {"sched": "vllm_v1", "model": "gpt2"}},
    "train has 'micro_bach'; allowed": {"train": {"micro_bach": 2}},
    "4 devices are no multiple of tp x pp x cp = 3": {"train": {"tp": 3}},
    "train: zero is": {"train": {"tp": 2, "zero": "three"}},
    "generate: 4 devices are no multiple of tp x pp = 8": {"generate": {"sched": "vllm_v1", "tp": 8}},
    "ahead is 1, which needs devices that only generate": {"ahead": 1},
    "generate_devices is 4; it must leave some of 4 to train": {"generate_devices": 4},
    "offload is true, but devices that only generate": {"offload": True, "generate_devices": 2},
    "mini_batches is 64, more than the 32 answers": {"mini_batches": 64},
    "host: ": {"host": "fast"},
    'prompt: kind is "fixd"': {"prompt": {"kind": "fixd", "value": 3}},
    "more than the 131,072 of the context of llama-3.2-1b; give longest_output": {
        "longest_output": None,
        "output": {"kind": "fixed", "value": 200000},
    },
}


@pytest.mark.parametrize("sentence", WRONG)
def test_every_mistake_is_one_sentence(cli, own_folder: Path, sentence: str) -> None:
    given = {name: value for name, value in {**SMALL, **WRONG[sentence]}.items() if value is not None}
    (own_folder / "it.json").write_text(json.dumps(given))
    result = cli("rl", "it.json")
    assert result.exit_code == 2
    assert sentence in result.output and "it.json" in result.output
    assert "Traceback" not in result.output


@given(
    lengths=st.lists(st.integers(1, 10**5), min_size=1, max_size=40),
    context=st.integers(1, 8),
    micro=st.integers(1, 4),
    mini=st.integers(1, 3),
)
def test_steps_hold_all_tokens_in_the_fewest_whole_micro_batches(
    lengths: list[int], context: int, micro: int, mini: int
) -> None:
    train = {"cp": context, "micro_batch": micro}
    asked = Iteration(**{**SMALL, "devices": 2 * context, "train": train, "prompts": 100, "mini_batches": mini})
    prompt = np.zeros(len(lengths), int)
    steps = steps_of(asked, Answers(np.arange(len(lengths)), prompt, np.array(lengths)), "it.json")
    whole, tokens = steps.data * micro, sum(lengths)
    assert steps.sequence % context == 0 == steps.global_batch % whole
    assert steps.global_batch * steps.sequence * mini >= tokens
    assert (steps.global_batch - whole) * steps.sequence * mini < tokens
    assert max(lengths) <= steps.longest < max(lengths) + context
