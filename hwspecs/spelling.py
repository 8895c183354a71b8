"""When do two spellings of a device name mean the same? Only if nothing but vendor words and punctuation differs."""

from __future__ import annotations

import re
from dataclasses import dataclass

_VENDOR_WORDS = frozenset(
    "nvidia amd instinct intel tesla geforce quadro google cloud aws habana radeon huawei".split()
)
_MEMORY_KINDS = re.compile(r"(hbm|gddr)\d[a-z]?")
_MEMORY_SIZE = re.compile(r"(\d+)(g|gb|gib)")


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
