"""The hash of a formula, by which a sweep that was stopped knows its parts again."""

from __future__ import annotations

import json
import subprocess
import sys

import jax.numpy as jnp

from jaxperf.sweeps import Sweep, axis

FINGERPRINT = """
import json, jax.numpy as jnp, numpy as np
from jaxperf.core.numerics import ceil_div
from jaxperf.sweeps import Sweep, axis
table = jnp.arange(4.0)
def fn(a, b):
    return {"c": ceil_div(a, b) + jnp.where(a > b, jnp.tanh(a), b) + jnp.interp(a, table, table * 2.0)}
print(json.dumps(Sweep(fn, [axis("a", [1, 2]), axis("b", [3, 4])]).point.fingerprint()))
"""


def test_the_formula_hash_is_the_same_in_every_process():
    def once(seed):
        code = f"import sys; sys.path[:0] = {sys.path!r}\n{FINGERPRINT}"
        environment = {"PYTHONHASHSEED": seed, "JAX_PLATFORMS": "cpu"}
        found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
        return json.loads(found.stdout)

    assert once("1") == once("2")


def test_the_formula_hash_sees_constants_and_code():
    def made(scale, fn=jnp.tanh):
        table = jnp.arange(3.0) * scale
        return Sweep(lambda x: {"y": fn(x) + table.sum()}, [axis("x", [1.0])]).point.fingerprint()

    assert made(1.0) == made(1.0) and made(1.0) != made(2.0) and made(1.0) != made(1.0, jnp.sin)
