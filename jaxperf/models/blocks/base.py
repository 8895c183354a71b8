"""What every block of a layer can say about itself. Abstract: no state, no method with a body that is overridden."""

from __future__ import annotations

import abc
from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Bool

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.models.blocks.phase import Phase
from jaxperf.models.deployment import Deployment, Parallelism

Kernels = dict[str, Cost]


class AbstractBlock(eqx.Module):
    """A token mixer or a feed-forward block; sizes are those of the whole model, answers those of one rank.

    `hidden` is everywhere the width of the layer that the block belongs to [1].
    """

    @abc.abstractmethod
    def matrix_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        """Elements of the matrices, which quantization makes smaller [1]. Biases and norms are left out (< 0.1 %)."""

    @abc.abstractmethod
    def other_elements(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        """Elements that stay in the activations' format in every quantization in use: routers, scorers, taps [1]."""

    @abc.abstractmethod
    def uneven(self, layout: Parallelism) -> Bool[Array, ""]:
        """Whether the tensor-parallel ranks cannot have equal shares."""


class AbstractMixer(AbstractBlock):
    """A token mixer. `name` begins the names of the norm before it and of the all-reduce after it."""

    name: ClassVar[str]

    @abc.abstractmethod
    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        """Cost by kernel name, from the normed input to the partial sums of the output projection."""

    @abc.abstractmethod
    def cached_elements(self, layout: Parallelism, length: Scalar) -> Scalar:
        """Elements kept of one sequence of `length` tokens, in the format of the cache [1]."""

    @abc.abstractmethod
    def state_bytes(self, layout: Parallelism, itemsize: Scalar) -> Scalar:
        """Bytes of state of one sequence, the same at any length; `itemsize` of an activation [byte]."""


class AbstractCached(AbstractMixer):
    """A mixer that remembers a sequence in a cache of its tokens alone."""

    def state_bytes(self, layout: Parallelism, itemsize: Scalar) -> Scalar:
        return as_float(0.0)


class AbstractFfn(AbstractBlock):
    """A feed-forward block."""

    @abc.abstractmethod
    def kernels(self, deployment: Deployment, hidden: Scalar, phase: Phase) -> Kernels:
        """Cost by kernel name, from the normed input to the output that all ranks hold in full."""

    @abc.abstractmethod
    def alive(self, hidden: Scalar, layout: Parallelism) -> Scalar:
        """Elements per token alive at once inside the block [1]."""

    @abc.abstractmethod
    def uneven_experts(self, layout: Parallelism) -> Bool[Array, ""]:
        """Whether the experts cannot be spread evenly over the expert-parallel ranks."""
