"""Fitted numbers on disk: what is said of files that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibration.stored import load_arrays
from hwspecs.errors import InputError


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
