"""`devices` and `models`: lists and single entries, as text and JSON."""

from __future__ import annotations

from pathlib import Path


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


def test_one_model(cli, parse_json) -> None:
    text = cli("models", "llama-3-70b").stdout
    assert "70.55 B" in text and "models" not in text
    model = parse_json(cli("models", "mixtral-8x7b", "--json").stdout)
    assert model["layers"] == 32 and model["active_parameters"] < model["parameters"] / 3
    assert isinstance(model["assumptions"], list)
