"""Energy per operation and byte: the published tables, the formula between them, and what it means for a device."""

from __future__ import annotations

import math

import pytest

import hwspecs
from hwspecs.files import SHIPPED, scan
from hwspecs.schema import parse_spec

# pJ of (multiply, add): Horowitz, ISSCC 2014 (45 nm); Jouppi et al., ISCA 2021, Table 2 (7 nm).
PUBLISHED = {
    "45nm": {"fp32": (3.7, 0.9), "fp16": (1.1, 0.4), "int8": (0.2, 0.03)},
    "7nm": {"fp32": (1.31, 0.38), "bf16": (0.21, 0.11), "fp16": (0.34, 0.16), "int8": (0.07, 0.007)},
}
# pJ per bit; Jouppi et al. give ranges per 64 bit: 250-450 for HBM2, 350-480 for GDDR6, 1300 for DDR4.
MEMORY_RANGES = {"hbm2": (250 / 64, 450 / 64), "gddr6": (350 / 64, 480 / 64), "ddr4": (1290 / 64, 1310 / 64)}
SIGNIFICAND_BITS = {"fp64": 53, "fp32": 24, "tf32": 11, "fp16": 11, "bf16": 8, "fp8": 4, "fp4": 2}
PROCESSES = tuple(scan(SHIPPED / "processes"))
ROUNDED = 6e-3  # three digits are written


def energies(name: str) -> dict[str, float]:
    return {str(key): value.si for key, value in hwspecs.load_process(name).energy_per_flop.items()}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_anchors_are_the_published_tables(name: str) -> None:
    found = energies(name)
    for key, (multiply, add) in PUBLISHED[name].items():
        assert found[key] == pytest.approx((multiply + add) / 2 * 1e-12, rel=1e-3), key


@pytest.mark.parametrize("key", ["fp64", "tf32", "fp16", "fp8", "fp4"])
def test_other_formats_follow_from_their_significand(key: str) -> None:
    """Multiplier a + b s^2 and adder c + d s through bf16 and fp32; fp16, which is published, checks the form."""
    (multiply_16, add_16), (multiply_32, add_32) = PUBLISHED["7nm"]["bf16"], PUBLISHED["7nm"]["fp32"]
    b, d = (multiply_32 - multiply_16) / (24**2 - 8**2), (add_32 - add_16) / (24 - 8)
    bits = SIGNIFICAND_BITS[key]
    pair = multiply_16 + b * (bits**2 - 8**2) + add_16 + d * (bits - 8)
    assert energies("7nm")[key] == pytest.approx(pair / 2 * 1e-12, rel=0.02 if key == "fp16" else ROUNDED)


@pytest.mark.parametrize("name", PROCESSES)
def test_every_process_lies_on_the_line_between_the_anchors(name: str) -> None:
    """E = E7 (L / 7 nm)^(ln(E45 / E7) / ln(45 / 7)), L the length in the name."""
    seven, forty_five = energies("7nm"), energies("45nm")
    length = hwspecs.load_process(name).feature_size.si / 7e-9
    assert set(energies(name)) == set(hwspecs.FORMATS)
    for key, found in energies(name).items():
        power = math.log(forty_five[key] / seven[key]) / math.log(45 / 7)
        assert found == pytest.approx(seven[key] * length**power, rel=ROUNDED), key


@pytest.mark.parametrize("name", PROCESSES)
def test_wider_formats_cost_more(name: str) -> None:
    found = energies(name)
    floats = [found[key] for key in ("fp64", "fp32", "fp16", "bf16", "fp8", "fp4")]
    assert floats == sorted(floats, reverse=True)
    assert found["fp8"] > found["int8"] > found["int4"]


def test_smaller_processes_cost_less() -> None:
    ordered = sorted(PROCESSES, key=lambda name: hwspecs.load_process(name).feature_size.si)
    found = [energies(name)["bf16"] for name in ordered]
    assert found == sorted(found)


def test_powers_at_one_speed_are_what_foundries_announced() -> None:
    """Each step as announced; 4N is taken for N4P, 12FFN for 12FFC, 8N for 8LPP, Samsung's 7LPP for N7."""
    processes = {name: hwspecs.load_process(name) for name in PROCESSES}
    found = {name: spec.relative_power.si for name, spec in processes.items() if spec.relative_power is not None}
    steps = {
        ("tsmc-4n", "tsmc-n5"): 1 / 1.22,
        ("tsmc-n5", "tsmc-n7"): 1 - 0.30,
        ("tsmc-n5p", "tsmc-n7"): 1 - 0.40,
        ("tsmc-n7", "tsmc-16ff"): 1 - 0.60,
        ("tsmc-12ffn", "tsmc-16ff"): 1 - 0.25,
        ("samsung-8n", "samsung-10lpp"): 1 - 0.10,
        ("samsung-10lpp", "samsung-10lpe"): 1 - 0.15,
        ("tsmc-n7", "samsung-10lpe"): 1 - 0.50,
    }
    for (new, old), ratio in steps.items():
        assert found[new] / found[old] == pytest.approx(ratio, rel=ROUNDED), (new, old)
    same = {"tsmc-4np": "tsmc-4n", "tsmc-7n": "tsmc-n7", "tsmc-n6": "tsmc-n7"}
    assert all(found[name] == found[other] for name, other in same.items())
    assert found["tsmc-n5"] == 1.0 and set(found) == {name for pair in steps for name in pair} | set(same)


@pytest.mark.parametrize("name", MEMORY_RANGES)
def test_memories_lie_in_published_ranges(name: str) -> None:
    low, high = MEMORY_RANGES[name]
    assert low <= hwspecs.load_memory(name).energy_per_byte.si * 1e12 / 8 <= high * 1.001


def test_each_generation_of_memory_costs_no_more_than_the_last() -> None:
    families = (
        "gddr5 gddr5x gddr6 gddr6x gddr7",
        "hbm2 hbm2e hbm3 hbm3e hbm4",
        "lpddr4 lpddr4x lpddr5 lpddr5x",
        "ddr4 ddr5",
    )
    for family in families:
        found = [hwspecs.load_memory(name).energy_per_byte.si for name in family.split()]
        assert found == sorted(found, reverse=True), family
    assert set(" ".join(families).split()) == set(scan(SHIPPED / "memories"))


@pytest.mark.parametrize("name", hwspecs.names())
def test_arithmetic_and_memory_alone_stay_below_the_power_of_the_device(
    name: str, devices: dict[str, hwspecs.DeviceSpec]
) -> None:
    spec = devices[name]
    facts = hwspecs.energy_of(spec)
    assert (facts is None) == (spec.process is None or spec.memory_type is None)
    if facts is None:
        return
    memory = facts.per_byte.si * spec.memory_bandwidth.si
    for key, peak in spec.peak_flops.items():
        assert memory + facts.per_flop[key].si * peak.si < spec.tdp.si, key


def test_most_devices_have_energy_facts(devices: dict[str, hwspecs.DeviceSpec]) -> None:
    """All but those whose makers, or an analyst that is cited, do not tell the process."""
    without = {name for name, spec in devices.items() if hwspecs.energy_of(spec) is None}
    untold = {name for name, spec in devices.items() if spec.vendor in ("AWS", "Google", "Groq", "Huawei")}
    assert without <= untold | {"jetson-agx-thor-128gb"}


def test_an_h100_spends_what_its_process_and_memory_say(devices: dict[str, hwspecs.DeviceSpec]) -> None:
    facts = hwspecs.energy_of(devices["h100-sxm"])
    assert facts is not None
    assert (facts.process.name, facts.memory.name) == ("tsmc-4n", "hbm3")
    assert facts.per_flop["bf16"].si == pytest.approx(0.16e-12 * (5 / 7) ** 0.59, rel=0.01)
    assert facts.per_byte.si == pytest.approx(4.05 * 8e-12)


def test_a_flagship_has_the_whole_rate_and_the_highest_limit_of_its_chip(
    devices: dict[str, hwspecs.DeviceSpec],
) -> None:
    with_host = ("gh200-96gb", "gh200-144gb")  # whose limit is that of a module with a processor
    for name, spec in devices.items():
        flagship = hwspecs.flagship_of(spec)
        if flagship is None:
            continue
        assert flagship.architecture.partition("-")[0] == spec.architecture.partition("-")[0], name
        assert hwspecs.flagship_of(flagship) == flagship, name
        cut, whole = (hwspecs.load_architecture(each.architecture).operations_per_cycle for each in (spec, flagship))
        for key in cut.keys() & whole.keys():
            assert cut[key].si <= whole[key].si, f"{name}: {key}"
        if spec.architecture == flagship.architecture and name not in with_host:
            assert spec.tdp.si <= flagship.tdp.si, name


def test_cards_of_one_chip_are_made_in_one_process(devices: dict[str, hwspecs.DeviceSpec]) -> None:
    """A chip inside a processor with another one (soc) shares the design only."""
    for name, spec in devices.items():
        flagship = hwspecs.flagship_of(spec)
        if spec.kind == "gpu" and flagship is not None:
            assert spec.process == flagship.process, name


def test_nobody_knows_the_flagship_of_an_architecture_of_ones_own(devices: dict[str, hwspecs.DeviceSpec]) -> None:
    assert hwspecs.flagship_of(devices["h20"]) == devices["h100-sxm"]
    assert hwspecs.flagship_of(devices["p4"]) is None  # no matrix units
    assert hwspecs.flagship_of(devices["h100-sxm"].model_copy(update={"architecture": "mine"})) is None


def test_an_unknown_process_names_the_nearest(devices: dict[str, hwspecs.DeviceSpec]) -> None:
    with pytest.raises(hwspecs.InputError, match="'tsmc-4m' is not in processes. Did you mean .*tsmc-4n"):
        hwspecs.energy_of(devices["h100-sxm"].model_copy(update={"process": "tsmc-4m"}))
    with pytest.raises(hwspecs.InputError, match="'hbm5' is not in memories. Did you mean hbm"):
        hwspecs.energy_of(devices["h100-sxm"].model_copy(update={"memory_type": "hbm5"}))


def test_mistakes_in_a_process_or_a_memory_are_sentences() -> None:
    sources = {"maker": {"title": "Brochure", "publisher": "Me", "kind": "datasheet", "year": 2026}}
    head = {"name": "mine-2", "display_name": "Mine", "vendor": "Me", "sources": sources}
    given = {"source": "maker", "confidence": "single source"}
    process = {
        **head,
        "feature_size": {"quantity": "2", **given},
        "energy_per_flop": {"bf61": {"quantity": "1 pJ/FLOP", **given}, "fp8": {"quantity": "1 pJ", **given}},
    }
    with pytest.raises(hwspecs.InputError) as caught:
        parse_spec(hwspecs.ProcessSpec, process, "mine-2.toml")
    for words in ("has no unit; write a length such as 7 nm", "Did you mean bf16", '"pJ" is the wrong kind of unit'):
        assert words in str(caught.value)
    memory = {**head, "energy_per_byte": {"quantity": "4 pJ/b", **given}}
    with pytest.raises(hwspecs.InputError, match="could mean bits or bytes"):
        parse_spec(hwspecs.MemorySpec, memory, "mine-2.toml")


def test_a_die_has_one_area_and_fits_a_reticle(devices: dict[str, hwspecs.DeviceSpec]) -> None:
    """However much of it is switched on; a reticle exposes 26 x 33 mm at once."""
    packages = ("mi250", "mi250x")
    of_chip = {"hopper": 814e-6, "hopper-h20": 814e-6, "volta": 815e-6, "ampere-ga100": 826e-6, "pascal-gp100": 610e-6}
    for name, spec in devices.items():
        if spec.die_area is not None:
            assert name in packages or spec.die_area.si <= 26e-3 * 33e-3, name
        if spec.architecture in of_chip:
            assert spec.die_area is not None and spec.die_area.si == pytest.approx(of_chip[spec.architecture]), name
    whole, half = (devices[name].die_area for name in ("mi250x", "mi250x-gcd"))
    assert whole is not None and half is not None and whole.si == 2.0 * half.si
