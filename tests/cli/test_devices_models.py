"""`devices` and `models`: lists and single entries, as text and JSON."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow.parquet as pq


def test_devices_are_listed(cli, parse_json) -> None:
    text = cli("devices").stdout
    listed = parse_json(cli("devices", "--json").stdout)
    assert len(listed) >= 24 and f"{len(listed)} devices" in text
    assert all(f" {spec['name']} " in text for spec in listed)


def test_one_device_is_shown_with_its_sources_at_a_hundred_columns(cli) -> None:
    for name in ("h100-sxm", "mi300x", "tpu-v5e", "gaudi3"):
        text = cli("devices", name).stdout
        assert text.startswith(name)
        assert max(map(len, text.splitlines())) <= 100
        for said in ("memory_bandwidth", "peak_flops.bf16", "confidence", "sources", "note  "):
            assert said in text
        assert "…" not in text
    text = cli("devices", "h100-sxm").stdout
    assert "NVIDIA H100 datasheet (NVIDIA, 2023)" in text and "3.35 TB/s" in text


def test_devices_go_to_a_file_value_by_value(cli, refuse, own_folder: Path, parse_json) -> None:
    text = cli("devices", "h100-sxm", "-o", "one.csv").stdout
    with (own_folder / "one.csv").open() as file:
        rows = {row["value"]: row for row in csv.DictReader(file)}
    assert rows["memory_bandwidth"]["quantity"] == "3.35 TB/s" and float(rows["memory_bandwidth"]["si"]) == 3.35e12
    assert "NVIDIA H100 datasheet" in rows["memory_bandwidth"]["source"] and set(rows) <= set(text.split())
    listed = parse_json(cli("devices", "--json", "-o", "all.parquet").stdout)
    assert set(pq.read_table(own_folder / "all.parquet")["device"].to_pylist()) == {spec["name"] for spec in listed}
    assert "the ending must be one of" in refuse("devices", "-o", "all.txt")


def test_quiet_devices_and_scenarios_have_no_notes(cli) -> None:
    assert "note  " not in cli("devices", "h100-sxm", "--quiet").stdout
    for command in ("devices", "scenarios"):
        assert "shows" in cli(command).stdout and "shows" not in cli(command, "--quiet").stdout


def test_one_device_as_json_by_alias(cli, parse_json) -> None:
    spec = parse_json(cli("devices", "H100 SXM5", "--json").stdout)
    assert spec["name"] == "h100-sxm" and spec["memory_bandwidth"]["quantity"] == "3.35 TB/s"
    assert spec["memory_bandwidth"]["source"] and spec["sources"]


def test_an_unknown_device_names_the_nearest(refuse) -> None:
    assert "Did you mean" in refuse("devices", "h100sxmm")
    assert "The name of a device is empty" in refuse("devices", " ")


def test_own_devices_are_listed(cli, own_folder: Path, parse_json) -> None:
    (own_folder / "my-chip.toml").write_text('name = "my-chip"\nbase = "l4"\n')
    names = [spec["name"] for spec in parse_json(cli("devices", "--devices-dir", ".", "--json").stdout)]
    assert "my-chip" in names and "l4" in names
    assert cli("devices", "my-chip", "--devices-dir", ".").stdout.startswith("my-chip")


def test_peaks_of_another_clock_are_warned_of_once(cli, own_folder: Path, parse_json) -> None:
    clock = 'clock_rate = { quantity = "1 GHz", confidence = "estimated", source = "me", note = "as it is sold" }'
    source = '[sources.me]\ntitle = "mine"\npublisher = "me"\nkind = "measurement"\nyear = 2026\n'
    (own_folder / "slow.toml").write_text(f'name = "slow"\nbase = "l4"\n{clock}\n{source}')
    for words in (
        ("devices", "slow"),
        ("devices", "slow", "--json"),
        ("estimate", "gpt2", "--prompt", "64", "--device", "slow"),
    ):
        result = cli(*words, "--devices-dir", ".")
        assert result.exit_code == 0, result.output
        assert result.stderr.count("warning: ") == 1 and "slow.toml: peaks do not follow from 58 cores at 1 GHz" in (
            result.stderr
        )
        assert "they give" in result.stderr and "Warning" not in result.output
    assert cli("devices", "l4").stderr == ""


def test_models_are_listed(cli, parse_json) -> None:
    text = cli("models").stdout
    listed = parse_json(cli("models", "--json").stdout)
    assert len(listed) >= 40 and f"{len(listed)} models" in text
    assert all(f" {model['name']} " in text for model in listed)
    assert all(0 < model["active_parameters"] <= model["parameters"] for model in listed)


def test_models_and_classes_go_to_a_file(cli, refuse, own_folder: Path, parse_json) -> None:
    listed = parse_json(cli("models", "--json", "-o", "models.parquet").stdout)
    table = pq.read_table(own_folder / "models.parquet")
    assert table["name"].to_pylist() == [model["name"] for model in listed]
    assert table["parameters"].to_pylist() == [model["parameters"] for model in listed]
    assert table["assumptions"].to_pylist() == ["; ".join(model["assumptions"]) for model in listed]
    names = cli("models", "--classes", "-o", "classes.csv").stdout.split()
    assert (own_folder / "classes.csv").read_text().split() == ["class", *names]
    assert "the ending must be one of" in refuse("models", "-o", "models.txt")


def test_one_model(cli, parse_json) -> None:
    text = cli("models", "llama-3-70b").stdout
    assert "70.55 B" in text and "models" not in text
    model = parse_json(cli("models", "mixtral-8x7b", "--json").stdout)
    assert model["layers"] == 32 and model["active_parameters"] < model["parameters"] / 3
    assert isinstance(model["assumptions"], list)


def test_the_work_of_a_token_and_what_is_not_counted_are_told(cli, parse_json) -> None:
    assert "a generated token takes 15 GFLOP, 19.3 G the last of 8,192" in cli("models", "llama-3-8b").stdout
    assert "not counted: 11.61 B in layers that predict further tokens" in cli("models", "deepseek-v3").stdout
    llama, bert = (parse_json(cli("models", name, "--json").stdout) for name in ("llama-3-8b", "bert-large"))
    assert llama["flops_per_token"] == 2 * (llama["parameters"] - 128256 * 4096 - 65 * 4096) + 32 * 4 * 4096
    assert (llama["mtp_parameters"], bert["flops_per_token"]) == (0, None)
    assert "GFLOP" not in cli("models", "bert-large").stdout
