"""What joins devices to their hosts."""

from __future__ import annotations

import pytest

import hwspecs


@pytest.mark.parametrize(
    ("name", "link", "rate", "memory"),
    [
        ("a100-sxm-80gb", "pcie4-x16", 31.5e9, None),
        ("h100-sxm", "pcie5-x16", 63e9, None),
        ("h20-3e", "pcie5-x16", 63e9, None),  # from its base
        ("l4", "pcie4-x16", 31.5e9, None),  # a card: the slot that it is in
        ("gh200-96gb", "nvlink-c2c", 450e9, 512e9),
        ("gb200", "nvlink-c2c", 225e9, 256e9),  # two share a Grace and its link
    ],
)
def test_a_device_is_joined_to_its_host(name: str, link: str, rate: float, memory: float | None) -> None:
    found = hwspecs.host_of(hwspecs.load(name))
    assert found is not None
    assert (found.link.name, found.link_bandwidth, found.memory_bandwidth) == (link, rate, memory)


def test_what_no_file_tells_is_unknown() -> None:
    assert hwspecs.host_of(hwspecs.load("tpu-v5p")) is None


def test_every_host_that_is_named_has_a_file() -> None:
    for name in hwspecs.names():
        spec = hwspecs.load(name)
        found = hwspecs.host_of(spec)
        assert found is None or found.link_bandwidth > 0.0
        assert spec.host is None or spec.host.devices is None or spec.host.processor
