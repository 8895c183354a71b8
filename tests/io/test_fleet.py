"""Which devices a user means: names, aliases, files, globs, folders, conditions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hwspecs
from hwspecs.errors import InputError
from jaxperf.io.fleet import (
    COMPARISONS,
    FIELDS,
    axis_places,
    places_of,
    select_axis_devices,
    select_device,
    select_devices,
)

fields, signs = st.sampled_from(sorted(FIELDS)), st.sampled_from([*COMPARISONS, "==", "=", "<>", ""])
quantities = st.one_of(
    st.sampled_from(["64 GB", "1 TB/s", "700 W", "8", "", "nan", "1e999 GB", "-1 GB"]), st.text(max_size=9)
)
conditions = st.builds("all({} {} {})".format, fields, signs, quantities)
any_text = st.one_of(st.text(max_size=30), st.text("all(memory>= 64GB),*?[]h100-sxm", max_size=30), conditions)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    for name, base in (("chip-a", "h100-sxm"), ("chip-b", "l4")):
        text = f'name = "{name}"\nbase = "{base}"\naliases = ["alias of {name}"]\n'
        (tmp_path / f"{name}.toml").write_text(text)
    return tmp_path


def test_names_keep_their_order_and_count_once() -> None:
    assert list(select_devices("mi300x, H100,h100-sxm ,l4")) == ["mi300x", "h100-sxm", "l4"]
    assert list(select_devices(["l4", "a10"])) == ["l4", "a10"]


def test_all_is_every_device() -> None:
    assert tuple(select_devices("all")) == hwspecs.names()


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("all(memory >= 64 GB)", lambda spec: spec.memory_capacity.si >= 64e9),
        ("all( memory>=80GB , tdp < 1 kW )", lambda spec: spec.memory_capacity.si >= 80e9 and spec.tdp.si < 1000),
        ("all(memory_bandwidth > 3 TB/s)", lambda spec: spec.memory_bandwidth.si > 3e12),
        ("all(num_cores <= 100)", lambda spec: spec.num_cores.si <= 100),
        ("all(link_bandwidth >= 400 GB/s)", lambda spec: spec.node.link_bandwidth.si >= 400e9),
        ("all(kind = TPU)", lambda spec: spec.kind == "tpu"),
        ("all(vendor = amd, released >= 2023)", lambda spec: spec.vendor == "AMD" and spec.released >= "2023"),
    ],
)
def test_conditions_against_brute_force(text: str, holds) -> None:
    wanted = [name for name, spec in hwspecs.open_registry().load_all().items() if holds(spec)]
    assert wanted and list(select_devices(text)) == wanted


def test_a_condition_beside_a_name() -> None:
    assert list(select_devices("l4, all(memory >= 250 GB, tdp < 1.05 kW)"))[0] == "l4"


def test_files_globs_and_folders(mine: Path) -> None:
    assert list(select_devices(str(mine / "chip-a.toml"))) == ["chip-a"]
    assert list(select_devices([f"{mine}/*.toml", "h100"])) == ["chip-a", "chip-b", "h100-sxm"]
    assert list(select_devices("alias of chip-b", [mine])) == ["chip-b"]
    assert {"chip-a", "chip-b"} < set(select_devices("all", [mine]))


def test_devices_given_as_files_are_found_again_by_their_names(mine: Path, tmp_path: Path) -> None:
    renamed = (mine / "chip-a.toml").rename(tmp_path / "what-if.toml")
    for places in (
        places_of(["h100-sxm", str(renamed)]),
        places_of(f"all(memory >= 64 GB), {tmp_path}/what*"),
        axis_places({"setup": {"device": ["l4", str(renamed)], "batch": [1, 2]}}),
    ):
        assert hwspecs.load("chip-a", places).memory_capacity == hwspecs.load("h100-sxm").memory_capacity
        assert hwspecs.open_registry(places).find("alias of chip-a") == "chip-a"
    assert places_of("all", ["mine"]) == ("mine",)


@pytest.mark.parametrize(
    "wanted", ["", ",", [], ["l4", ""], "nope", "all(", "all(memory)", "all(memory = 1 GB)", "no/*.toml"]
)
def test_mistakes(wanted: object) -> None:
    with pytest.raises(InputError):
        select_devices(wanted)  # type: ignore[arg-type]


def test_one_device() -> None:
    assert select_device("H100").name == "h100-sxm"
    with pytest.raises(InputError, match="means 48|means [0-9]+ devices"):
        select_device("all")


def test_an_axis_alone_absent_or_zipped() -> None:
    specs, axes = select_axis_devices({"batch": 1, "device": "H100, l4"})
    assert list(specs) == axes["device"] == ["h100-sxm", "l4"]
    assert list(axes) == ["batch", "device"], "the order of the axes is the user's"
    specs, axes = select_axis_devices({"batch": 1})
    assert axes["device"] == list(hwspecs.names())
    zipped = {"device": ["H100", "l4", "h100-sxm"], "batch": [1, 2, 3]}
    specs, axes = select_axis_devices({"setup": zipped})
    assert list(specs) == ["h100-sxm", "l4"] and "device" not in axes
    assert axes["setup"] == {"device": ["h100-sxm", "l4", "h100-sxm"], "batch": [1, 2, 3]}


@pytest.mark.long
@settings(max_examples=200)
@given(any_text)
def test_any_text_gives_devices_or_a_sentence(text: str) -> None:
    try:
        assert select_devices(text)
    except InputError as error:
        assert str(error)
