"""Adding a device touches one file: a TOML in a folder is found, resolved and loaded without any index."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import hwspecs
from hwspecs.files import SHIPPED, scan
from hwspecs.registry import Registry

NEW = "brand-new-900"


def renamed(source: Path, folder: Path) -> Path:
    """A copy of a shipped file under a new name, with an alias of its own."""
    text = source.read_text(encoding="utf-8")
    text = re.sub(r'^name = ".*"$', f'name = "{NEW}"', text, count=1, flags=re.MULTILINE)
    text = re.sub(r"^aliases = \[[^\]]*\]$", 'aliases = ["Brand New 900 Ultra"]', text, count=1, flags=re.MULTILINE)
    path = folder / f"{NEW}.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["h100-sxm", "tpu-v4", "apple-m1", "epyc-9654"])
def test_a_file_in_a_folder_of_the_user_is_a_device(name: str, tmp_path: Path) -> None:
    renamed(SHIPPED / "devices" / f"{name}.toml", tmp_path)
    assert set(hwspecs.names([tmp_path])) - set(hwspecs.names()) == {NEW}
    assert hwspecs.resolve("brand new 900 ULTRA", [tmp_path]).name == NEW
    spec, model = hwspecs.load(NEW, [tmp_path]), hwspecs.load(name)
    assert spec.peak_flops == model.peak_flops and spec.node == model.node
    facts = hwspecs.energy_of(spec)
    assert facts is not None and facts == hwspecs.energy_of(model)


def test_a_file_among_the_shipped_ones_is_a_device(tmp_path: Path) -> None:
    """The shipped registry is nothing but its folder, so one more file there is one more device."""
    folder = tmp_path / "devices"
    shutil.copytree(SHIPPED / "devices", folder)
    renamed(SHIPPED / "devices" / "a30.toml", folder)
    registry = Registry((scan(folder),))
    assert set(registry.names) - set(hwspecs.names()) == {NEW}
    assert registry.find("Brand-New 900 Ultra") == NEW
    assert registry.load(NEW).memory_bandwidth == hwspecs.load("a30").memory_bandwidth


def test_no_shipped_file_lists_the_devices() -> None:
    """A device is named by its own file, and elsewhere only as an example."""
    for path in SHIPPED.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert sum(f'"{name}"' in text for name in hwspecs.names()) <= 1, path
