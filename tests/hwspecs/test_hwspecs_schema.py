"""Mistakes in a device file become sentences: the file, the field, what is wrong and what is allowed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hwspecs
from hwspecs.schema import parse_spec

SOURCE = {"title": "Data sheet", "publisher": "Me", "kind": "datasheet", "year": 2026}
GIVEN = {"source": "maker", "confidence": "single source"}


def value(quantity: Any, **changes: Any) -> dict[str, Any]:
    return {"quantity": quantity, **GIVEN, **changes}


def chip(**changes: Any) -> dict[str, Any]:
    """A small valid device with changes at the top level; None removes a key."""
    raw: dict[str, Any] = {
        "name": "my-chip",
        "display_name": "My Chip",
        "vendor": "Me",
        "architecture": "mine",
        "kind": "npu",
        "released": "2026",
        "sources": {"maker": SOURCE},
        "peak_flops": {"bf16": value("100 TFLOP/s")},
        "vector_flops": value("1 TFLOP/s"),
        "memory_bandwidth": value("1 TB/s"),
        "memory_capacity": value("32 GB"),
        "num_cores": value(16),
        "clock_rate": value("1 GHz"),
        "l2_capacity": value("8 MiB"),
        "tdp": value("200 W"),
        "launch_latency": value("3 us"),
        "node": {
            "size": value(8),
            "topology": "switch",
            "link": "mylink",
            "link_count": value(1),
            "link_bandwidth": value("100 GB/s"),
            "link_latency": value("1 us"),
            "network_bandwidth": value("50 GB/s"),
            "network_latency": value("5 us"),
        },
    }
    raw.update(changes)
    return {key: item for key, item in raw.items() if item is not None}


def node(**changes: Any) -> dict[str, Any]:
    return {**chip()["node"], **changes}


def message(raw: dict[str, Any]) -> str:
    with pytest.raises(hwspecs.InputError) as caught:
        parse_spec(hwspecs.DeviceSpec, raw, "my-chip.toml")
    return str(caught.value)


def test_the_small_chip_is_valid() -> None:
    spec = parse_spec(hwspecs.DeviceSpec, chip(), "my-chip.toml")
    assert spec.memory_bandwidth.si == 1e12
    assert spec.num_cores.si == 16
    assert spec.peak_flops["bf16"].si == 1e14


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (chip(memory_bandwidth=value("-1 TB/s")), ["memory_bandwidth.quantity", "-1 TB/s", "greater than zero"]),
        (chip(memory_bandwidth=value("nan TB/s")), ["memory_bandwidth.quantity", "finite number"]),
        (chip(memory_bandwidth=value("inf TB/s")), ["memory_bandwidth.quantity", "finite number"]),
        (chip(memory_bandwidth=value("1e-30 B/s")), ["memory_bandwidth.quantity", "1e-30 B/s", "1 MB/s to 1 EB/s"]),
        (chip(clock_rate=value("1.8 PHz")), ["clock_rate.quantity", "out of range", "1 kHz to 1 THz"]),
        (chip(memory_capacity=value("1e30 B")), ["memory_capacity.quantity", "out of range", "1 B to 1 EB"]),
        (chip(num_cores=value("9" * 20)), ["num_cores.quantity", "out of range", "1 to 1"]),
        (chip(tdp=value("1e-9 W")), ["tdp.quantity", "out of range", "to 1 GW"]),
        (chip(die_area=value("814 m^2")), ["die_area.quantity", "814 m^2", "out of range", "to 1 m^2"]),
        (chip(die_area=value("814 mm")), ["die_area.quantity", "814 mm", "an area such as 814 mm^2"]),
        (chip(launch_latency=value("1e9 s")), ["launch_latency.quantity", "out of range", "1 ps to 1000 s"]),
        (chip(memory_bandwidth=value("80 GB")), ["memory_bandwidth.quantity", "wrong kind of unit", "3.35 TB/s"]),
        (chip(memory_bandwidth=value(3)), ["memory_bandwidth.quantity", "not text with a unit", "3.35 TB/s"]),
        (chip(memory_bandwidth="1 TB/s"), ["memory_bandwidth is '1 TB/s'", "must be a table", "quantity"]),
        (chip(num_cores=value("16.5")), ["num_cores.quantity", "not a whole number"]),
        (chip(num_cores=value(True)), ["num_cores.quantity", "plain number"]),
        (chip(memory_bandwdth=value("1 TB/s")), ["memory_bandwdth is not a known field", "mean memory_bandwidth"]),
        (chip(tdp=None), ["tdp is missing", "quantity"]),
        (chip(tdp={"quantity": "1 W", "confidence": "single source"}), ["tdp.source is missing"]),
        (chip(tdp=value("1 W", confidence="sure")), ["tdp.confidence is 'sure'", "confirmed", "estimated"]),
        (chip(tdp=value("1 W", confidence="confirmed")), ["tdp", "two or more sources"]),
        (chip(tdp=value("1 W", confidence="derived")), ["tdp", "needs a note"]),
        (chip(tdp=value("1 W", confidence="estimated")), ["tdp", "needs a note"]),
        (chip(tdp=value("1 W", source="makr")), ["tdp.source names 'makr'", "Did you mean maker?"]),
        (chip(tdp=value("1 W", source=[])), ["tdp.source is empty"]),
        (chip(tdp=value("1 W", date="May")), ["tdp.date is 'May'", "2024-05"]),
        (chip(kind="gpus"), ["kind is 'gpus'", "gpu, tpu, npu, cpu, soc", "Did you mean gpu"]),
        (chip(released="soon"), ["released is 'soon'", "2022-09"]),
        (chip(name="My Chip"), ["name is 'My Chip'", "lower-case"]),
        (chip(peak_flops={"bf61": value("1 TFLOP/s")}), ["peak_flops.bf61", "number format", "Did you mean bf16"]),
        (chip(peak_flops={}), ["peak_flops is empty"]),
        (chip(node=node(topology="ring")), ["node.topology is 'ring'", "switch, mesh, torus, pcie, single"]),
        (chip(node=node(topology="torus")), ["node", "torus_dimensions is missing"]),
        (chip(node=node(torus_dimensions=2)), ["node", "topology torus only"]),
        (chip(node=node(topology="single")), ["node", "size is 8", "topology single means 1"]),
        (chip(process="TSMC 4N"), ["process is 'TSMC 4N'", "lower-case"]),
        (chip(memory_type="HBM3"), ["memory_type is 'HBM3'", "lower-case"]),
        (chip(inline_ecc="on"), ["inline_ecc is 'on'", "true or false"]),
        (chip(node=node(topology="torus", torus_dimensions=5)), ["node.torus_dimensions is 5"]),
        (chip(node=node(linkbandwidth=value("1 GB/s"))), ["node.linkbandwidth", "Did you mean link_bandwidth"]),
        (chip(sources={"maker": {**SOURCE, "year": 1066}}), ["sources.maker.year is 1066", "at least 1990"]),
        (chip(sources={"maker": {**SOURCE, "year": "x"}}), ["sources.maker.year is 'x'", "whole number"]),
        (chip(sources={"maker": {**SOURCE, "kind": "blog"}}), ["sources.maker.kind is 'blog'", "datasheet"]),
        (chip(display_name=" "), ["display_name", "is empty"]),
        (chip(sources={}), ["sources is empty"]),
        (chip(l2_capacity=value("80 GB")), ["l2_capacity is 80 GB, but memory_capacity is 32 GB"]),
        (chip(usable_memory=value("36 GB")), ["usable_memory is 36 GB", "cannot be larger"]),
    ],
)
def test_a_mistake_is_one_plain_sentence(raw: dict[str, Any], words: list[str]) -> None:
    text = message(raw)
    assert text.startswith("my-chip.toml: ")
    assert all(word in text for word in words), text
    assert len(text.splitlines()) == 1, text
    assert not any(jargon in text for jargon in ("pydantic", "Value error", "validation", "Traceback")), text


@pytest.mark.parametrize("wrong", [3, True, 1.5, "x", [], [1], {}, {"a": 1}, None])
@pytest.mark.parametrize("key", sorted(chip()))
def test_any_wrong_type_is_a_sentence(key: str, wrong: Any) -> None:
    for raw in (
        {**chip(), key: wrong},
        chip(node=node(**{key: wrong})),
        chip(peak_flops={"bf16": {"quantity": wrong}}),
    ):
        try:
            parse_spec(hwspecs.DeviceSpec, raw, "my-chip.toml")
        except hwspecs.InputError as error:
            for line in str(error).splitlines():
                assert line.startswith("my-chip.toml: ") and line.endswith((".", "?")), line
                assert "Value error" not in line and "nput should" not in line, line


def test_each_of_several_mistakes_has_its_sentence() -> None:
    lines = message(chip(tdp=None, kind="fpga", memory_bandwidth=value("80 GB"))).splitlines()
    assert len(lines) == 3
    assert all(line.startswith("my-chip.toml: ") and line.endswith((".", "?")) for line in lines)


def test_a_misspelled_required_field_is_reported_once() -> None:
    text = message(chip(memory_bandwidth=None, memory_bandwdth=value("1 TB/s")))
    assert len(text.splitlines()) == 1
    assert "Did you mean memory_bandwidth" in text


def test_specifications_survive_json(devices: dict[str, hwspecs.DeviceSpec]) -> None:
    for name, spec in devices.items():
        again = parse_spec(hwspecs.DeviceSpec, json.loads(json.dumps(spec.to_dict())), name)
        assert again == spec


def test_specifications_are_immutable(devices: dict[str, hwspecs.DeviceSpec]) -> None:
    with pytest.raises(ValueError, match="frozen"):
        devices["h100-sxm"].vendor = "me"  # type: ignore[misc]


def test_malformed_toml_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text('name = "broken"\nkind = gpu\n')
    with pytest.raises(hwspecs.InputError, match=r"broken\.toml: this is not valid TOML: .*line 2"):
        hwspecs.load(str(path))


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 5000 + "]" * 5000])
@pytest.mark.parametrize("text", ["name = {}", "[a]\nname = {}"])
def test_toml_too_long_or_too_deep_is_a_sentence(tmp_path: Path, text: str, value: str) -> None:
    (tmp_path / "large.toml").write_text(text.format(value))
    for read in (hwspecs.load, lambda path: hwspecs.open_registry([tmp_path])):
        with pytest.raises(hwspecs.InputError, match=r"large\.toml: .*a number is too long or brackets nest too deep"):
            read(str(tmp_path / "large.toml")).resolve("large")


def test_a_missing_file_and_a_binary_file_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(hwspecs.InputError, match=r"nowhere\.toml: the file cannot be read"):
        hwspecs.load(str(tmp_path / "nowhere.toml"))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(hwspecs.InputError, match=r"binary\.toml: this is not text"):
        hwspecs.load(str(tmp_path / "binary.toml"))
