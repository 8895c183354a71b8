"""The shipped networks: sourced, consistent with their lanes, their links, their devices and their own products."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path

import pytest

import hwspecs
from hwspecs.files import SHIPPED, read_toml, scan
from hwspecs.network import NetworkSpec
from hwspecs.schema import parse_spec
from tests.hwspecs.test_hwspecs_devices import organizations
from tests.hwspecs.test_hwspecs_imports import loaded_after

NETWORKS = {name: hwspecs.load_network(name) for name in hwspecs.network_names()}
every_network = pytest.mark.parametrize("spec", NETWORKS.values(), ids=NETWORKS)

# Rate of one port, one direction, in Gbit/s, as the names of the generations say it.
PRINTED = {
    **{"infiniband-hdr": 200, "infiniband-ndr": 400, "infiniband-xdr": 800},
    **{f"roce-{rate}": rate for rate in (100, 200, 400, 800)},
    **{"nvswitch1": 200, "nvswitch2": 200, "nvswitch3": 200, "nvswitch4": 400, "nvswitch5": 400, "slingshot-11": 200},
}


@every_network
def test_every_value_is_sourced(spec: NetworkSpec) -> None:
    values = dict(spec.values())
    assert len(values) >= 2 and spec.name in NETWORKS
    assert set(spec.sources) == {key for value in values.values() for key in value.source}
    for field, value in values.items():
        if value.confidence == "confirmed":
            assert len(organizations(spec, value)) >= 2, field
            assert any("recalled" not in (spec.sources[key].note or "") for key in value.source), field


@every_network
def test_a_port_is_its_lanes(spec: NetworkSpec) -> None:
    if spec.lanes is not None and spec.lane_rate is not None:
        assert spec.bandwidth.si == pytest.approx(spec.lanes.si * spec.lane_rate.si, rel=1e-12)
    if spec.ports_per_node is not None and spec.node_bandwidth is not None:
        assert spec.node_bandwidth.si == pytest.approx(spec.ports_per_node.si * spec.bandwidth.si, rel=1e-12)


@pytest.mark.parametrize(("name", "gigabits"), PRINTED.items())
def test_a_port_has_the_rate_of_its_name(name: str, gigabits: int) -> None:
    assert NETWORKS[name].bandwidth.si == gigabits * 1e9 / 8
    assert NETWORKS[name].kind in ("fabric", "switch")


@every_network
def test_a_port_is_the_link_of_its_file(spec: NetworkSpec) -> None:
    assert (spec.link is None) == (spec.kind == "fabric")
    if spec.link is not None:
        assert hwspecs.load_link(spec.link).bandwidth.si == spec.bandwidth.si


@pytest.mark.parametrize("name", [name for name, spec in NETWORKS.items() if spec.kind == "torus"])
def test_a_torus_is_the_pod_of_its_device(name: str) -> None:
    spec, node = NETWORKS[name], hwspecs.load(name).node
    assert spec.pod_size is not None and spec.wrapped_multiple is not None
    assert spec.link == node.link and spec.pod_size.si == node.size.si
    if spec.extents is not None:
        sizes = spec.extents.sizes()
        assert math.prod(sizes) == spec.pod_size.si and len(sizes) == node.torus_dimensions
        assert all(size % spec.wrapped_multiple.si == 0 for size in sizes)


def test_in_network_reduction_came_with_hopper_and_hdr() -> None:
    reducing = {name for name, spec in NETWORKS.items() if spec.in_network_reduction}
    assert reducing == {"infiniband-hdr", "infiniband-ndr", "infiniband-xdr", "nvswitch3", "nvswitch4", "nvswitch5"}


@pytest.mark.parametrize(
    ("text", "name"),
    [("NDR", "infiniband-ndr"), ("ndr infiniband", "infiniband-ndr"), ("400GbE", "roce-400"), ("EFA v2", "efa-p5")],
)
def test_aliases_are_found(text: str, name: str) -> None:
    assert hwspecs.load_network(text).name == name


def test_an_unknown_network_gets_the_nearest_names() -> None:
    with pytest.raises(hwspecs.InputError, match=r"'infiniband-ndx' is not a known network\. Did you mean infini"):
        hwspecs.load_network("infiniband-ndx")


def changed(name: str, old: str, new: str) -> dict:
    text = (SHIPPED / "networks" / f"{name}.toml").read_text(encoding="utf-8")
    assert re.search(old, text, re.MULTILINE)
    return tomllib.loads(re.sub(old, new, text, count=1, flags=re.MULTILINE))


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("infiniband-ndr", r"^lanes = .*\n", "", "lanes and lane_rate belong together"),
        ("efa-p5", r"^node_bandwidth = .*\n", "", "ports_per_node and node_bandwidth belong together"),
        ("tpu-v4", r"^wrapped_multiple = .*\n", "", "a torus needs both"),
        ("tpu-v4", 'kind = "torus"', 'kind = "switch"', "extents is allowed for kind torus only"),
        ("roce-100", r"^lanes", "lane", "lane is not a known field. Did you mean lanes"),
        ("roce-100", 'quantity = "100 Gbit/s"', 'quantity = "100 Gb"', "100 Gb"),
        ("roce-100", 'kind = "fabric"', 'kind = "fabrik"', "fabrik"),
        ("roce-100", r"^bandwidth = .*\n", "", "bandwidth is missing"),
    ],
)
def test_a_bad_file_is_explained(name: str, old: str, new: str, words: str) -> None:
    with pytest.raises(hwspecs.InputError) as raised:
        parse_spec(NetworkSpec, changed(name, old, new), f"{name}.toml")
    assert f"{name}.toml" in str(raised.value) and words in str(raised.value)


def test_files_are_named_after_their_networks() -> None:
    for name, path in scan(SHIPPED / "networks").items():
        assert read_toml(Path(path))["name"] == name


def test_loading_a_network_does_not_load_jax() -> None:
    assert "jax" not in loaded_after("import hwspecs\nhwspecs.load_network('NDR').bandwidth.si")
