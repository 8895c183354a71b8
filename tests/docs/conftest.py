"""A folder in which commands of a page run, in this process; settings of JAX are put back after."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, empty."""
    monkeypatch.chdir(tmp_path)
    before = {name: getattr(jax.config, name) for name in ("jax_enable_x64", "jax_compilation_cache_dir")}
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)
