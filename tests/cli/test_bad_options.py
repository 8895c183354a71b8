"""Every mistake on the command line ends with exit code 2 and one sentence that says what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwspecs.errors import InputError
from jaxperf.cli.options import parse_seconds

ESTIMATE = ("estimate", "gpt2", "--device", "h100-sxm")
RANK = ("rank", "gpt2", "--devices", "h100-sxm,l4", "--max-devices", "2", "--max-batch", "4")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--batch", "0"), "'batch' is 0; it must be a number from 1 to 1,048,576."),
        (("--batch", "-3"), "'batch' is -3"),
        (("--batch", str(10**30)), "from 1 to 1,048,576"),
        (("--batch", "1e400"), "--batch"),
        (("--batch", "nan"), "--batch"),
        (("--batch", "true"), "--batch"),
        (("--batch", "2.5"), "--batch"),
        (("--prompt", "-5"), "'prompt' is -5"),
        (("--prompt", "0"), "'prompt' is 0"),
        (("--output", str(2**62)), "'output' is"),
        (("--tp", "0"), "'tensor_parallel' is 0"),
        (("--tp", "5"), "allowed: 1, 2, 3, 4, 6, 12"),
        (("--tp", str(10**30)), "'tensor_parallel' is"),
        (("--pp", "13"), "pipeline_parallel 13 is more than 12 layers"),
        (("--ep", "2"), "needs a mixture-of-experts model; gpt2 is dense"),
        (("--dp", "4"), "batch 1 is less than data_parallel 4"),
        (("--weights", "fp9"), "Did you mean fp8"),
        (("--weights", ""), "Unknown number format ''"),
        (("--kv-cache", "int4"), "allowed here: fp32, bf16, fp16, fp8, int8, fp4"),
        (("--launch", "grap"), "allowed: graph, eager. Did you mean graph"),
        (("--device", "h100-sxn"), "Did you mean h100-sxm"),
        (("--device", ""), "No device is given"),
        (("--device", "all"), "name one of them"),
        (("--device", "h100-sxm,l4"), "not a known device"),
        (("--device", "missing.toml"), "No such file"),
        (("--device", "*.toml"), "No file matches '*.toml'"),
        (("--device", "a" * 5000 + ".toml"), "File name too long"),
        (("--devices-dir", "missing"), "missing is not a directory"),
    ],
)
def test_estimate_refuses(refuse, arguments: tuple[str, ...], said: str) -> None:
    assert said in refuse(*ESTIMATE, *arguments)


def test_experts_must_divide(refuse) -> None:
    mixtral = ("estimate", "mixtral-8x7b", "--device", "h100-sxm", "--batch", "8")
    assert "expert_parallel 3 does not divide the 8 experts" in refuse(*mixtral, "--ep", "3")
    assert "does not divide tensor x data parallel = 2" in refuse(*mixtral, "--ep", "8", "--tp", "2")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--by", "tokens/s"), "allowed: tokens/s/device, tokens/J, tokens/$. Did you mean"),
        (("--by", ""), "Cannot rank by ''"),
        (("--slo", "tpott=1s"), "--slo: unknown target 'tpott'; allowed: ttft, tpot. Did you mean tpot"),
        (("--slo", "tpot"), "write tpot=30ms"),
        (("--slo", "tpot="), "has no value"),
        (("--slo", "tpot=30"), "has no unit"),
        (("--slo", "tpot=1GB"), "wrong kind of unit"),
        (("--slo", "tpot=-1s"), "greater than zero"),
        (("--slo", "tpot=0ms"), "greater than zero"),
        (("--slo", "tpot=nan s"), "finite number"),
        (("--slo", "tpot=1e999s"), "write a time such as"),
        (("--slo", "tpot=1s,tpot=2s"), "tpot is given twice"),
        (("--price", "h100-sxm"), "write h100-sxm=2.50"),
        (("--price", "h100-sxm=2.5", "--price", "H100-SXM=3"), "h100-sxm has two prices, 2.5 and 3."),
        (("--price", "h100-sxm=2.5,H100-SXM=3"), "h100-sxm has two prices, 2.5 and 3."),
        (("--price", "h100-sxm=2,50"), "--price: '50' has no price"),
        (("--price", "=2"), "has no price"),
        (("--price", "h100-sxm=0"), "a number above zero"),
        (("--price", "h100-sxm=-1"), "a number above zero"),
        (("--price", "h100-sxm=nan"), "a number above zero"),
        (("--price", "h100-sxm=1e999"), "a number above zero"),
        (("--price", "h100-sxm=cheap"), "'cheap'; it must be a number"),
        (("--price", "h100-sxn=2"), "--price: 'h100-sxn' is not a known device. Did you mean h100-sxm"),
        (("--price", "a40=2"), "device 'a40' is not among those asked about"),
        (("--price", "missing.toml"), "--price: missing.toml: the file cannot be read"),
        (("--by", "tokens/$"), "needs the price of at least one device"),
        (("--max-batch", "0"), "'max_batch' is 0"),
        (("--max-devices", "0"), "'max_devices' is 0"),
        (("--max-devices", str(10**30)), "'max_devices' is"),
        (("--prompt", "0"), "'prompt' is 0"),
        (("--weights", "bf61"), "Did you mean bf16"),
        (("--kv-cache", "nope"), "Unknown number format"),
        (("--launch", "nope"), "Unknown launch mode"),
        (("--devices", "all(memori >= 1 GB)"), "Did you mean memory"),
        (("--devices", "all(memory >= 1 s)"), "In the condition 'memory >= 1 s'"),
        (("--devices", "all(memory"), "closing parenthesis"),
        (("--devices", "all()"), "Cannot read the condition ''"),
        (("--devices", "all(memory >= 9 PB)"), "No device matches"),
        (("--devices", ","), "No device is given"),
    ],
)
def test_rank_refuses(refuse, arguments: tuple[str, ...], said: str) -> None:
    assert said in refuse(*RANK, *arguments)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("llama-3-70", "Did you mean llama-3-70b"),
        ("", "give a config.json"),
        ("missing.json", "No model or path"),
        ("folder", "has no config.json"),
        ("empty.json", "empty.json is empty"),
        ("text.json", "not valid JSON: Expecting value: line 1 column 1"),
        ("binary.json", "not a text file in UTF-8"),
        ("list.json", "list.json"),
        ("a" * 5000, "No model or path"),
    ],
)
@pytest.mark.parametrize("command", [("estimate", "--device", "h100-sxm"), ("rank",), ("models",)])
def test_models_that_are_none(refuse, own_folder: Path, command: tuple[str, ...], model: str, said: str) -> None:
    (own_folder / "folder").mkdir()
    (own_folder / "empty.json").write_text("")
    (own_folder / "text.json").write_text("model: gpt2")
    (own_folder / "binary.json").write_bytes(b"\x00\xff\xfe")
    (own_folder / "list.json").write_text("[1, 2]")
    assert said in refuse(command[0], model, *command[1:])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "bad.toml"),
        (b"\x00\xff", "not text in UTF-8"),
        (b"name = ", "not valid TOML"),
        (b'name = "bad"\nwheels = 4\n', "wheels"),
    ],
)
def test_device_files_that_are_none(refuse, own_folder: Path, content: bytes, said: str) -> None:
    (own_folder / "bad.toml").write_bytes(content)
    assert said in refuse("estimate", "gpt2", "--device", "bad.toml")
    assert said in refuse("devices", "--devices-dir", str(own_folder))


def test_a_folder_is_not_a_device_file(refuse, own_folder: Path) -> None:
    (own_folder / "folder.toml").mkdir()
    assert "Is a directory" in refuse("estimate", "gpt2", "--device", "folder.toml")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("h100-sxm = ", "not valid TOML"),
        ("h100-sxm = " + "9" * 5000, "--price: prices.toml: this is not valid TOML: a number is too long"),
        ("h100-sxm = true", "a number above zero"),
        ("h100-sxm = nan", "a number above zero"),
        ("[h100-sxm]\nprice = 2", "a number above zero"),
        ('nothing-like-it = "2"', "is not a known device"),
    ],
)
def test_price_files_that_are_none(refuse, own_folder: Path, content: str, said: str) -> None:
    (own_folder / "prices.toml").write_text(content)
    assert said in refuse(*RANK, "--price", "prices.toml")


def test_no_time_at_all_may_have_a_unit() -> None:
    assert [parse_seconds("--warm-up", text) for text in ("0", "0s", "0 ms", "20ms")] == [0.0, 0.0, 0.0, 0.02]
    with pytest.raises(InputError, match='--warm-up: "-1 s" must be finite and not below zero'):
        parse_seconds("--warm-up", "-1 s")
