"""Networks as immutable models: what joins devices inside a node, between nodes, and in a torus."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from pydantic import model_validator

from hwspecs.errors import InputError, did_you_mean
from hwspecs.files import SHIPPED, read_toml, scan
from hwspecs.schema import Slug, Spec, parse_spec
from hwspecs.spelling import Spelling, spelling_of
from hwspecs.values import Count, DataRate, Record, Text, Year

#: fabric: ports of nodes behind switches; switch: the switch of a scale-up domain; torus: links to neighbors.
Kind = Literal["fabric", "switch", "torus"]


class Extents(Record):
    """Chips along each axis of a torus [1]."""

    x: Count
    y: Count
    z: Count | None = None

    def sizes(self) -> tuple[int, ...]:
        """The axes there are, x first."""
        return tuple(int(axis.si) for axis in (self.x, self.y, self.z) if axis is not None)


class NetworkSpec(Spec):
    """One kind of network; `bandwidth` is of one port, of a torus of one link to a neighbor, one direction [byte/s].

    `lanes` of `lane_rate`: what a port consists of, at the rate of data, not of symbols [byte/s]. `link`: the file of
    `links/` a port is. `ports_per_switch`: of one switch chip or box. `ports_per_node` of `node_bandwidth` together:
    where a provider sells nodes [byte/s]. `in_network_reduction`: the name of what the switch adds with, if it does.
    `extents`, `pod_size`: chips of a whole torus; `dimensions`: its axes, where the extents are not known;
    `wrapped_multiple`: an axis whose length is a multiple of it is a ring, any other a line.
    """

    kind: Kind
    released: Year
    aliases: tuple[Text, ...] = ()
    convention: Text
    bandwidth: DataRate
    lanes: Count | None = None
    lane_rate: DataRate | None = None
    link: Slug | None = None
    ports_per_switch: Count | None = None
    ports_per_node: Count | None = None
    node_bandwidth: DataRate | None = None
    in_network_reduction: Text | None = None
    extents: Extents | None = None
    dimensions: Count | None = None
    pod_size: Count | None = None
    wrapped_multiple: Count | None = None

    @property
    def axes(self) -> int:
        """Axes of a torus, 0 of any other network [1]."""
        if self.extents is not None:
            return len(self.extents.sizes())
        return 0 if self.dimensions is None else int(self.dimensions.si)

    @model_validator(mode="after")
    def _check_torus(self) -> NetworkSpec:
        torus_only = ("extents", "dimensions", "pod_size", "wrapped_multiple")
        given = [name for name in torus_only if getattr(self, name) is not None]
        if self.kind != "torus" and given:
            raise InputError(f"{given[0]} is allowed for kind torus only, and this one is {self.kind}.")
        if self.kind == "torus" and (self.pod_size is None or self.wrapped_multiple is None):
            raise InputError("pod_size or wrapped_multiple is missing; a torus needs both.")
        if self.kind == "torus" and (self.extents is None) == (self.dimensions is None):
            raise InputError("a torus needs either extents or, where they are not known, dimensions.")
        return self

    @model_validator(mode="after")
    def _check_pairs(self) -> NetworkSpec:
        if (self.lanes is None) != (self.lane_rate is None):
            raise InputError("lanes and lane_rate belong together; give both or neither.")
        if (self.ports_per_node is None) != (self.node_bandwidth is None):
            raise InputError("ports_per_node and node_bandwidth belong together; give both or neither.")
        return self


def load_network(name: str) -> NetworkSpec:
    """The specification of a network, by name or alias, such as infiniband-ndr or "NDR InfiniBand".

    **Raises:** `InputError` with the nearest names for one that is not known.
    """
    known = _by_spelling()
    found = known.get(spelling_of(name))
    if found is None:
        names = network_names()
        spellings = [*names, *(alias for entry in names for alias in _read(entry).aliases)]
        raise InputError(f"{name!r} is not a known network.{did_you_mean(name, spellings)} Known: {', '.join(names)}.")
    return _read(found)


def network_names() -> tuple[str, ...]:
    """The names of all networks, sorted."""
    return tuple(scan(SHIPPED / "networks"))


@functools.cache
def _read(name: str) -> NetworkSpec:
    path = scan(SHIPPED / "networks")[name]
    return parse_spec(NetworkSpec, read_toml(path), str(path))


@functools.cache
def _by_spelling() -> Mapping[Spelling, str]:
    """The network each spelling of a name or alias means.

    **Raises:** `InputError` where two files claim the same spelling.
    """
    owners: dict[Spelling, str] = {}
    for name in network_names():
        for text in (name, *_read(name).aliases):
            other = owners.setdefault(spelling_of(text), name)
            if other != name:
                raise InputError(f"networks/{name}.toml: {text!r} already means {other}; remove it from one.")
    return MappingProxyType(owners)
