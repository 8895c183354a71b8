"""When do two spellings of a device name mean the same? Only if nothing but vendor words and punctuation differs."""

from __future__ import annotations

import re
from dataclasses import dataclass

_VENDOR_WORDS = frozenset(
    ("nvidia", "amd", "instinct", "intel", "tesla", "geforce", "quadro", "google", "cloud", "aws", "habana", "radeon")
)
_MEMORY_KINDS = re.compile(r"(hbm|gddr)\d[a-z]?")
_MEMORY_SIZE = re.compile(r"(\d+)(g|gb|gib)")

_MIG = re.compile(r"(?P<device>.+?)[\s_-]+MIG[\s_-]+(\d+c\.)?\d+g\.(?P<memory>\d+)gb(\+\S+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Spelling:
    """A device name reduced to what identifies it: the words run together, and the memory size in GB if one is given.

    "NVIDIA A100-SXM4 80GB" becomes `Spelling("a100sxm4", 80)`. Nothing else is dropped: "h100-80gb-pcap" keeps its
    "pcap", so it never means the device it resembles.
    """

    core: str
    memory: int | None


def spelling_of(text: str) -> Spelling:
    """Reduce a device name; case, spaces, underscores, dashes and vendor words do not matter."""
    words = []
    memory = None
    for word in re.findall(r"[^\W_]+|[()\[\]+,]", text.casefold()):
        size = _MEMORY_SIZE.fullmatch(word)
        if size is not None and memory is None and words:
            memory = int(size.group(1))
        elif word not in _VENDOR_WORDS and not _MEMORY_KINDS.fullmatch(word):
            words.append(word)
    return Spelling("".join(words), memory)


@dataclass(frozen=True)
class Slice:
    """A slice of a GPU (MIG): the string that names the `device`, and its `memory` in GB."""

    device: str
    memory: str

    def sentence(self, whole: str) -> str:
        """What it is, and how to state it; `whole`: the name of the device."""
        return (
            f"it is a slice (MIG) of {whole} with {self.memory} GB, whose cores differ by profile; write a file with "
            f'base = "{whole}" that states its num_cores (`nvidia-smi mig -lgip` has them as SM), its peak_flops, '
            "vector_flops, memory_bandwidth, memory_capacity and l2_capacity (docs/add-a-device.md)."
        )


def slice_of(text: str) -> Slice | None:
    """The slice that a string names, such as "A100-SXM4-40GB MIG 3g.20gb"; None for another string."""
    named = _MIG.fullmatch(text.strip())
    return Slice(named["device"], named["memory"]) if named else None
