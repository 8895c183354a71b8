"""Fitted numbers on disk: what is said of files that are not there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibration.stored import save_arrays
from hwspecs.errors import InputError
from jaxperf.core.parameter_files import load_arrays
from jaxperf.core.sustained_file import place_of


@pytest.mark.parametrize(
    ("given", "there", "missing"),
    [
        ("mine.json", (), ""),
        ("mine.safetensors", (), ""),
        ("mine", (), "'mine.safetensors': "),
        ("mine.json", ("mine.json",), "'mine.safetensors': "),
        ("mine.safetensors", ("mine.safetensors",), "'mine.json': "),
    ],
)
def test_the_file_that_was_named_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, there: tuple[str, ...], missing: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in there:
        Path(name).write_text("{}")
    with pytest.raises(InputError) as error:
        load_arrays(given, "kernels", 1, "make them again")
    assert str(error.value) == f"Cannot read parameters '{given}': {missing}No such file or directory; make them again."


@pytest.mark.parametrize(
    "written", [("P.SAFETENSORS", "P.JSON"), ("P.SAFETENSORS", "P.json"), ("P.safetensors", "P.JSON")]
)
def test_endings_in_capitals_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: tuple[str, ...]
) -> None:
    """By either file, and by what both have in common."""
    monkeypatch.chdir(tmp_path)
    save_arrays("P", {"x": np.array([3.0])}, {}, 1)
    for small, name in zip(("P.safetensors", "P.json"), written, strict=True):
        Path(small).rename(name)
    for given in ("P", *written):
        arrays, card = load_arrays(given, "kernels", 1, "make them again")
        assert arrays["x"].tolist() == [3.0] and card["schema"] == 1


def test_a_table_of_rates_is_found_beside_parameters_in_capitals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ("P", "P.json", "P.JSON", "P.SAFETENSORS", "P.sustained.json"):
        assert place_of(given) == Path("P.sustained.json")
    Path("P.SUSTAINED.JSON").touch()
    for given in ("P", "P.SAFETENSORS", "P.SUSTAINED.JSON"):
        assert place_of(given) == Path("P.SUSTAINED.JSON")
