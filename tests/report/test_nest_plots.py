"""What the roofline of a machine shows of a mapping's levels."""

from __future__ import annotations

import pytest

from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.report.nest_plots import level_roofs, nest_figure

COUNTS = {"reads": 10.0, "fills": 3.0, "updates": 1.0}
FOUND = {"instances": 4.0, "tensors": {"A": COUNTS, "B": COUNTS}}


def test_a_port_has_the_words_and_the_bandwidth_of_all_instances() -> None:
    roofs = {roof.name: roof for roof in level_roofs("spad", Level(read_bandwidth=2.0, shared_bandwidth=3.0), FOUND)}
    assert set(roofs) == {"spad, reads", "spad, both"}
    assert roofs["spad, reads"].words == pytest.approx(80.0) and roofs["spad, both"].words == pytest.approx(112.0)
    assert roofs["spad, reads"].bandwidth == pytest.approx(8.0)


def test_what_moves_nothing_or_is_unlimited_has_none() -> None:
    assert not list(level_roofs("spad", Level(), FOUND))
    assert not list(level_roofs("spad", Level(read_bandwidth=2.0), {"instances": 4.0, "tensors": {}}))


def test_energies_have_prefixes_and_no_bar_ends_at_the_frame() -> None:
    spad = {**FOUND, "energy_j": 8e-9, "tensors": {"A": {**COUNTS, "energy_j": 8e-9}}}
    answer = {"macs": 8.0, "cycles": 4.0, "levels": {"mac": {"energy_j": 1e-9, "tensors": {}}, "spad": spad}}
    left, _ = nest_figure("", answer, Architecture((Level(read_bandwidth=2.0),)), ("spad",)).axes
    assert left.xaxis.get_major_formatter()(2e-9) == "2 nJ"
    assert left.get_xlim()[1] > 8e-9


def test_lines_of_one_bandwidth_are_all_seen() -> None:
    """Each has its dashes where the others have gaps, and its point is a ring around those of the others."""
    levels = ("spad", "buffer", "dram")
    answer = {"macs": 8.0, "cycles": 4.0, "levels": {name: {**FOUND, "energy_j": 1e-9} for name in levels}}
    for level in answer["levels"].values():
        level["tensors"] = {"A": {**COUNTS, "energy_j": 1e-9}}
    machine = Architecture(tuple(Level(read_bandwidth=bandwidth) for bandwidth in (2.0, 2.0, 1.0)))
    _, right = nest_figure("", answer, machine, levels).axes
    spad, buffer, dram = (line for line in right.lines if line.get_label() != "units")
    assert (spad.get_ydata() == buffer.get_ydata()).all()
    assert len({line.get_linestyle() for line in (spad, buffer)} | {dram.get_linestyle()}) == 2
    (start, (dash, gap)), (other, pattern) = spad._unscaled_dash_pattern, buffer._unscaled_dash_pattern
    assert (dash, gap) == tuple(pattern) and abs(other - start) == dash == gap
    sizes = [float(each.get_sizes()[0]) for each in right.collections]  # all three points are at one place
    assert sizes == sorted(set(sizes), reverse=True) and len(sizes) == 3
