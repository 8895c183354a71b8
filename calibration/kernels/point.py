"""One kernel on one device: its demands, its features, and what a `KernelModel` reads of them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from calibration.datasets.schema import KernelTable
from calibration.kernels import convolutions, experts, products
from calibration.kernels.asked import Shape, way
from calibration.kernels.busiest import Busiest, busiest
from calibration.kernels.demand import Demand, demands
from calibration.kernels.features import features
from calibration.kernels.formats import Formats, format_columns
from calibration.kernels.habits import habits
from calibration.kernels.hardware import REFERENCE_CLOCK, Hardware, load_hardware
from calibration.kernels.latents import ABSORBING
from calibration.kernels.model import Inputs
from calibration.kernels.prefill import as_seen, covered
from calibration.kernels.ways import ways_of
from jaxperf.core.numerics import Scalar, as_float

LEAST = 1e-30
MOST = 50.0  # of a feature: no kernel on any device has more, so that a bad row's infinity does no harm


class Kind(eqx.Module):
    """What the kernels of a group share: their device, their number formats, whether their routing is skewed, and the
    `ways` of their software that the table's names tell (1 where a kernel does so, else 0)."""

    hardware: Hardware
    formats: Formats
    skewed: Float[Array | np.ndarray, "*groups"]
    ways: Mapping[str, Float[Array | np.ndarray, "*groups"]]

    def rows(self, index: np.ndarray) -> Kind:
        """One row per entry of `index`."""
        return jax.tree.map(lambda leaf: leaf[index], self)


class Point(eqx.Module):
    """One kernel on one device: the demands of `Demand`; `core`: time of the busiest core, `special`: of its pipelines
    beside the matrix units, `on_chip`: of the bytes from L2 [s]; `footprint`: bytes over L2 [log 1]; `waves`: blocks on
    the busiest core, `alone`: 1 where one fills it; `before`: time of kernels that run before [s]; `clock` and
    `design_clock`: over the H100's [1]; `eager`: 1 where a host launches it, `chained`: where it starts while the one
    before it ends; `kernels`: how many run one after the other; `pipelined`, `gddr`, `inline_ecc` as in `Hardware` [1];
    `features`, `learned`, those of the same kernel without cached tokens, and the `names` of both; `habits` [log 1].

    Prefill was never measured behind cached tokens: its correction is that of the kernel without them, and the law
    alone carries what they add."""

    compute: Scalar
    memory: Scalar
    power: Scalar
    ideal: Scalar
    flops: Scalar
    moved: Scalar
    core: Scalar
    special: Scalar
    on_chip: Scalar
    footprint: Scalar
    waves: Scalar
    alone: Scalar
    before: Scalar
    clock: Scalar
    design_clock: Scalar
    eager: Scalar
    chained: Scalar
    kernels: Scalar
    pipelined: Scalar
    gddr: Scalar
    inline_ecc: Scalar
    features: list[Scalar]
    learned: list[Scalar]
    habits: list[Scalar]
    names: tuple[str, ...] = eqx.field(static=True)

    @property
    def usable(self) -> Bool[Array, ""]:
        """Whether the demands are numbers: the device has the format, and nothing overflows."""
        finite = [jnp.isfinite(each) for each in (self.compute, self.memory, *self.features, *self.habits)]
        return functools.reduce(jnp.logical_and, finite)

    @property
    def roofline(self) -> Scalar:
        """The plain roofline: the longer of useful FLOP at the matrix peak and bytes at the bandwidth [s]."""
        return jnp.maximum(self.ideal, self.memory)

    def inputs(self, names: Sequence[str], levels: Mapping[str, Int[Array, ""]]) -> Inputs:
        """What a model reads that was fitted on the features `names`, of a kernel with these `levels`; no numbers where
        the point is not `usable`."""
        own = dict(zip(self.names, self.features, strict=True))
        learned = dict(zip(self.names, self.learned, strict=True))
        return Inputs(
            compute=_log(self.core),
            special=_log(self.special),
            memory=_log(self.memory),
            power=_log(self.power),
            on_chip=_log(self.on_chip),
            footprint=self.footprint,
            waves=_log(self.waves),
            alone=self.alone,
            before=_log(self.before),
            clock=_log(self.clock),
            design_clock=_log(self.design_clock),
            eager=self.eager,
            chained=self.chained,
            kernels=_log(self.kernels),
            pipelined=self.pipelined,
            gddr=self.gddr,
            inline_ecc=self.inline_ecc,
            features=jnp.stack([own[name] for name in names]),
            learned=jnp.stack([learned[name] for name in names]),
            habits=jnp.stack(self.habits) if self.habits else jnp.zeros(0),
            levels=dict(levels),
        )


def describe(family: str, kind: Kind, x: Shape) -> Point:
    """The demands and features of one kernel."""
    hardware, stated = kind.hardware, whole_shape(kind, x)
    x = as_seen(stated) if family == "attention_prefill" else stated
    asked = Demand(*demands(family, hardware, covered(x) if family == "attention_prefill" else x, kind.formats))  # type: ignore[arg-type]  # of scalars
    if family == "gemm" or family in ABSORBING:
        asked = dataclasses.replace(asked, power=asked.power * products.switched(hardware.device, kind.formats))
    if family == "convolution":
        multiplied = convolutions.chosen(hardware.device, x, kind.formats).flops
        asked = dataclasses.replace(asked, power=asked.power * multiplied / asked.flops)
    own = busiest(family, x, asked, hardware, kind.formats)
    skewed = as_float(kind.skewed)
    seen = learned = features(family, x, asked, hardware, skewed)
    if family == "attention_prefill":
        alone = as_seen({**stated, "prefix": jnp.zeros_like(stated["prefix"])})
        without = Demand(*demands(family, hardware, covered(alone), kind.formats))  # type: ignore[arg-type]  # of scalars
        learned = features(family, alone, without, hardware, skewed)
    return Point(
        **{name: getattr(asked, name) for name in Demand.__dataclass_fields__},
        **{name: getattr(own, name) for name in Busiest.__dataclass_fields__},
        clock=as_float(hardware.clock) / REFERENCE_CLOCK,
        design_clock=as_float(hardware.design_clock) / REFERENCE_CLOCK,
        eager=way(x, "eager"),
        chained=way(x, "chained"),
        kernels=way(x, "kernels", 1.0),
        pipelined=as_float(hardware.pipelined),
        gddr=as_float(hardware.gddr),
        inline_ecc=as_float(hardware.inline_ecc),
        features=list(seen.values()),
        learned=list(learned.values()),
        habits=list(habits(family, x, hardware, skewed, kind.formats).values()),
        names=tuple(seen),
    )


def whole_shape(kind: Kind, x: Shape) -> Shape:
    """A shape with what its kind adds to it: the ways of its software, and threads that a core holds."""
    ways = {name: as_float(each) for name, each in kind.ways.items()}
    return {**x, **ways, "resident_threads": as_float(kind.hardware.resident)}


def settled(family: str, kind: Kind, x: Shape) -> Shape:
    """Further columns of a shape: what much else of a kernel hangs on, and is dear to compute again."""
    x = whole_shape(kind, x)
    if family == "gemm":
        return products.cut(kind.hardware.device, x)
    return experts.settled(x, kind.formats) if family == "moe" else {}


def _log(x: Scalar) -> Scalar:
    return jnp.log(jnp.maximum(x, LEAST))


def load_kinds(table: KernelTable, directories: Sequence[str | Path] = ()) -> Kind:
    """What each of a few rows, one a group, shares with its group."""
    devices, index = np.unique(table.device.astype(str), return_inverse=True)
    formats, form = format_columns(table)
    routing = table.text["distribution"] if "distribution" in table.text else [""] * len(table)
    skewed = np.array([float("power" in text) for text in routing], jnp.result_type(float))
    hosted = jax.tree.map(lambda leaf: np.asarray(leaf)[form], formats)
    ways = {name: each.astype(skewed.dtype) for name, each in ways_of(table, directories).items()}
    return Kind(load_hardware(list(devices), directories).rows(index), hosted, skewed, ways)
