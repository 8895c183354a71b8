"""What a step takes of its host: links from files, what is assumed elsewhere, and a host that is too small."""

from __future__ import annotations

import pytest

import hwspecs
from jaxperf.core.numerics import as_float
from jaxperf.training.efficiencies import assumed_training_efficiencies
from jaxperf.training.host import host_note, host_rates, with_host
from jaxperf.training.layout import Layout, training_layout
from jaxperf.training.layout_checks import TrainingReason, device_checks
from jaxperf.training.search.plan import assumed_rates
from tests.devices import H100


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        ("a100-sxm-80gb", {"host_bandwidth": 25.2e9}),  # 0.8 of PCI Express 4 x16
        ("h100-sxm", {"host_bandwidth": 50.4e9}),
        ("gh200-96gb", {"host_bandwidth": 360e9, "host_memory_bandwidth": 512e9 * 2 / 3}),
        ("gb200", {"host_bandwidth": 180e9, "host_memory_bandwidth": 256e9 * 2 / 3}),  # two share a Grace
        ("tpu-v5p", {}),
    ],
)
def test_rates_are_shares_of_the_link_that_the_file_names(name: str, rates: dict[str, float]) -> None:
    spec = hwspecs.load(name)
    assert host_rates(spec) == pytest.approx(rates)
    assumed = assumed_training_efficiencies()
    found = with_host(assumed, spec)
    for field in ("host_bandwidth", "host_memory_bandwidth"):
        assert float(getattr(found, field)) == pytest.approx(rates.get(field, float(getattr(assumed, field))))


def test_it_is_said_what_is_assumed() -> None:
    known, unknown = (hwspecs.load(name) for name in ("gb200", "tpu-v5p"))
    assert "180 GB/s, and the memory of grace" in host_note(known, with_host(assumed_training_efficiencies(), known))
    assert host_note(unknown, assumed_training_efficiencies()).startswith("no file tells how tpu-v5p is joined")


def test_the_ends_of_a_plan_have_ends_of_the_link() -> None:
    rates = assumed_rates(hwspecs.load("h100-sxm"))
    assert rates.slow is not None and rates.fast is not None
    ends = [float(each.host_bandwidth) for each in (rates.slow, rates.nominal, rates.fast)]
    assert ends == pytest.approx([31.5e9, 50.4e9, 59.85e9])


@pytest.mark.parametrize(("stated", "over"), [(0.0, False), (10e9, True), (20e9, False)])
def test_a_host_that_is_too_small(stated: float, over: bool) -> None:
    layout: Layout = training_layout(offload_optimizer=1.0, host_memory=stated)
    found = device_checks(layout, H100, as_float(0.0), as_float(15e9))
    assert bool(found[TrainingReason.HOST]) is over
