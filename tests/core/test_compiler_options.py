"""Loops of several results: at hand in a process that asks for them, taken by the programs that say so alone."""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.core.compiler_options import JOINTLY, QUICK_LOOPS, quicken_loops


def _results(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    return a / b + 1.0, a * b + 1.0, jnp.exp(a) + b


def _loops(options: dict | None) -> tuple[int, list[np.ndarray]]:
    """How many loops a program of three results is compiled to, and the results."""
    columns = jnp.linspace(1.0, 2.0, 1000), jnp.linspace(2.0, 3.0, 1000)
    compiled = jax.jit(_results, compiler_options=options).lower(*columns).compile()
    return compiled.as_text().count(" fusion("), [np.asarray(each) for each in compiled(*columns)]


def test_results_share_a_loop_where_a_program_says_so() -> None:
    apart, before = _loops(None)
    jointly, after = _loops(JOINTLY)
    assert (apart, jointly) == (3, 1)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, " ".join(QUICK_LOOPS)),
        (
            "--xla_force_host_platform_device_count=2",
            f"--xla_force_host_platform_device_count=2 {' '.join(QUICK_LOOPS)}",
        ),
        ("--xla_disable_hlo_passes=fusion", "--xla_disable_hlo_passes=fusion"),
        ("--xla_backend_extra_options=a=b", "--xla_backend_extra_options=a=b"),
    ],
)
def test_flags_are_added_once_and_beside_none_of_the_users(
    monkeypatch: pytest.MonkeyPatch, given: str | None, kept: str
) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    if given is not None:
        monkeypatch.setenv("XLA_FLAGS", given)
    for _ in range(2):
        quicken_loops()
        assert os.environ["XLA_FLAGS"] == kept
