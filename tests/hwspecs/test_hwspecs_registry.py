"""Names and aliases, user directories, inheritance, and what is never matched."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import hwspecs

CHANGE = """
base = "{base}"
name = "{name}"
memory_capacity = {{ quantity = "{memory}", source = "mine", confidence = "single source" }}
{extra}
[sources.mine]
title = "My measurement"
publisher = "me"
kind = "measurement"
year = 2026
"""


def write(folder: Path, name: str, base: str = "h100-sxm", memory: str = "96 GB", extra: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text(CHANGE.format(name=name, base=base, memory=memory, extra=extra))
    return path


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("h100-sxm", "h100-sxm"),
        ("H100", "h100-sxm"),
        ("h100", "h100-sxm"),
        ("h100_sxm", "h100-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("H100-SXM-80GB", "h100-sxm"),
        ("H100-80GB", "h100-sxm"),
        ("h100 sxm5", "h100-sxm"),
        ("NVIDIA H100-NVL-94GB", "h100-nvl"),
        ("a100", "a100-sxm-80gb"),
        ("A100 40GB SXM", "a100-sxm-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("nvidia_a100-pcie-40gb", "a100-pcie-40gb"),
        ("RTX_A6000", "rtx-a6000"),
        ("RTX 6000 Ada", "rtx-6000-ada"),
        ("RTXPRO6000", "rtx-pro-6000"),
        ("AMD Instinct MI300X 192GB HBM3", "mi300x"),
        ("Tesla T4", "t4"),
        ("TPU-v6e-1", "tpu-v6e"),
        ("Trainium2", "trn2"),
        ("b60", "arc-pro-b60"),
        ("Huawei Ascend910B3", "ascend-910b3"),
    ],
)
def test_spellings_of_one_device_match(text: str, name: str) -> None:
    assert hwspecs.resolve(text).name == name
    assert hwspecs.open_registry().find(text) == name


@pytest.mark.parametrize(
    "text",
    ["h100-94gb", "A100-SXM-160GB", "a100-pcie", "gh200-hbm3-120gb", "rtx-6000", "tpu-v5", "l400", "h100s", "v100"],
)
def test_similar_or_ambiguous_strings_never_match(text: str) -> None:
    assert hwspecs.open_registry().find(text) is None
    with pytest.raises(hwspecs.InputError, match="not a known device"):
        hwspecs.resolve(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("h100-80gb-pcap", "power limit"),
        ("A100x4", "not one device"),
        ("Huawei Ascend 910C", "load ascend-910c-die and count two"),
        ("MI455X", "neither its compute units nor its clock"),
        ("Virtualized NVIDIA H200-SXM-141GB", "virtual"),
        ("[MAXSUN] MS-Intel Arc Pro B60 Dual 48G Turbo", "two"),
        ("AMD Instinct MI300X 192GB HBM3 (x32), AMD Instinct MI325X 256GB HBM3e (x16)", "mixed cluster"),
        ("", "no device"),
    ],
)
def test_known_strings_without_a_specification_say_why(text: str, reason: str) -> None:
    resolution = hwspecs.resolve(text)
    assert resolution.name is None and reason in resolution.reason


def test_loading_what_is_known_but_not_specified_gives_the_reason() -> None:
    with pytest.raises(hwspecs.InputError, match="known but has no specification: .*power limit"):
        hwspecs.load("h100-80gb-pcap")


@pytest.mark.parametrize(
    ("text", "name", "cores", "share"),
    [
        ("A100-SXM4-40GB MIG 3g.20gb", "a100-sxm-40gb-mig-3g.20gb", 42, 1 / 2),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb+me", "a100-sxm-80gb-mig-1g.10gb", 14, 1 / 8),
        ("H100 1g.20gb", "h100-sxm-mig-1g.20gb", 26, 1 / 4),
        ("H200 3g.71gb", "h200-sxm-mig-3g.71gb", 60, 1 / 2),
        ("a30-mig-1g.6gb", "a30-mig-1g.6gb", 14, 1 / 4),
        ("B200 7g.180gb", "", 0, 0.0),
    ],
)
def test_a_slice_of_a_gpu_has_its_cores_and_its_share_of_the_memory(
    text: str, name: str, cores: int, share: float
) -> None:
    found = hwspecs.resolve(text)
    if not name:
        assert found.name is None and 'base = "b200" that states its num_cores' in found.reason
        return
    part, whole = hwspecs.load(text), hwspecs.load(name.partition("-mig-")[0])
    assert found.name == part.name == hwspecs.load(name).name == name and part.base == whole.name
    assert part.num_cores.si == cores and part.num_cores.confidence == "single source"
    for fact in ("memory_bandwidth", "memory_capacity", "l2_capacity"):
        assert getattr(part, fact).si == pytest.approx(share * getattr(whole, fact).si, rel=1e-11)
    by_cores = cores / whole.num_cores.si
    assert part.peak_flops["bf16"].si == pytest.approx(by_cores * whole.peak_flops["bf16"].si, rel=1e-11)
    assert min(by_cores, share) <= part.tdp.si / whole.tdp.si <= max(by_cores, share)
    assert (part.node.topology, part.node.size.si, part.usable_memory) == ("single", 1, None)
    assert part.node.link_bandwidth.si == pytest.approx(share * whole.node.network_bandwidth.si, rel=1e-11)


def test_a_file_may_start_from_a_slice(tmp_path: Path) -> None:
    (tmp_path / "half.toml").write_text('base = "h100-sxm-mig-3g.40gb"\ntdp = "0.5x"\n')
    made, part = hwspecs.load("half", [tmp_path]), hwspecs.load("H100 3g.40gb")
    assert made.tdp.si == pytest.approx(0.5 * part.tdp.si) and made.peak_flops == part.peak_flops
    assert (made.base, made.node.topology) == ("h100-sxm", "single")
    (tmp_path / "other.toml").write_text('base = "h100-sxm-mig-3g.30gb"\n')
    with pytest.raises(hwspecs.InputError, match="not a known device"):
        hwspecs.load("other", [tmp_path])


@pytest.mark.parametrize(("text", "memory"), [("H100 80GB HBM3 mig 1c.7g.80gb", 80), ("A100 3g.30gb", 30)])
def test_a_slice_whose_cores_are_not_known_says_of_what_it_is_and_how_to_state_it(text: str, memory: int) -> None:
    found = hwspecs.resolve(text)
    assert found.name is None and f"with {memory} GB" in found.reason and "that states its num_cores" in found.reason
    with pytest.raises(hwspecs.InputError, match="not a known device"):
        hwspecs.resolve("Quux MIG 1g.5gb")


def test_an_unknown_name_gets_the_nearest_ones() -> None:
    with pytest.raises(hwspecs.InputError, match=r"'h100-smx' is not a known device\. Did you mean h100-sxm"):
        hwspecs.load("h100-smx")


def test_near_aliases_of_a_device_are_that_device_once() -> None:
    assert hwspecs.open_registry().did_you_mean("h100x").startswith(" Did you mean h100-sxm or h100-")
    assert hwspecs.open_registry().did_you_mean("banana") == ""


def test_aliases_are_unique_and_every_name_is_one() -> None:
    registry = hwspecs.open_registry()
    assert set(registry.aliases.values()) == set(registry.names)
    assert all(registry.aliases[name] == name for name in registry.names)


def test_no_unspecified_string_means_a_device() -> None:
    from hwspecs.registry import _unspecified

    registry = hwspecs.open_registry()
    assert [text for text in _unspecified() if registry.find(text) is not None] == []


def test_colliding_aliases_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, "mine", extra='aliases = ["h-100 SXM"]')
    with pytest.raises(hwspecs.InputError, match=r"mine\.toml: the alias 'h-100 SXM' already means h100-sxm"):
        hwspecs.resolve("something", [tmp_path])


def test_a_user_directory_adds_a_device_from_a_base(tmp_path: Path) -> None:
    write(tmp_path, "my-h100", extra='aliases = ["the big one"]')
    spec = hwspecs.load("The Big-One", [tmp_path])
    shipped = hwspecs.load("h100-sxm")
    assert spec.memory_capacity.si == 96e9
    assert spec.memory_bandwidth == shipped.memory_bandwidth
    assert "H100" not in spec.aliases
    assert "my-h100" in hwspecs.names([tmp_path]) and "my-h100" not in hwspecs.names()
    assert hwspecs.load("h100", [tmp_path]) == shipped


CLOCK = 'clock_rate = { quantity = "1.2 GHz", source = "mine", confidence = "single source" }'
PEAK = 'peak_flops.bf16 = { quantity = "%s TFLOP/s", source = "mine", confidence = "single source"%s }'


@pytest.mark.parametrize(
    ("base", "extra", "said"),
    [
        ("h100-sxm", CLOCK, "132 cores at 1.2 GHz of hopper: .*bf16 989.4 TFLOP/s .they give 648.8 TFLOP/s.* more;"),
        ("mi300x", CLOCK, "304 cores at 1.2 GHz of cdna3: "),  # where notes explain the peaks of another clock
        ("h100-sxm", PEAK % (700, ""), r": peak_flops.bf16 700 TFLOP/s \(they give 989.4 TFLOP/s\); state"),
        ("h100-sxm", PEAK % (700, ', note = "measured"'), None),
        ("h100-sxm", PEAK % (990, ""), None),
        ("mi300x", "", None),
        ("h100-sxm", 'num_cores = 132\nclock_rate = "1x"', None),  # which are the base's
        ("h100-sxm", "num_cores = 66", "66 cores at 1.83 GHz"),
    ],
)
def test_peaks_that_do_not_follow_from_cores_and_clock_are_warned_of(
    tmp_path: Path, base: str, extra: str, said: str | None
) -> None:
    path = str(write(tmp_path, "mine", base=base, extra=extra))
    if said is not None:
        with pytest.warns(hwspecs.InconsistentPeaks, match=said):
            hwspecs.load(path)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hwspecs.load(path)


def test_no_shipped_device_is_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hwspecs.open_registry().load_all()


def test_an_ending_in_capitals_is_a_device_file_too(tmp_path: Path) -> None:
    path = write(tmp_path, "my-h100").rename(tmp_path / "my-h100.TOML")
    assert hwspecs.load("my-h100", [tmp_path]) == hwspecs.load(str(path))


def test_what_a_driver_reports_of_the_base_is_not_inherited_beside_another_memory(tmp_path: Path) -> None:
    reported = 'usable_memory = { quantity = "260 GiB", source = "mine", confidence = "single source" }'
    assert hwspecs.load("b200").usable_memory is not None
    assert hwspecs.load(str(write(tmp_path, "larger", base="b200", memory="288 GB"))).usable_memory is None
    stated = hwspecs.load(str(write(tmp_path, "stated", base="b200", memory="288 GB", extra=reported)))
    assert stated.usable_memory is not None and stated.usable_memory.si == 260 * 2**30
    same_memory = tmp_path / "same.toml"
    same_memory.write_text('name = "same"\nbase = "b200"\n')
    assert hwspecs.load(str(same_memory)).usable_memory == hwspecs.load("b200").usable_memory


def test_a_user_directory_overrides_a_shipped_device(tmp_path: Path) -> None:
    write(tmp_path, "h100-sxm", base="h100-sxm")
    assert hwspecs.load("H100", [tmp_path]).memory_capacity.si == 96e9
    assert hwspecs.load("H100").memory_capacity.si == 80e9


def test_later_directories_win_and_build_on_earlier_ones(tmp_path: Path) -> None:
    write(tmp_path / "one", "h100-sxm", extra='vendor = "first"')
    write(tmp_path / "two", "h100-sxm", memory="120 GB")
    spec = hwspecs.load("h100-sxm", [tmp_path / "one", tmp_path / "two"])
    assert (spec.vendor, spec.memory_capacity.si) == ("first", 120e9)


def test_a_path_loads_without_a_directory(tmp_path: Path) -> None:
    path = write(tmp_path, "my-chip", extra='display_name = "My chip"')
    assert hwspecs.load(str(path)).display_name == "My chip"


def test_a_partial_table_keeps_the_rest(tmp_path: Path) -> None:
    path = write(tmp_path, "my-chip", extra='display_name = "My chip"')
    path.write_text(path.read_text() + '[node]\nlink = "mylink"\n')
    spec = hwspecs.load(str(path))
    assert spec.node.link == "mylink" and spec.node.size.si == 8


@pytest.mark.parametrize(("base", "words"), [("h100-smx", "Did you mean h100-sxm"), ("mine", "not a known device")])
def test_an_unknown_base_is_an_error(tmp_path: Path, base: str, words: str) -> None:
    write(tmp_path, "mine", base=base)
    with pytest.raises(hwspecs.InputError, match=words):
        hwspecs.load("mine", [tmp_path])


def test_a_what_if_states_plain_values(tmp_path: Path) -> None:
    """ "2x" is of the base's; where a value is from is said in either case, and a mistake as in any other."""
    facts = 'base = "h100-sxm"\nmemory_bandwidth = "2x"\nmemory_capacity = "160 GB"\ntdp = " 1.5 x "\n'
    (tmp_path / "mine.toml").write_text(
        f'name = "mine"\n{facts}[node]\nsize = 4\nlink_bandwidth = ".5x"\n[peak_flops]\nfp8 = "1x"\nfp4 = "4 PFLOP/s"\n'
    )
    mine, base = hwspecs.load("mine", [tmp_path]), hwspecs.load("h100-sxm")
    assert (mine.memory_bandwidth.si, mine.memory_capacity.si, mine.tdp.si) == (6.7e12, 160e9, 1050.0)
    assert mine.node.link_bandwidth.si == 0.5 * base.node.link_bandwidth.si
    assert mine.peak_flops["fp4"].si == 4e15  # which the base has not
    assert mine.peak_flops["fp8"].si == base.peak_flops["fp8"].si and mine.peak_flops["bf16"] == base.peak_flops["bf16"]
    assert (mine.memory_bandwidth.confidence, mine.memory_capacity.confidence) == ("derived", "estimated")
    assert mine.memory_bandwidth.note == "2 x 3.35 TB/s of h100-sxm" and mine.usable_memory is None
    assert mine.sources[mine.tdp.source[0]].title == "mine.toml"
    (tmp_path / "peak.toml").write_text('name = "peak"\nbase = "h100-sxm"\npeak_flops.bf16 = "2 PFLOP/s"\n')
    with pytest.warns(hwspecs.InconsistentPeaks, match="peak_flops.bf16 2 PFLOP/s"):
        hwspecs.load("peak", [tmp_path])
    (tmp_path / "wrong.toml").write_text('name = "wrong"\nbase = "h100-sxm"\ntdp = 500\n')
    with pytest.raises(hwspecs.InputError, match='tdp.quantity: "500" has no unit; write a power'):
        hwspecs.load("wrong", [tmp_path])
    (tmp_path / "own.toml").write_text('name = "own"\nbase = "mine"\nmemory_bandwidth = "2x"\n')
    assert hwspecs.load("own", [tmp_path]).memory_bandwidth.si == 13.4e12


def test_a_what_if_without_a_name_has_that_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "faster.toml").write_text('base = "h100-sxm"\nmemory_bandwidth = "2x"\n')
    by_path = hwspecs.load(str(tmp_path / "faster.toml"))
    assert by_path == hwspecs.load("faster", [tmp_path])
    assert (by_path.name, by_path.display_name, by_path.base) == ("faster", "faster", "h100-sxm")
    (tmp_path / "h100-sxm.toml").write_text('base = "h100-sxm"\nmemory_bandwidth = "2x"\n')
    assert (
        hwspecs.load("H100", [tmp_path]).memory_bandwidth.si == 6.7e12
    )  # in place of the shipped one, aliases and all


def test_bases_in_a_circle_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, "one", base="two")
    write(tmp_path, "two", base="one")
    with pytest.raises(hwspecs.InputError, match="circle"):
        hwspecs.load("one", [tmp_path])


def test_the_file_name_is_the_device_name(tmp_path: Path) -> None:
    write(tmp_path, "one").rename(tmp_path / "other.toml")
    with pytest.raises(hwspecs.InputError, match="must be the file's name"):
        hwspecs.load("other", [tmp_path])


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(hwspecs.InputError, match="is not a directory"):
        hwspecs.names([tmp_path / "nowhere"])


def test_unknown_links_and_architectures_name_the_nearest() -> None:
    with pytest.raises(hwspecs.InputError, match="Did you mean nvlink4"):
        hwspecs.load_link("nvlnk4")
    with pytest.raises(hwspecs.InputError, match="Did you mean hopper"):
        hwspecs.load_architecture("hoper")


def test_the_home_of_nobody_is_an_error() -> None:
    with pytest.raises(hwspecs.InputError, match="cannot be read"):
        hwspecs.load("~nobody-of-this-name/my-chip.toml")
    with pytest.raises(hwspecs.InputError, match="is not a directory"):
        hwspecs.names(["~nobody-of-this-name"])


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = write(tmp_path, "my-chip", extra='aliases = ["Mine"]')
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert hwspecs.load("mine", [tmp_path]).name == "my-chip"


@pytest.mark.parametrize(("field", "words"), [("process", "tsmc-n5"), ("memory_type", "hbm3")])
def test_a_process_and_a_memory_without_a_file_are_told_with_the_device(tmp_path: Path, field: str, words: str) -> None:
    path = write(tmp_path, "mine", extra=f'{field} = "{words[:-1]}x"')
    with pytest.raises(hwspecs.InputError, match=rf"mine\.toml: {field}: .* Did you mean .*{words}"):
        hwspecs.load(str(path))


@pytest.mark.parametrize(("text", "near"), [("v100-sxm", "v100-sxm-16gb"), ("a100_pcie", "a100-pcie-40gb")])
def test_names_that_go_on_where_a_text_ends_are_the_nearest(text: str, near: str) -> None:
    with pytest.raises(hwspecs.InputError, match=f"Did you mean {near}"):
        hwspecs.resolve(text)
