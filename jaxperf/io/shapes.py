"""Shapes as people write them: `f32[8,1024],f32[1024,4096]` for a function, `tokens=1,128` for a file's inputs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hwspecs.errors import InputError, did_you_mean
from hwspecs.whole import whole_number

# Short names of number formats, as jaxprs print them, with NumPy's own.
DTYPES = {
    "f64": "float64",
    "f32": "float32",
    "bf16": "bfloat16",
    "f16": "float16",
    "f8_e4m3fn": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
    **{
        f"{short}{bits}": f"{long}{bits}"
        for short, long in (("i", "int"), ("u", "uint"))
        for bits in (4, 8, 16, 32, 64)
    },
    "bool": "bool",
    "c64": "complex64",
    "c128": "complex128",
}
_ARRAY = re.compile(r"\s*([A-Za-z_][A-Za-z_0-9]*)\s*\[([^\]]*)\]\s*")
LARGEST = 2**53


def parse_arrays(text: str) -> list[tuple[tuple[int, ...], str]]:
    """Shape and NumPy type name of every array in `f32[8,1024],i32[]`.

    **Raises:** `InputError` naming the part that cannot be read and what is allowed.
    """
    found = []
    position = 0
    while position < len(text):
        match = _ARRAY.match(text, position)
        if match is None:
            raise InputError(f"--shapes: '{text[position:].strip()}' is not an array; write f32[8,1024],i32[8].")
        found.append((_extents(match[2], match[0].strip()), _dtype(match[1])))
        position = match.end()
        if position < len(text) and text[position] != ",":
            raise InputError(f"--shapes: '{text[position:]}' follows {match[0].strip()}; separate arrays by a comma.")
        position += 1
    if not found:
        raise InputError("--shapes is empty; write one array an argument, such as f32[8,1024],f32[1024,4096].")
    return found


def parse_bindings(entries: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Shapes by the name of an input: `tokens=1,128`, one an entry. Raises `InputError` for anything else."""
    found: dict[str, tuple[int, ...]] = {}
    for entry in entries:
        name, sign, text = (part.strip() for part in entry.rpartition("="))
        if not sign or not name:
            raise InputError(f"--shapes: '{entry}' names no input; write input=1,3,224,224.")
        if re.search(r"=[^=]*,[^=]*=", entry):  # a name may hold a "=" itself
            raise InputError(f"--shapes: '{entry}' has several '='; repeat --shapes for each: {_apart(entry)}.")
        if name in found:
            raise InputError(f"--shapes: {name} is given twice; give it once.")
        found[name] = _extents(text, entry)
    return found


def _apart(entry: str) -> str:
    """`batch=8,seq=16` as `--shapes batch=8 --shapes seq=16`."""
    return " ".join(f"--shapes {part.strip()}" for part in re.split(r",(?=[^,=]*=)", entry))


def _dtype(word: str) -> str:
    if word in DTYPES.values():
        return word
    if word not in DTYPES:
        known = [*DTYPES, *dict.fromkeys(DTYPES.values())]
        raise InputError(f"--shapes: '{word}' is not a number format.{did_you_mean(word, known)}")
    return DTYPES[word]


def _extents(text: str, whole: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    numbers = [whole_number(part) for part in parts]
    found = tuple(number for number in numbers if number is not None and number <= LARGEST)
    for part, number in zip(parts, numbers, strict=True):
        if number is None or number > LARGEST:
            raise InputError(f"--shapes: '{part}' in '{whole}' is not a whole number from 0 to 2^53.")
    return found
