"""The specification files as immutable models: a device with its node, a link, an architecture, a process, a memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, StrictBool, ValidationError, model_validator

from hwspecs.errors import InputError, did_you_mean
from hwspecs.problems import explain
from hwspecs.values import (
    Area,
    ComputeRate,
    Count,
    DataRate,
    DataSize,
    Duration,
    EnergyPerByte,
    EnergyPerFlop,
    Format,
    Frequency,
    Length,
    Power,
    Ratio,
    Record,
    Source,
    Text,
    Value,
    Year,
)

Slug = Annotated[str, Field(pattern=r"^[a-z0-9]+([.-][a-z0-9]+)*$")]
#: cpu: a server or desktop processor; soc: a processor with CPU, GPU and often NPU that share one memory.
Kind = Literal["gpu", "tpu", "npu", "cpu", "soc"]
#: single: a device alone, whose only link is its network port.
Topology = Literal["switch", "mesh", "torus", "pcie", "single"]
_Spec = TypeVar("_Spec", bound="Spec")


class Spec(Record):
    """What every file has: a name, which is also the file's name, and the sources its values refer to."""

    name: Slug
    display_name: Text
    vendor: Text
    sources: dict[Slug, Source] = Field(min_length=1)
    note: Text | None = None

    @model_validator(mode="after")
    def _check_sources(self) -> Spec:
        for path, value in self.values():
            for key in value.source:
                if key not in self.sources:
                    known = ", ".join(self.sources)
                    hint = did_you_mean(key, self.sources)
                    raise InputError(f"{path}.source names {key!r}, which [sources] does not define ({known}).{hint}")
        return self

    def values(self) -> Iterator[tuple[str, Value]]:
        """Every number of the file with its field path, such as `("node.link_bandwidth", Value)`."""
        yield from _values("", self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that reads back to an equal specification; fields that are not set are left out."""
        return self.model_dump(mode="json", exclude_none=True)


class NodeSpec(Record):
    """The scale-up domain a device is usually bought in, and the network beyond it.

    `size`: devices in the domain [1]. `link_bandwidth`: sum over the device's links, **one direction** [byte/s].
    `link_latency`: one step between two devices of the domain, software included [s].
    `network_bandwidth`: scale-out share of one device, one direction [byte/s]. `network_latency`: one step over
    the network [s]. `torus_dimensions` is given for a torus only.
    """

    size: Count
    topology: Topology
    torus_dimensions: Annotated[int, Field(ge=2, le=3)] | None = None
    link: Slug
    link_count: Count
    link_bandwidth: DataRate
    link_latency: Duration
    network_bandwidth: DataRate
    network_latency: Duration

    @model_validator(mode="after")
    def _check_torus(self) -> NodeSpec:
        if self.topology == "torus" and self.torus_dimensions is None:
            raise InputError("torus_dimensions is missing; a torus needs 2 or 3.")
        if self.topology != "torus" and self.torus_dimensions is not None:
            raise InputError(f"torus_dimensions is allowed for topology torus only, and this one is {self.topology}.")
        if self.topology == "single" and self.size.si != 1:
            raise InputError(f"size is {self.size.quantity}, but topology single means 1.")
        return self


class HostSpec(Record):
    """What joins a device to its host: the `link`, a file of `links/`; in a superchip the `processor`, a device of kind
    cpu, and how many `devices` share it and its link [1]."""

    link: Slug
    processor: Slug | None = None
    devices: Count | None = None


class DeviceSpec(Spec):
    """One accelerator as software addresses it.

    `base`: the nearest shipped device that its file states differences from. `peak_flops`: highest **dense**
    matrix-multiply rate per format [FLOP/s], formats the hardware multiplies natively only; where a format has no
    matrix unit (fp32 on most GPUs) the vector units set it. Sparse rates never appear.
    `vector_flops`: fp32 rate of the vector units [FLOP/s]. `num_cores`: units that tiles are scheduled on (SM, CU,
    TensorCore). `clock_rate`: the clock at which the matrix peak is stated [Hz]. `memory_capacity`: as the
    vendor prints it, GB = 1e9 [byte]; `usable_memory`: what a driver or tool reports as allocatable, which is larger
    where a vendor prints GB for GiB [byte]. `l2_capacity`: last on-chip memory shared by the cores [byte];
    `shared_memory_per_core`: software-managed memory of one core [byte]. `launch_latency`: start and drain of one
    kernel on the device when the host is not in the way [s]. `die_area`: of all dies of the device that compute or hold
    its caches, however much of them is switched on [m^2]. `process` and `memory_type` name files of `processes/`
    and `memories/`, from which `energy_of` takes the energy per operation and byte. `inline_ecc`: whether the memory
    corrects errors out of the box with check bits that share its bus, as GDDR of NVIDIA's boards for data centers does;
    HBM has lines of its own for them, and workstation boards come with the correction switched off (nvidia-smi -e).
    `microscaling`: whether the matrix units take the scales of OCP MX blocks with their elements, as those of Blackwell
    (PTX ISA, `mma` with block scaling), CDNA 4 (`V_MFMA_SCALE_*`) and NeuronCore-v4 do; left out: they do not. `host`:
    how it is joined to its host; a card on PCI Express needs none (`hwspecs.host_of`).
    """

    architecture: Slug
    kind: Kind
    released: Year
    process: Slug | None = None
    memory_type: Slug | None = None
    inline_ecc: StrictBool = False
    microscaling: StrictBool = False
    aliases: tuple[Text, ...] = ()
    base: Slug | None = None
    peak_flops: dict[Format, ComputeRate] = Field(min_length=1)
    vector_flops: ComputeRate
    memory_bandwidth: DataRate
    memory_capacity: DataSize
    usable_memory: DataSize | None = None
    num_cores: Count
    clock_rate: Frequency
    l2_capacity: DataSize
    shared_memory_per_core: DataSize | None = None
    tdp: Power
    die_area: Area | None = None
    launch_latency: Duration
    node: NodeSpec
    host: HostSpec | None = None

    @model_validator(mode="after")
    def _check_sizes(self) -> DeviceSpec:
        """Neither what a driver reports nor a cache is larger than the memory, but for GB printed for GiB."""
        for field in ("usable_memory", "l2_capacity"):
            size: DataSize | None = getattr(self, field)
            if size is not None and size.si > self.memory_capacity.si * 2**30 / 1e9:
                stated = f"{size.quantity}, but memory_capacity is {self.memory_capacity.quantity}"
                raise InputError(f"{field} is {stated}; it cannot be larger. Correct one of them.")
        return self


class LinkSpec(Spec):
    """One kind of device-to-device link; `bandwidth` is of one link in one direction [byte/s].

    `convention` says what counts as one link and how the vendor's advertised number relates to `bandwidth`.
    """

    bandwidth: DataRate
    convention: Text


class ArchitectureSpec(Spec):
    """What one core does per clock cycle.

    `operations_per_cycle`: dense matrix operations per format [FLOP per cycle and core]; `vector_operations_per_cycle`:
    fp32 on the vector units [FLOP per cycle and core]; `special_functions_per_cycle`: fp32 exponentials [per cycle and
    core]; `resident_threads`: that a core holds at a time [1]; `operands_from_shared_memory`: whether matrix
    instructions read operands there themselves, as Hopper's `wgmma` and Blackwell's `tcgen05` (PTX ISA) do, instead of
    from registers; `accumulators_in_tensor_memory`: whether they leave their results in a memory of their own, so that
    warps work on those of one tile while the next is multiplied (`tcgen05`); `core`: the vendor's word for one core.
    `flagship`: of the devices with this chip and its whole matrix rate, the one with the highest power limit that is
    the chip's alone; a variant whose rate is cut has that of the whole chip.
    """

    core: Text
    flagship: Slug | None = None
    operations_per_cycle: dict[Format, Count] = Field(min_length=1)
    vector_operations_per_cycle: Count
    special_functions_per_cycle: Count | None = None
    resident_threads: Count | None = None
    operands_from_shared_memory: StrictBool = False
    accumulators_in_tensor_memory: StrictBool = False


class ProcessSpec(Spec):
    """A manufacturing process and what arithmetic costs on it.

    `feature_size`: the length in the process's name, a label rather than a measure [m]. `energy_per_flop`: one
    multiply-add of the format over two, in the arithmetic unit alone, without registers, instructions, caches, clock
    and leakage [J/FLOP]: a lower bound of what a device spends. `relative_power`: of a whole circuit at one speed, over
    that of the same circuit in TSMC's N5, as foundries state it [1].
    """

    feature_size: Length
    relative_power: Ratio | None = None
    energy_per_flop: dict[Format, EnergyPerFlop] = Field(min_length=1)


class MemorySpec(Spec):
    """A kind of device memory; `energy_per_byte` is of reading or writing it, interface included [J/byte]."""

    energy_per_byte: EnergyPerByte


def parse_spec(spec: type[_Spec], raw: Mapping[str, Any], origin: str) -> _Spec:
    """Check plain data against a specification.

    **Arguments:** `spec`: the model, such as `DeviceSpec` or `LinkSpec`; `raw`: as read from TOML or JSON; `origin`:
    the file to name in messages.
    **Raises:** one `InputError` with a sentence per problem, one a line.
    """
    try:
        return spec.model_validate(raw)
    except ValidationError as error:
        raise InputError(explain(error, spec, origin)) from None


def _values(path: str, item: Any) -> Iterator[tuple[str, Value]]:
    if isinstance(item, Value):
        yield path, item
    elif isinstance(item, Record):
        for name in type(item).model_fields:
            yield from _values(f"{path}.{name}" if path else name, getattr(item, name))
    elif isinstance(item, dict):
        for key, value in item.items():
            yield from _values(f"{path}.{key}", value)
