"""What a kernel to be measured is: the columns of its rows, the sizes it is measured at, and how it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Sizes = Mapping[str, int]
JaxDevice = Any  # a jax.Device, which type checkers take for a variable
Call = tuple[Callable[..., Any], tuple[jax.Array, ...]]

# The JAX type that the activations of a row of each format have.
TYPES: Mapping[str, Any] = MappingProxyType(
    {"fp32": jnp.float32, "bf16": jnp.bfloat16, "fp16": jnp.float16, "fp8": jnp.float8_e4m3fn}
)
_BLOCK = 2**20  # random numbers drawn; larger operands repeat them


@dataclass(frozen=True)
class Range:
    """Sizes drawn log-uniformly from `low` to `high`, rounded as people round them (see `grid.round_size`)."""

    low: int
    high: int


@dataclass(frozen=True)
class Operation:
    """One kernel and the sizes it is measured at.

    `name` is unique; `family` one of `FAMILIES`; `op` the word in that column; `kernel` the JAX call behind it;
    `sizes`: a `Range` or the choices of each free column; `shape` turns free sizes into the columns of the schema;
    `call(sizes, dtype, seed)` gives a function of arrays that returns all it computes, and its arguments; `dtypes`: the
    formats it is measured in; `text`: further text columns; `accepts`: which sizes make sense together; `devices`: how
    many devices it takes.
    """

    name: str
    family: str
    op: str
    kernel: str
    sizes: Mapping[str, Range | tuple[int, ...]]
    shape: Callable[[Sizes], dict[str, int]]
    call: Callable[[Sizes, str, int], Call]
    dtypes: tuple[str, ...] = ("fp32", "bf16")
    text: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    accepts: Callable[[Sizes], bool] = lambda sizes: True
    devices: int = 1


def random_array(shape: tuple[int, ...], dtype: str, seed: int) -> jax.Array:
    """Normal numbers of a format; large operands repeat a block of them, which a matrix unit cannot tell.

    Random because the power that a matrix unit draws, and with it its clock, depends on the data.
    """
    block = np.random.default_rng(seed).standard_normal(min(_BLOCK, int(np.prod(shape))), np.float32)
    return jnp.asarray(np.resize(block, shape), TYPES[dtype])


def as_they_are(sizes: Sizes) -> dict[str, int]:
    """The free sizes are the columns of the schema."""
    return dict(sizes)
