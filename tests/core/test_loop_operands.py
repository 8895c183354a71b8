"""How a scan's operands are counted, whichever words the installed JAX has for it."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxperf.core.loop_operands import scan_operands


class Group(tuple):
    """What later releases of JAX hold: the operands' tree, which comes apart in three."""

    def unpack(self) -> tuple:
        return tuple(self)


def test_a_scan_of_the_installed_jax() -> None:
    rows = {"a": jnp.arange(4.0), "b": jnp.arange(4.0)}

    def summed(scale, start):
        def turn(carry, row):
            total, turns = carry
            return (total + row["a"] * scale, turns + 1.0), total * row["b"]

        return jax.lax.scan(turn, (start, 0.0), rows, 4)

    (scan,) = (each for each in jax.make_jaxpr(summed)(1.0, 2.0).eqns if each.primitive.name == "scan")
    constants, carried = scan_operands(scan.params)
    assert carried == 2 and constants + carried + len(rows) == len(scan.invars)


def test_both_wordings_say_the_same() -> None:
    trees = Group((Group((None,)), Group((None, None)), Group((None, None, None))))
    assert scan_operands({"ft_in": trees}) == scan_operands({"num_consts": 1, "num_carry": 2}) == (1, 2)
