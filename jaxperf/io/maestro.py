"""MAESTRO's files: the layers of a network with a dataflow of directives each, and a machine.

The grammar is that of the files which come with MAESTRO (github.com/maestro-project/maestro, data/mapping, data/hw):
`Network NAME { Layer NAME { Type: CONV Stride { X: 2, Y: 2 } Dimensions { K: 64, C: 3, .. } Dataflow { .. } } }`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.checks import show

TOKEN = re.compile(r"\s*(?://[^\n]*\n?)?(?P<token>[A-Za-z_][\w.\-]*'?|\d+|[{}():;,])?")
MOVES = {"TemporalMap": False, "SpatialMap": True}
PARTS = ("Type", "Stride", "Dimensions", "Dataflow")
MACHINE = ("NumPEs", "L1Size", "L2Size", "NoC_BW", "NoC_NumHops")
DIGITS = 15  # of a number at most, so that it is exact in a double


class Word(NamedTuple):
    """A token and its line."""

    text: str
    line: int


class Directive(NamedTuple):
    """`TemporalMap` or `SpatialMap`: `size` and `offset` [1] of `loop`, as the file names it."""

    loop: str
    size: int
    offset: int
    spatial: bool
    line: int


@dataclass
class Layer:
    """`dimensions`: [1], `stride`: of X and Y [1]; `groups`: directives by cluster, the outermost first; `widths`: of
    all but the outermost, the units or clusters in one [1]."""

    name: str
    line: int
    kind: str = ""
    dimensions: dict[str, int] = field(default_factory=dict)
    stride: dict[str, int] = field(default_factory=dict)
    groups: list[list[Directive]] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)


class Words:
    """The tokens of a file, read from the left."""

    def __init__(self, text: str, source: str) -> None:
        self.source, self.place, self.constants = source, 0, dict[str, int]()
        self.words = _words(text, source)

    def peek(self) -> str:
        return self.words[self.place].text if self.place < len(self.words) else ""

    def where(self, back: int = 0) -> str:
        """File and line of the next token, or of one before it."""
        index = min(self.place - back, len(self.words) - 1)
        return f"{self.source}: line {self.words[index].line if self.words else 1}"

    def take(self, *allowed: str) -> str:
        """The next token. Raises `InputError` where it is none of `allowed`."""
        found = self.peek()
        if not found or (allowed and found not in allowed):
            expected = f"one of {', '.join(allowed)}" if allowed else "a name or a number"
            said = f"'{found}' stands" if found else "the file ends"
            raise InputError(f"{self.where()}: {said} where {expected} must.{did_you_mean(found, allowed)}")
        self.place += 1
        return found

    def skip(self, text: str) -> bool:
        """Takes the next token if it is `text`."""
        if self.peek() != text:
            return False
        self.place += 1
        return True

    def number(self, dimensions: Dictionary[str, int]) -> int:
        """An integer from 1, a constant of the file, or Sz(NAME), the bound of a dimension."""
        found, where = self.take(), self.where(back=1)
        if found == "Sz":
            self.take("(")
            found = self.take()
            self.take(")")
            return _known(found, dimensions, "dimension", where)
        return _integer(found, 1, where) if found[0].isdecimal() else _known(found, self.constants, "constant", where)


def _words(text: str, source: str) -> list[Word]:
    found, place = [], 0
    while place < len(text):
        match = TOKEN.match(text, place)
        if match is None or match.end() == place:
            line = text.count("\n", 0, place) + 1
            raise InputError(f"{source}: line {line}: '{text[place]}' belongs to no directive.")
        if match["token"]:
            found.append(Word(match["token"], text.count("\n", 0, match.start("token")) + 1))
        place = match.end()
    return found


def _integer(text: str, least: int, where: str) -> int:
    if not text.isdecimal() or len(text) > DIGITS or int(text) < least:
        raise InputError(f"{where}: {show(text)} must be an integer from {least}, of {DIGITS} digits at most.")
    return int(text)


def _known(name: str, values: Dictionary[str, int], what: str, where: str) -> int:
    if name not in values:
        there = ", ".join(values) or "none"
        raise InputError(f"{where}: '{name}' is no {what}; there are {there}.{did_you_mean(name, values)}")
    return values[name]


def load_layers(path: str | Path) -> list[Layer]:
    """The layers of a mapping file. Raises `InputError` naming file and line."""
    return read_layers(_text(path), str(path))


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text: {error}.") from None


def read_layers(text: str, source: str) -> list[Layer]:
    """The layers of a mapping file from its text. Raises `InputError` naming file and line."""
    words, layers = Words(text, source), list[Layer]()
    while words.peek():
        if words.take("Constant", "Network") == "Constant":
            name = words.take()
            words.constants[name] = words.number({})
            words.skip(";")
            continue
        words.take()
        words.take("{")
        while not words.skip("}"):
            words.take("Layer")
            layers.append(_layer(words))
    if not layers:
        raise InputError(f"{source} has no Network with a Layer.")
    return layers


def _layer(words: Words) -> Layer:
    layer = Layer(words.take(), words.words[words.place - 1].line)
    words.take("{")
    while not words.skip("}"):
        part = words.take(*PARTS)
        words.skip(":")
        if part == "Type":
            layer.kind = words.take()
        elif part == "Dataflow":
            _dataflow(words, layer)
        elif part == "Stride":
            _pairs(words, layer, layer.stride, "X", "Y")
        else:
            _pairs(words, layer, layer.dimensions)
    return layer


def _pairs(words: Words, layer: Layer, found: dict[str, int], *allowed: str) -> None:
    """`{ K: 64, C 3 }` into `found`: the colon and the commas may be left away."""
    words.take("{")
    while not words.skip("}"):
        name = words.take(*allowed)
        if name in found:
            raise InputError(f"{words.where(back=1)}: {name} is given twice; give it once.")
        words.skip(":")
        found[name] = words.number(layer.dimensions)
        words.skip(",")


def _dataflow(words: Words, layer: Layer) -> None:
    if layer.groups:
        raise InputError(f"{words.where(back=1)}: {layer.name} has two Dataflows; a layer has one.")
    layer.groups.append([])
    words.take("{")
    while not words.skip("}"):
        kind, line = words.take(*MOVES, "Cluster"), words.words[words.place - 1].line
        words.take("(")
        size = words.number(layer.dimensions)
        words.take(",")
        if kind == "Cluster":
            words.take("P")
            words.take(")")
            layer.widths.append(size)
            layer.groups.append([])
        else:
            offset = words.number(layer.dimensions)
            words.take(")")
            layer.groups[-1].append(Directive(words.take(), size, offset, MOVES[kind], line))
        words.take(";")


def load_machine(path: str | Path) -> dict[str, int]:
    """The fields of a hardware file, `NAME: NUMBER` a line; `NumPEs` and `NoC_BW` [word/cycle] must be there.

    **Raises:** `InputError` naming file, line and field.
    """
    found: dict[str, int] = {}
    for line, text in enumerate(_text(path).splitlines(), 1):
        name, sign, value = (piece.strip() for piece in text.partition("//")[0].partition(":"))
        if not name and not sign:
            continue
        if name not in MACHINE:
            hint = did_you_mean(name, MACHINE)
            raise InputError(f"{path}: line {line}: '{name}' is no field; there are {', '.join(MACHINE)}.{hint}")
        if name in found:
            raise InputError(f"{path}: line {line}: {name} is given twice; give it once.")
        found[name] = _integer(value, 0 if name == "NoC_NumHops" else 1, f"{path}: line {line}: {name}")
    for name in ("NumPEs", "NoC_BW"):
        if name not in found:
            raise InputError(f"{path}: {name} is missing; write '{name}: 256'.")
    return found
