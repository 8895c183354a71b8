"""What a table leaves open or has words of its own for, as the parameters of its family know it.

A matrix product is one whether its row says so or not. But names of cells and stacks hold the word (Vidur's "qkv_proj",
the "gemm" of our own measurements), so that a row with a word that nobody measured, or without one, would be of a stack
never measured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from calibration.datasets.families import FAMILY_OF
from calibration.datasets.groups import Groups, grouped
from calibration.datasets.names import activations_of
from calibration.datasets.runnable import runs_on
from calibration.datasets.schema import KernelTable
from calibration.datasets.stated_formats import UNKNOWN_CACHE
from calibration.datasets.text import Text, as_text
from calibration.kernels.family import FittedFamily
from calibration.kernels.levels import spell_each
from calibration.kernels.relatives import generation_of, nearest_relatives
from calibration.kernels.releases import between, stand_in

TELLING = ("elementwise", "norm", "quantize")  # families of several operations, where the word tells the kernel
ASSUMED = "bf16"  # where no number format is stated, as `calibration.kernels.formats` counts its bytes
SOFTWARE = ("framework", "version", "kernel")  # columns that name it
LEVELS = ("cell", "stack", "format")  # that a word is looked up in, the most specific first


def with_known_operations(table: KernelTable, groups: Groups, fitted: FittedFamily) -> KernelTable:
    """The table [R] with each row's operation named as what was measured: by its own word where a cell has it, else by
    none, else, where its own says no more than the family, by the only word there is; then the same of stacks and of
    formats. A row of which none of these is known stays as it is."""
    few = table.take(groups.first)
    if table.family in TELLING or np.isin(_names(few, None, "cell"), fitted.known("cell")).all():
        return table
    own = np.asarray(few.text.get("op", np.full(len(few), "", object)))
    silent = np.array([word == "" or FAMILY_OF.get(word.lower()) == table.family for word in own])
    words = sorted({name.split("/", 2)[2] for name in fitted.known("format")} - {""})
    chosen, left = own.copy(), np.ones(len(few), bool)
    for level in LEVELS:
        known = fitted.known(level)
        left &= ~np.isin(_names(few, None, level), known)
        without = left & np.isin(_names(few, "", level), known)
        chosen[without], left = "", left & ~without
        there = {word: left & silent & np.isin(_names(few, word, level), known) for word in words}
        only = sum(there.values(), start=np.zeros(len(few), int)) == 1
        for word, at in there.items():
            chosen[at & only] = word
        left &= ~only
    return dataclasses.replace(table, text={**table.text, "op": Text(chosen, groups.which)})


def with_known_kernels(
    table: KernelTable, groups: Groups, fitted: FittedFamily, directories: Sequence[str | Path] = ()
) -> tuple[KernelTable, np.ndarray]:
    """The table [R] with a kernel for the rows that name a release and no kernel of it: the only one that was measured
    of that release in their format, and which groups have one so [G].

    It is looked for on their own device, then on the nearest of its generation, for which engines choose the same
    kernels, then on any. Of a release that was measured nowhere it is the only one of the nearest
    (`calibration.kernels.relatives`). A row of a release with several stays as it is.
    """
    few = table.take(groups.first)
    own = np.asarray(few.kernel).astype(object)
    silent = (own == "") & np.asarray(few.framework != "") & np.asarray(few.version != "")
    if not silent.any():
        return table, np.zeros(len(few), bool)
    spelled, known = spell_each(few), {level: fitted.known(level) for level in ("cell", "stack")}
    relatives = nearest_relatives(set(few.device[silent].tolist()), fitted.known("device"), directories, generation_of)
    for place in np.flatnonzero(silent).tolist():
        version, form = few.version[place], f"/{spelled['format'][place]}"
        device, framework = few.device[place], few.framework[place]
        starts = [("cell", f"{each}/{framework}/") for each in (device, *relatives[device])]
        starts.append(("stack", f"{framework}/"))
        releases = [between(known[level], start, form) for level, start in starts]
        kernels = next(filter(None, (between(each, f"{version}/", "") for each in releases)), None)
        if kernels is None:
            others = (stand_in(version, "", few.family, each) for each in releases)
            own[place], silent[place] = next(filter(None, others), ("", ""))[1], False
        else:
            own[place] = kernels.pop() if len(kernels) == 1 else ""
    return dataclasses.replace(table, kernel=Text(own, groups.which)), silent & (own != "")


def with_runnable_kernels(
    table: KernelTable, groups: Groups, fitted: FittedFamily, architecture: Mapping[str, str]
) -> tuple[KernelTable, np.ndarray]:
    """The table [R] without the names of software where it cannot run on the row's device, so that the row is answered
    by what kernels have in common; and which groups are so [G]. What was measured on a device runs there.

    **Arguments:** `architecture`: `DeviceSpec.architecture` of each device of the table by its name.
    """
    few = table.take(groups.first)
    named = zip(few.framework, few.kernel, few.device, strict=True)
    runs = [runs_on(table.family, framework, kernel, architecture[device]) for framework, kernel, device in named]
    foreign = ~np.array(runs, bool)
    if foreign.any():
        foreign &= ~np.isin(_names(few, None, "cell"), fitted.known("cell"))
    if not foreign.any():
        return table, foreign
    # Of mixed steps the framework says how they are counted (`calibration.kernels.inputs`).
    bared = SOFTWARE[1:] if table.family == "attention_mixed" else SOFTWARE
    columns = {name: np.asarray(getattr(few, name)).astype(object) for name in bared}
    bare = {name: Text(np.where(foreign, "", column), groups.which) for name, column in columns.items()}
    return dataclasses.replace(table, **bare), foreign


def with_assumed_format(table: KernelTable, groups: Groups, fitted: FittedFamily) -> KernelTable:
    """The table [R] with formats as the measured rows spell them: some state none, which is taken for the assumed one.

    A row is read as it stands, or else in the other of these two spellings, by the first of cell, stack and format that
    was measured in either; one that states no format and of which none was measured, in the assumed one.
    """
    few = table.take(groups.first)
    dtype, cache = (np.asarray(column).astype(object) for column in (few.dtype, few.cache))
    silent, left = dtype == "", np.isin(dtype.astype(str), ("", ASSUMED))
    if not left.any():
        return table
    # Where kernels of the family have a format of the cache, no format is none of the cache either.
    silent_cache = ASSUMED if any(name.split("/", 2)[1] for name in fitted.known("format")) else ""
    replaced = np.where(silent, "", ASSUMED), np.where(silent, silent_cache, "")
    other = dataclasses.replace(
        few,
        dtype=np.where(silent, ASSUMED, "").astype(object),
        cache=np.where(cache == replaced[0], replaced[1], cache).astype(object),
    )
    names, changed = (spell_each(few), spell_each(other)), silent.copy()
    for level in LEVELS:
        known = fitted.known(level) if level == "cell" else fitted.names.known[level]
        own, others = (np.isin(each[level].astype(str), known) for each in names)
        changed = np.where(left & (own | others), ~own, changed)
        left &= ~(own | others)
    chosen = {name: np.where(changed, getattr(other, name), getattr(few, name)) for name in ("dtype", "cache")}
    return dataclasses.replace(table, **{name: Text(each, groups.which) for name, each in chosen.items()})


def with_assumed_cache(table: KernelTable) -> KernelTable:
    """The table [R] with the format of the activations for a cache of whose stated format nobody knows."""
    cache = as_text(table.cache)
    if UNKNOWN_CACHE not in cache.values.tolist():
        return table
    pairs = grouped([cache, as_text(table.dtype)])
    named = zip(table.cache[pairs.first], table.dtype[pairs.first], strict=True)
    assumed = [activations_of(dtype) if name == UNKNOWN_CACHE else name for name, dtype in named]
    return dataclasses.replace(table, cache=Text(np.array(assumed, object), pairs.which))


def _names(few: KernelTable, word: str | None, level: str) -> np.ndarray:
    """Names at a level of rows whose operation is `word`, or their own where that is None [R]."""
    if word is not None:
        few = dataclasses.replace(few, text={**few.text, "op": np.full(len(few), word, object)})
    return spell_each(few)[level].astype(str)
