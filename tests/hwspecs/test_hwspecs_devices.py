"""The shipped facts: complete, sourced, dense, per direction, and consistent with cores x clock x operations."""

from __future__ import annotations

import pytest

import hwspecs
from hwspecs.schema import Spec

REQUIRED = """
a100-sxm-80gb a100-sxm-40gb a100-pcie-80gb a100-pcie-40gb a10 a40 l4 l40 l40s l20 rtx-a6000 rtx-3090 rtx-4090
rtx-6000-ada rtx-pro-6000 h100-sxm h100-pcie h100-nvl h800-sxm h20 h20-3e h200-sxm h200-nvl gh200-96gb gh200-144gb
b200 gb200 b300 gb300 mi210 mi250x mi300x mi325x mi355x gaudi2 gaudi3 tpu-v5e tpu-v5p tpu-v6e tpu-v7 trn2 arc-pro-b60
vr200 p4 p40 t4 v100-sxm-16gb v100-sxm-32gb v100-pcie-16gb a2 a10g a30 a800-sxm-80gb b100 rtx-a5000 rtx-2080-ti rtx-5090
jetson-nano jetson-tx2 jetson-agx-xavier-32gb jetson-orin-nx-16gb jetson-agx-orin-64gb jetson-agx-thor-128gb
mi50 mi60 mi100 mi250 mi300a mi350x rx-7900-xtx radeon-pro-w7900 max-1100 max-1550 arc-a770-16gb arc-b580 arc-pro-b50
tpu-v2 tpu-v3 tpu-v4 tpu-v4i trn1 trn3 inf1 inf2 groq-lpu apple-m1 apple-m1-max apple-m2-ultra apple-m3-max apple-m4-max
xeon-8480-plus xeon-8592-plus xeon-6980p epyc-7763 epyc-9654 epyc-9755 graviton3 graviton4 grace
raspberry-pi-4 raspberry-pi-5 snapdragon-835 exynos-9610
""".split()

# Vendor tables: capacity in GB as printed, dense bf16 in TFLOP/s, bandwidth in GB/s.
PRINTED = {
    "a100-sxm-80gb": (80, 312, 2039),
    "a100-sxm-40gb": (40, 312, 1555),
    "l4": (24, 121, 300),
    "l40s": (48, 362.05, 864),
    "rtx-4090": (24, 165.2, 1008),
    "h100-sxm": (80, 989.4, 3350),
    "h200-sxm": (141, 989.4, 4800),
    "h200-nvl": (141, 835.5, 4800),
    "h20": (96, 148, 4000),
    "gb200": (186, 2500, 8000),
    "vr200": (288, 4000, 22000),
    "mi300x": (192, 1307.4, 5300),
    "mi355x": (288, 2516.6, 8000),
    "gaudi3": (128, 1835, 3670),
    "tpu-v5e": (16, 197, 819),
    "tpu-v6e": (32, 918, 1640),
    "tpu-v4": (32, 275, 1228),
    "a30": (24, 165, 933),
    "mi350x": (288, 2306.9, 8000),
    "trn1": (32, 190, 820),
    "max-1550": (128, 839, 3280),
}

MAKERS = ("NVIDIA", "Google", "AMD", "Intel", "Amazon", "Apple")


def organizations(spec: Spec, value: hwspecs.Value) -> set[str]:
    """Who stands behind a value; a project of a maker ("JAX authors (Google)") is not independent of the maker."""
    publishers = (spec.sources[key].publisher for key in value.source)
    return {next((maker for maker in MAKERS if maker in publisher), publisher) for publisher in publishers}


def test_the_required_devices_are_there(devices: dict[str, hwspecs.DeviceSpec]) -> None:
    assert set(REQUIRED) <= set(devices)
    assert len(devices) >= 120
    assert {spec.kind for spec in devices.values()} == {"gpu", "tpu", "npu", "cpu", "soc"}


@pytest.mark.parametrize("name", hwspecs.names())
def test_every_value_has_a_source_and_a_confidence(name: str, devices: dict[str, hwspecs.DeviceSpec]) -> None:
    spec = devices[name]
    values = dict(spec.values())
    assert len(values) >= 16
    for field, value in values.items():
        assert value.source and value.confidence in hwspecs.CONFIDENCES, field
        assert value.si > 0
    assert set(spec.sources) == {key for value in values.values() for key in value.source}


@pytest.mark.parametrize("name", hwspecs.names())
def test_confirmed_values_have_independent_sources(name: str, devices: dict[str, hwspecs.DeviceSpec]) -> None:
    spec = devices[name]
    for field, value in spec.values():
        if value.confidence == "confirmed":
            assert len(organizations(spec, value)) >= 2, f"{field}: {value.source}"
            read = [key for key in value.source if "recalled" not in (spec.sources[key].note or "")]
            assert read, f"{field}: confirmed by recalled sources only"


@pytest.mark.parametrize("name", hwspecs.names())
def test_peaks_follow_from_cores_and_clock_or_say_why_not(name: str, devices: dict[str, hwspecs.DeviceSpec]) -> None:
    spec = devices[name]
    architecture = hwspecs.load_architecture(spec.architecture)
    for deviation in hwspecs.peak_deviations(spec, architecture, tolerance=0.02):
        assert deviation.note, f"{deviation.field}: {deviation.ratio:.3f} of the formula, without a note"
    for key in set(spec.peak_flops) - set(architecture.operations_per_cycle):
        assert spec.peak_flops[key].note, f"{key} has neither a formula nor a note"


@pytest.mark.parametrize("name", hwspecs.names())
def test_no_peak_is_a_sparse_one(name: str, devices: dict[str, hwspecs.DeviceSpec]) -> None:
    spec = devices[name]
    for field, expected in hwspecs.expected_peaks(spec, hwspecs.load_architecture(spec.architecture)).items():
        stated = dict(spec.values())[field].si
        assert abs(stated / (2 * expected) - 1) > 0.02, f"{field} is twice the dense rate"
        assert stated < 1.2 * expected, field


@pytest.mark.parametrize("name", hwspecs.names())
def test_ratios_between_formats_are_sane(name: str, devices: dict[str, hwspecs.DeviceSpec]) -> None:
    peaks = {key: value.si for key, value in devices[name].peak_flops.items()}
    half = next(peaks[key] for key in ("bf16", "fp16", "fp32") if key in peaks)
    if "int8" in peaks and not name.endswith(("b300", "vr200")):  # Blackwell Ultra and Rubin gave up int8
        assert 0.98 <= peaks["int8"] / half <= 4.05
    if "fp8" in peaks and name not in ("trn3", "vr200"):  # which quadruple the rate
        assert 0.98 <= peaks["fp8"] / half <= 2.05
    if "fp4" in peaks and name != "trn3":
        assert 1.98 <= peaks["fp4"] / peaks["fp8"] <= (4.05 if name.startswith("rtx-50") else 3.15)
    if "tf32" in peaks and not name.startswith(("trn", "inf")):
        assert 0.45 <= peaks["tf32"] / half <= 0.51
    if "fp16" in peaks and "bf16" in peaks and name not in ("mi100", "graviton3", "graviton4", "grace"):
        assert peaks["fp16"] == peaks["bf16"]


@pytest.mark.parametrize("name", PRINTED)
def test_known_tables_agree(name: str, devices: dict[str, hwspecs.DeviceSpec]) -> None:
    capacity, bf16, bandwidth = PRINTED[name]
    spec = devices[name]
    assert spec.memory_capacity.si == pytest.approx(capacity * 1e9, rel=0.005)  # 7 % off would be GiB
    assert spec.peak_flops["bf16"].si == pytest.approx(bf16 * 1e12, rel=0.01)
    assert spec.memory_bandwidth.si == pytest.approx(bandwidth * 1e9, rel=0.01)


@pytest.mark.parametrize("name", hwspecs.names())
def test_capacities_use_the_right_prefix(name: str, devices: dict[str, hwspecs.DeviceSpec]) -> None:
    spec = devices[name]
    assert spec.memory_capacity.quantity.endswith(" GB")  # as vendors print it
    assert spec.l2_capacity.quantity.endswith(("MiB", "KiB"))  # on-chip memories are powers of two
    if spec.usable_memory is not None:
        assert spec.usable_memory.quantity.endswith(" GiB")
        assert 0.9 < spec.usable_memory.si / spec.memory_capacity.si < 1.085


def test_check_bits_share_the_bus_of_gddr_alone(devices: dict[str, hwspecs.DeviceSpec]) -> None:
    shared = {name for name, spec in devices.items() if spec.inline_ecc}
    assert {"t4", "a40", "l40s"} <= shared  # for data centers; the workstation boards are shipped with it off
    assert not {"rtx-a6000", "rtx-6000-ada", "rtx-4090"} & shared
    assert all((devices[name].memory_type or "").startswith("gddr") for name in shared)


@pytest.mark.parametrize("name", hwspecs.names())
def test_links_are_per_direction_and_add_up(name: str, devices: dict[str, hwspecs.DeviceSpec]) -> None:
    node = devices[name].node
    link = hwspecs.load_link(node.link)
    assert node.link_bandwidth.si == pytest.approx(node.link_count.si * link.bandwidth.si, rel=1e-6)
    if node.topology == "single":  # the network is the only link
        assert node.size.si == 1
        assert node.network_bandwidth.si == node.link_bandwidth.si
        assert 5e-6 <= node.link_latency.si == node.network_latency.si <= 5e-5
        return
    assert node.network_bandwidth.si < node.link_bandwidth.si or node.topology == "pcie"
    assert 5e-7 <= node.link_latency.si <= 5e-6
    assert node.link_latency.si < node.network_latency.si


@pytest.mark.parametrize(
    ("name", "per_direction"),
    [
        ("a100-sxm-80gb", 300e9),
        ("h100-sxm", 450e9),
        ("h800-sxm", 200e9),
        ("b200", 900e9),
        ("vr200", 1800e9),
        ("mi300x", 448e9),
    ],
)
def test_advertised_totals_are_halved(name: str, per_direction: float, devices: dict[str, hwspecs.DeviceSpec]) -> None:
    assert devices[name].node.link_bandwidth.si == per_direction


def test_formats_only_where_the_hardware_has_them(devices: dict[str, hwspecs.DeviceSpec]) -> None:
    assert "fp8" not in devices["a100-sxm-80gb"].peak_flops
    assert "int4" not in devices["h100-sxm"].peak_flops
    assert "fp4" not in devices["h200-sxm"].peak_flops
    assert "tf32" not in devices["mi355x"].peak_flops
    assert "fp8" not in devices["mi250x"].peak_flops
    assert "bf16" not in devices["t4"].peak_flops


@pytest.mark.parametrize("name", ["mi250", "mi250x"])
def test_a_die_is_half_the_package(name: str, devices: dict[str, hwspecs.DeviceSpec]) -> None:
    package, die = devices[name], devices[f"{name}-gcd"]
    assert die.num_cores.si * 2 == package.num_cores.si
    assert die.memory_capacity.si * 2 == package.memory_capacity.si
    assert die.peak_flops["bf16"].si * 2 == pytest.approx(package.peak_flops["bf16"].si, rel=0.01)


@pytest.mark.parametrize("name", hwspecs.names())
def test_launch_latency_is_an_estimate_of_a_few_microseconds(name: str, devices: dict[str, hwspecs.DeviceSpec]) -> None:
    latency = devices[name].launch_latency
    assert 1e-6 <= latency.si <= 6e-6 and latency.confidence == "estimated" and latency.note


def test_every_part_is_sourced() -> None:
    from hwspecs.files import SHIPPED, scan

    folders = (
        ("links", hwspecs.load_link),
        ("architectures", hwspecs.load_architecture),
        ("processes", hwspecs.load_process),
        ("memories", hwspecs.load_memory),
    )
    for folder, load in folders:
        for name in scan(SHIPPED / folder):
            spec = load(name)
            assert spec.name == name
            assert set(spec.sources) == {key for _, value in spec.values() for key in value.source}
            for field, value in spec.values():
                assert value.confidence != "confirmed" or len(organizations(spec, value)) >= 2, f"{name}: {field}"


def test_the_readme_counts_the_devices() -> None:
    from hwspecs.files import SHIPPED

    assert f"\n{len(hwspecs.names())} devices: " in (SHIPPED / "README.md").read_text(encoding="utf-8")


def test_files_stay_readable() -> None:
    from hwspecs.files import SHIPPED

    for path in SHIPPED.rglob("*.toml"):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 400, path
        assert "http" not in text, path
