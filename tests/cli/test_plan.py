"""`plan train`: text, JSON and files, several sizes, pools, nothing feasible, interruptions, and what is refused."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import jaxperf.cli.progress
from calibration.kernels.parameters import Parameters, save_parameters
from jaxperf.report.plan import ideal_lines, tight_lines
from jaxperf.training.layout import SCHEDULES
from jaxperf.training.search.plan import Answer
from jaxperf.training.search.space import SPLIT_FIELDS, VARIANT_FIELDS

PLAN = ("plan", "train", "gpt2", "--device", "h100-sxm", "--sequence", "1024", "--global-batch", "16")


@pytest.fixture
def plan(answered):
    """Runs `plan --json`; gives (provenance, rows)."""
    return lambda *arguments, **code: itemgetter("provenance", "rows")(answered(*arguments, **code))


def test_sizes_best_first_and_prices(plan, own_folder: Path) -> None:
    provenance, rows = plan(*PLAN, "--n", "2...4", "--top", "3", "--price", "H100=2", "-o", "plan.csv")
    assert [search["devices"] for search in provenance["searches"]] == [2, 4]
    assert (
        all("fitted" in search["efficiencies"] for search in provenance["searches"])
        and provenance["global_batch"] == 16
    )
    assert {row["schedule"] for search in provenance["searches"] for row in search["front"]} <= set(SCHEDULES)
    for size in (2, 4):
        own = [row for row in rows if row["devices"] == size]
        assert [row["rank"] for row in own] == [1, 2, 3]
        assert [row["time"] for row in own] == sorted(row["time"] for row in own)
        assert own[0]["why"] == "" and all(row["why"] for row in own[1:])
        for row in own:
            assert row["tensor"] * row["context"] * row["pipeline"] * row["data"] == size
            assert row["time_lower"] < row["time"] < row["time_upper"]
            assert row["cost_per_step"] == pytest.approx(2.0 * row["device_hours_per_step"])
            assert 0.0 < row["goodput"] < 1.0
    with (own_folder / "plan.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(rows)


def test_text_says_three_things(cli) -> None:
    result = cli(*PLAN, "--n", "2,4", "--top", "2")
    assert result.exit_code == 0
    for said in (
        "step ",
        "MFU",
        "why       #2 takes +",
        "memory ",
        "goodput ",
        "front ",
        "excluded ",
        "from ",
        "fastest",
    ):
        assert said in result.stdout, said
    quiet = cli(*PLAN, "--n", "2", "--quiet").stdout
    assert "layout" in quiet and "from " not in quiet


def test_memory_and_schedules_can_be_asked_for(plan) -> None:
    _, fast = plan(*PLAN, "--n", "4", "--top", "1")
    _, small = plan(*PLAN, "--n", "4", "--top", "1", "--optimize", "memory")
    assert small[0]["memory"] < fast[0]["memory"] and small[0]["time"] > fast[0]["time"]
    _, rows = plan(*PLAN, "--n", "4", "--top", "50", "--schedules", "1f1b,gpipe")
    assert {row["schedule"] for row in rows} <= {"1f1b", "gpipe"}


def test_assumed_efficiencies_have_a_wider_interval(plan) -> None:
    provenance, assumed = plan(*PLAN, "--n", "2", "--top", "1", "--steps", "assumed")
    assert provenance["searches"][0]["efficiencies"].startswith("assumed")
    _, fitted = plan(*PLAN, "--n", "2", "--top", "1")
    widths = [row["time_upper"] / row["time_lower"] for row in (*assumed, *fitted)]
    assert widths[0] > widths[1] > 1.0


def test_adapters_alone_learn(cli, plan) -> None:
    provenance, rows = plan(*PLAN, "--n", "2", "--top", "1", "--lora", "8")
    _, whole = plan(*PLAN, "--n", "2", "--top", "1")
    assert provenance["notes"] == []  # as long as the model's context
    assert provenance["lora_rank"] == 8 and rows[0]["time"] < whole[0]["time"]
    states = [row["memory_gradients"] + row["memory_optimizer"] for row in (*rows, *whole)]
    assert states[0] < 0.1 * states[1] and rows[0]["checkpoint_interval"] < whole[0]["checkpoint_interval"]
    assert "LoRA of rank 8" in cli(*PLAN, "--n", "2", "--top", "1", "--lora", "8").stdout


def test_what_saves_memory_can_be_asked_for(cli, plan) -> None:
    """GPT-2 on one L4: the states of 124 million parameters leave for the host, 12 bytes each and 4 of gradients."""
    one = ("plan", "train", "gpt2", "--device", "l4", "--n", "1", "--sequence", "1024", "--global-batch", "16")
    _, plain = plan(*one, "--top", "1")
    saving = ("--offload-optimizer", "1", "--reserve", "6 GB", "--recompute-modules", "mlp,layernorm", "--mtp", "1")
    provenance, rows = plan(*one, "--top", "1", *saving)
    asked = [provenance[name] for name in ("recompute_modules", "offload_optimizer", "mtp")]
    assert asked == [["mlp", "layernorm"], 1.0, 1.0]
    assert (plain[0]["memory_reserved"], rows[0]["memory_reserved"]) == (3e9, 6e9)
    assert (plain[0]["memory_host"], rows[0]["memory_optimizer"]) == (0.0, 0.0)
    assert rows[0]["memory_host"] == pytest.approx(16 * provenance["parameters"])
    assert rows[0]["compute_host_optimizer"] > 0.0
    assert "l4 has pcie4-x16, of whose 31.5 GB/s copies reach 25.2" in provenance["searches"][0]["efficiencies"]
    assert "GB on the host" in cli(*one, "--top", "1", *saving[:2]).stdout


@pytest.mark.parametrize(("full", "told"), [(0.99, 1), (0.9, 0)])
def test_hardly_any_memory_left_is_said(full: float, told: int) -> None:
    choice = SimpleNamespace(metrics={"memory.total": full * 80e9})
    lines = tight_lines(cast(Answer, SimpleNamespace(choices=[choice], capacity=80e9)))
    assert [f"{full:.0%} full" in line and "--reserve" in line for line in lines] == [True] * told


@pytest.mark.parametrize(("schedule", "stages", "said"), [("zb-h1", 4, True), ("zb-h1", 1, False), ("1f1b", 4, False)])
def test_schedules_of_no_measured_run_are_said(schedule: str, stages: int, said: bool) -> None:
    trivial = dict.fromkeys((*SPLIT_FIELDS, *VARIANT_FIELDS), 1.0)
    layout = trivial | {"pipeline": float(stages), "schedule": float(SCHEDULES.index(schedule))}
    lines = ideal_lines(cast(Answer, SimpleNamespace(choices=[SimpleNamespace(layout=layout)])))
    assert [f"{schedule} is in no measured run" in line for line in lines] == [True] * said


def test_nothing_feasible_says_why_and_what_would_be(cli, plan) -> None:
    one = ("plan", "train", "gpt2-xl", "--device", "l4", "--n", "1", "--sequence", "1024", "--global-batch", "16")
    tiny = (*one, "--savers", "none")
    provenance, rows = plan(*tiny, code=3)
    search = provenance["searches"][0]
    assert rows == [] and search["feasible_from_devices"] in (2, 4, 8)
    assert any("do not fit" in reason for reason in search["infeasible"])
    text = cli(*tiny).stdout
    assert "Nothing is feasible" in text and "nearest " in text and "do not fit in device memory" in text
    saved = cli(*one).stdout
    assert "were tried as no layout fits without; the first has optimizer on the host" in saved
    assert "saved otherwise it takes +" in saved and "l4 has pcie4-x16" in saved
    assert "not tried, as layouts fit without: modules" in cli(*PLAN, "--n", "1").stdout


def test_pools(cli, own_folder: Path) -> None:
    pools = ("plan", "train", "gpt2", "--pool", "h100-sxm:2", "--pool", "A100:2", "--global-batch", "64", "--top", "1")
    text = cli(*pools, "-o", "pools.csv").stdout
    with (own_folder / "pools.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["assigned"] for row in rows} == {"replicas", "stages", "alone"}
    assert sum(float(row["share"]) for row in rows if row["assigned"] == "replicas") == 64
    assert "bounds the step" in text
    assert "sequences of 4,096 tokens are longer than the 1,024 of gpt2" in text


def test_ctrl_c_keeps_the_best_so_far(cli, monkeypatch: pytest.MonkeyPatch, own_folder: Path) -> None:
    @contextlib.contextmanager
    def bar(what: str, quiet: bool) -> Iterator[Any]:
        def report(done: int, total: int) -> None:
            raise KeyboardInterrupt

        yield report

    monkeypatch.setattr(jaxperf.cli.progress, "progress_bar", bar)
    result = cli(*PLAN, "--n", "4,8", "-o", "plan.json")
    assert result.exit_code == 130 and "layout" in result.stdout and "8 x h100-sxm" not in result.stdout
    assert (own_folder / "plan.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--n", "0"), "'0' has no number of devices"),
        (("--n", "64...100"), "doubles from 64 and never reaches 100"),
        (("--n", "many"), "'many' has no number"),
        (("--n", ""), "no size is given"),
        (("--n", "2", "--optimize", "speed"), "--optimize: unknown 'speed'; allowed: time, cost, memory"),
        (("--n", "2", "--schedules", "1fb1"), "Did you mean 1f1b"),
        (("--n", "2", "--dtype", "bf17"), "bf16"),
        (("--n", "2", "--recompute-modules", "moe-act"), "Did you mean moe_act"),
        (("--n", "2", "--offload-optimizer", "1.5"), "--offload-optimizer: 1.5 must be from 0 to 1"),
        (("--n", "2", "--reserve", "much"), "--reserve: "),
        (("--n", "2", "--host-memory", "much"), "--host-memory: "),
        (("--n", "2", "--host-memory", "9 GB", "--savers", "none"), "--host-memory is of what is offloaded; add --off"),
        (("--n", "2", "--savers", "module"), "--savers: unknown 'module'; allowed: auto, all, none, modules"),
        (("--n", "2", "--savers", "optimizer", "--offload-optimizer", "0"), "--offload-optimizer already says what"),
        (("--n", "2", "--recompute-modules", "moe_act"), "has no moe_act; it has core_attn, layernorm, mlp"),
        (("--n", "2", "--mtp", "-1"), "--mtp: -1 must be at least 0"),
        (("--n", "2", "--top", "0"), "--top: 0 must be at least 1"),
        (("--n", "2", "--lora", "0"), "--lora: 0 must be at least 1"),
        (("--n", "2", "--lora", "769"), "--lora: a rank of 769 is above gpt2's width of 768"),
        (("--n", "2", "--lora", "9" * 400), "--lora: 9999"),
        (("--n", "2", "--sequence", "9" * 400), "must be at most 134,217,728"),
        (("--n", "2", "--sequence", "0"), "--sequence: 0 must be at least 1"),
        (("--n", "2", "--global-batch", "-1"), "--global-batch: -1 must be at least 1"),
        (("--n", "2", "--pool", "l4:2"), "leave --device and --n out"),
        (("--n", "2", "-o", "plan.txt"), "the ending must be one of"),
        (("--n", "2", "--price", "b200=1"), "not among those asked about"),
    ],
)
def test_refused(refuse, arguments: tuple[str, ...], said: str) -> None:
    assert said in refuse(*PLAN, *arguments)


def test_scalars_that_cannot_be_read_are_refused_before_anything_is_compiled(refuse, monkeypatch) -> None:
    monkeypatch.setattr("jaxperf.cli.compute.start_jax", lambda: pytest.fail("JAX was started first"))
    assert "nowhere" in refuse(*PLAN, "--n", "2", "--steps", "nowhere")


def test_refused_pools(refuse) -> None:
    assert "give --pool twice" in refuse("plan", "train", "gpt2", "--pool", "l4:2")
    assert "not of the form" in refuse("plan", "train", "gpt2", "--pool", "l4")
    two = ("plan", "train", "gpt2", "--pool", "h100-sxm:2", "--pool", "A100:2")
    assert "divide into 1 equal parts" in refuse(*two, "--global-batch", "67")
    assert "Which devices?" in refuse("plan", "train", "gpt2")
    assert "Did you mean" in refuse("plan", "train", "gtp2", "--device", "l4", "--n", "2")


def test_a_format_the_device_lacks_gains_nothing_and_is_told(cli, plan) -> None:
    """An A100 multiplies fp8 in bf16; the casts are extra work."""
    a100 = ("plan", "train", "gpt2", "--device", "a100-sxm-80gb", "--n", "2", "--global-batch", "16", "--top", "1")
    _, (wide,) = plan(*a100)
    provenance, (narrow,) = plan(*a100, "--dtype", "fp8")
    assert narrow["time"] >= wide["time"] and narrow["mfu"] <= wide["mfu"]
    said = "no fp8 matrix units: multiplied in bf16"
    assert said in provenance["searches"][0]["efficiencies"]
    for steps in ("shipped", "assumed"):
        assert said in cli(*a100, "--dtype", "fp8", "--steps", steps).stdout


def test_own_parameters_of_kernels_are_read(plan, refuse) -> None:
    """Without any family large products start from the peak, so that the step is another; the answer says whose."""
    save_parameters(Parameters({}, {"created": "2026-11-21", "data": [], "devices": []}), "none")
    large = ("plan", "train", "llama-2-7b", "--device", "h100-sxm", "--global-batch", "16", "--n", "8", "--top", "1")
    (_, (shipped,)), (own, (other,)) = plan(*large), plan(*large, "--params", "none")
    assert other["time"] < shipped["time"] and "kernels by 'none'" in own["searches"][0]["efficiencies"]
    assert "nowhere" in refuse(*PLAN, "--n", "2", "--params", "nowhere")
    assert "reads no parameters" in refuse(*PLAN, "--n", "2", "--params", "none", "--steps", "assumed")
