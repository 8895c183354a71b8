"""Compiled functions go when they keep too many mappings of memory, and not before."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jaxperf.core import mappings


@pytest.mark.parametrize(("lines", "traced"), [(mappings.MOST, 1), (mappings.MOST + 1, 2)])
def test_they_go_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int, traced: int) -> None:
    monkeypatch.setattr(mappings, "MAPPINGS", tmp_path / "maps")
    (tmp_path / "maps").write_text("7f00-7f01 r-xp\n" * lines)
    traces = []

    @jax.jit
    def double(x: jax.Array) -> jax.Array:
        traces.append(x)
        return x + x

    double(jnp.ones(()))
    mappings.release_compiled()
    assert double(jnp.ones(())) == 2.0 and len(traces) == traced


def test_elsewhere_than_on_linux_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mappings, "MAPPINGS", tmp_path / "none")
    monkeypatch.setattr(jax, "clear_caches", lambda: pytest.fail("let go"))
    mappings.release_compiled()
