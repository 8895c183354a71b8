"""The one program of a sweep: the results of a block, and in the first call what all blocks take from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32

from jaxperf.sweeps.axes import Axis
from jaxperf.sweeps.plan import Plan
from jaxperf.sweeps.point import TracedPoint
from jaxperf.sweeps.program import dependencies, flatten
from jaxperf.sweeps.staged import Axes, divide, evaluate, hidden_ones, spread

# Up to 512 bits at once where the processor can; XLA:CPU stops at 256 by itself. With AVX-512 the decode grid of
# `make bench` is a fifth faster.
WIDE_VECTORS = {"xla_cpu_prefer_vector_width": 512}
SMALL = 1 / 8  # of a block's points: a value of no more is computed once a sweep, for all blocks


@dataclass(frozen=True)
class Packed:
    """Arrays of these shapes, by number, one after the other in one flat array a type: a call with few arguments
    starts sooner."""

    shapes: Mapping[int, jax.ShapeDtypeStruct]

    def pack(self, values: Mapping[int, Array]) -> dict[str, Array]:
        """The flat arrays by the name of their type."""
        parts: dict[str, list[Array]] = {}
        for number, shape in self.shapes.items():
            parts.setdefault(shape.dtype.name, []).append(jnp.ravel(values[number]))
        return {name: jnp.concatenate(each) for name, each in parts.items()}

    def unpack(self, flat: Mapping[str, Array]) -> dict[int, Array]:
        """The arrays again."""
        begin, found = dict.fromkeys(flat, 0), {}
        for number, shape in self.shapes.items():
            name = shape.dtype.name
            found[number] = flat[name][begin[name] : begin[name] + shape.size].reshape(shape.shape)
            begin[name] += shape.size
        return found


class BlockProgram:
    """A traced point function over one block after the other, compiled at the first call.

    A second trace would be a bug in the engine (a changed shape), so it raises.
    """

    def __init__(self, point: TracedPoint, axes: Sequence[Axis], plan: Plan) -> None:
        self._metrics, self._plan = point.metrics, plan
        along, leaves = _feed(axes, plan)
        program = flatten(jax.extend.core.ClosedJaxpr(point.program, point.constants))
        nothing: Axes = frozenset()
        inputs = [nothing] * len(point.constants) + [nothing if axis is None else frozenset({axis}) for axis in along]
        self._depends = dependencies(program, inputs)
        lengths = {axis: plan.whole(axis) for axis in range(len(plan.sizes))}
        self._once, self._each = divide(program, self._depends, lengths, int(plan.block_points * SMALL))
        given = dict(enumerate([*point.constants, *leaves]))
        shapes = jax.eval_shape(self._evaluate_once, given)
        self._given, self._kept = jax.device_put(given), Packed(shapes)
        self._ones = hidden_ones(str(jnp.result_type(float)))
        once = eqx.debug.assert_max_traces(self._block, max_traces=1)
        self._call = jax.jit(once, donate_argnums=(0, 1), keep_unused=True, compiler_options=WIDE_VECTORS)

    def room(self) -> list[Array]:
        """Room for the results of one block."""
        shape = tuple(self._shape.values())
        return [jax.device_put(np.zeros(shape, dtype), may_alias=False) for dtype in self._metrics.values()]

    def nothing_kept(self) -> dict[str, Array]:
        """Room for what all blocks take."""
        shapes = jax.eval_shape(self._kept.pack, self._kept.shapes)
        return {name: jax.device_put(np.zeros(one.shape, one.dtype)) for name, one in shapes.items()}

    def __call__(
        self, room: list[Array], kept: dict[str, Array], starts: Int32[np.ndarray, " axes"], first: bool
    ) -> tuple[list[Array], dict[str, Array]]:
        """The results of the block that begins at `starts`, written into `room`, and what all blocks take, computed
        if this is the `first`; both arguments are used up."""
        return self._call(room, kept, self._given, starts, np.bool_(first), self._ones)

    @property
    def _shape(self) -> dict[int, int]:
        """Length of each axis of which a block has more than one value."""
        return {axis: length for axis, length in enumerate(self._plan.block_shape) if length > 1}

    def _block(
        self,
        room: list[Array],
        kept: dict[str, Array],
        given: dict[int, Array],
        starts: Int32[Array, " axes"],
        first: Bool[Array, ""],
        ones: Array,
    ) -> tuple[list[Array], dict[str, Array]]:
        del room  # donated: the results are written into it
        shape = self._shape
        # A loop of one turn or none, whose buffers are its arguments'; a branch would copy them.
        _, kept = jax.lax.while_loop(
            lambda state: state[0],
            lambda state: (jnp.zeros_like(state[0]), self._kept.pack(self._evaluate_once(given))),
            (first, kept),
        )
        values = given | self._kept.unpack(kept)
        pieces = {number: self._piece(value, self._depends[number], starts) for number, value in values.items()}
        inside = {number: axes & frozenset(shape) for number, axes in self._depends.items()}
        found = evaluate(self._each, pieces, inside, len(shape), ones)
        return [spread(one, found, inside, shape) for one in self._each.outputs], kept

    def _evaluate_once(self, given: Mapping[int, Array]) -> dict[int, Array]:
        """What all blocks take, over the whole of its axes, by number."""
        found = evaluate(self._once, given, self._depends)
        return {number: found[number] for number in self._once.outputs if isinstance(number, int)}

    def _piece(self, value: Array, axes: Axes, starts: Int32[Array, " axes"]) -> Array:
        """A block's rows of a value: along an axis one row without its dimension, all rows, or a slice."""
        dimension = 0
        for axis in sorted(axes):
            length = self._plan.block_shape[axis]
            if length == 1:
                value = jax.lax.dynamic_index_in_dim(value, starts[axis], dimension, keepdims=False)
                continue
            if length < value.shape[dimension]:
                value = jax.lax.dynamic_slice_in_dim(value, starts[axis], length, dimension)
            dimension += 1
        return value


def _feed(axes: Sequence[Axis], plan: Plan) -> tuple[list[int | None], list[np.ndarray]]:
    """The axes' arguments as a flat list of arrays, and which axis each varies along.

    A leaf with the same value all along its axis is a constant: what depends on it alone is computed once.
    """
    along: list[int | None] = []
    leaves: list[np.ndarray] = []
    for position, one in enumerate(axes):
        for leaf in jax.tree.leaves(dict(one.arguments)):
            leaf = leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype))
            uniform = bool((leaf == leaf[:1]).all())
            along.append(None if uniform else position)
            leaves.append(leaf[0] if uniform else _padded(leaf, plan.whole(position)))
    return along, leaves


def _padded(leaf: np.ndarray, length: int) -> np.ndarray:
    """`leaf` with its last row repeated, so that the last block along the split axis has the shape of the others."""
    return np.concatenate([leaf, np.repeat(leaf[-1:], length - len(leaf), axis=0)])
