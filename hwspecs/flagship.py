"""The device that has the whole of a chip, of which others of its architecture are cuts."""

from __future__ import annotations

import functools

from hwspecs.errors import InputError
from hwspecs.parts import load_architecture
from hwspecs.registry import load
from hwspecs.schema import DeviceSpec


def flagship_of(spec: DeviceSpec) -> DeviceSpec | None:
    """The shipped device with the whole matrix rate and the highest power limit of a device's chip.

    None where no file of `architectures/` says which: for an architecture of the user's own, or without matrix units.
    """
    return _flagship(spec.architecture)


@functools.cache  # both files are shipped, and a ranking asks for them device by device
def _flagship(architecture: str) -> DeviceSpec | None:
    try:
        flagship = load_architecture(architecture).flagship
    except InputError:
        return None
    return None if flagship is None else load(flagship)
