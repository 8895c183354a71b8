"""Predict every row of a table of collectives: time, interval, closed form, algorithm, and where the number is from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from calibration.collectives.as_known import as_known
from calibration.collectives.facts import load_facts
from calibration.collectives.launch import launch_of
from calibration.collectives.laws import KINDS, OPS, RUNNERS, LawTime
from calibration.collectives.learn import as_run, kernel_time
from calibration.collectives.names import kernel_word, measured_frameworks, measured_topologies, part_of_name
from calibration.collectives.one_node import in_one_node, spanning
from calibration.collectives.parameters import (
    ADAPTED,
    DEVICE,
    LAW,
    MEASURED,
    TIERS,
    TRANSFER,
    CollectiveParameters,
)
from calibration.collectives.points import DISPATCH, NO_OPERATION, PROBLEMS, Points, in_fp8, points_of
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Column, Text, as_text, repeated
from hwspecs.errors import did_you_mean

MICRO = 1e6
NUMBERS = ("predicted_us", "lower_us", "upper_us", "roofline_us")
TEXTS = ("algorithm", "limiter", "tier", "reason")
ADDED = (*NUMBERS, *TEXTS)  # columns, in their order
LIMITERS = ("latency", "link", "network", "launch", "")
UNREAD = "the row is no collective or could not be read"
REMARKS = {
    MEASURED: "",
    ADAPTED: "adapted to a few rows",
    DEVICE: "this setting or version was not measured on the device",
    TRANSFER: "transfer: nothing of this device and topology was measured for this operation",
    LAW: "law only: nothing alike was measured",
}
UNEVEN = "num_gpus is no multiple of gpus_per_node: the last node is taken for a full one"
LARGE = "gpus_per_node is more than a node of the device has: taken to be joined by its links all the same"
FOREIGN = "no kernel of this name was measured: taken for an all-reduce of a serving engine's own"
IN_ONE_NODE = "as long as in one of its nodes: the law of several alone is faster than what was measured there"
OF_A_RANK = "bytes are those of one rank, as oneCCL's benchmark counts an all-gather"
NO_FORMAT = "no known number format (dtype): 16 bits assumed"
NO_FORMAT_OF_DISPATCH = "no known number format (dtype): fp8 with scales assumed, as DeepEP dispatches"
STAND_IN = "NCCL's constants of Ampere stand in"
Columns = dict[str, np.ndarray | Text]


def predict_collectives(
    table: KernelTable | None, rows: int, parameters: CollectiveParameters, directories: Sequence[str | Path] = ()
) -> Columns:
    """The columns of all rows of a file, in its order: `NUMBERS` [us] and `TEXTS`.

    `roofline_us`: the alpha-beta form with the datasheet's rates; `algorithm`: what the law chose; `tier`: one of
    `TIERS`, "" without a prediction; `reason`: why there is none, or what to know of it.
    """
    numbers = {name: np.full(rows, np.nan) for name in NUMBERS}
    texts = {name: repeated(UNREAD if name == "reason" else "", rows) for name in TEXTS}
    if table is not None and len(table):
        cells = parameters.learned.curves.known["cell setting by size"]
        no_format = np.asarray(table.dtype == "")
        table, points, filled = _as_known(table, cells, directories)
        own_numbers, own_texts = predict_points(points, parameters)
        devices, at = np.unique(points.device.astype(str), return_inverse=True)
        node_size = load_facts(devices.tolist(), directories).node_size[at]
        stated = table.shape["gpus_per_node"]
        larger = stated > node_size[points.group]
        node = np.where(stated > 0.0, stated, node_size[points.group])
        slower = _no_faster_than_one_node(table, points, node, own_numbers, own_texts, parameters, directories)
        fp8 = _in_fp8(table, points)
        remarks = (
            (_uneven(table), UNEVEN),
            (larger, LARGE),
            (slower, IN_ONE_NODE),
            (_foreign(points, parameters), FOREIGN),
            (no_format & ~fp8, NO_FORMAT),
            (no_format & fp8, NO_FORMAT_OF_DISPATCH),
            (points.numbers["size"] > table.shape["bytes"], OF_A_RANK),
        )
        everything = np.full(len(table), True)
        for told, remark in (*_by_word(filled, everything, str), *remarks, *_unheard_names(table, points, cells)):
            own_texts["reason"] = _with_remark(own_texts["reason"], told & (points.problem == 0), remark)
        for told, remark in _unknown_operations(table, points):
            own_texts["reason"] = _with_remark(own_texts["reason"], told, remark)
        for name in NUMBERS:
            numbers[name][table.row] = own_numbers[name]
        texts = {name: _placed(texts[name], table.row, own_texts[name]) for name in TEXTS}
    return {**numbers, **texts}


def _no_faster_than_one_node(
    table: KernelTable,
    points: Points,
    node: np.ndarray,
    numbers: dict[str, np.ndarray],
    texts: dict[str, Text],
    parameters: CollectiveParameters,
    directories: Sequence[str | Path],
) -> np.ndarray:
    """Which rows [R] the law of several `node`s alone has faster than one of these is known to be; these, moved there
    in `numbers`."""
    tier = np.asarray(texts["tier"]).astype(str)
    rows = spanning(points, node)
    rows = rows[np.isin(tier[rows], (LAW, TRANSFER))]
    slower = np.full(len(points), False)
    if len(rows):
        one = in_one_node(table, points, rows, node)
        inside, told = predict_points(points_of(one, directories), parameters)
        known = np.isin(np.asarray(told["tier"]).astype(str), (MEASURED, ADAPTED, DEVICE))
        factor = np.where(known, inside["predicted_us"] / numbers["predicted_us"][rows], 1.0)
        slower[rows] = factor > 1.0
        for name in NUMBERS[:3]:
            numbers[name][rows] *= np.maximum(factor, 1.0)
    return slower


def _as_known(
    table: KernelTable, cells: Sequence[str], directories: Sequence[str | Path]
) -> tuple[KernelTable, Points, Text]:
    """The table with what its rows leave open, its points, and what to say of that [R]."""
    points = points_of(table, directories)
    found, said = as_known(table, points, cells)
    return found, points if found is table else points_of(found, directories), said


def _uneven(table: KernelTable) -> np.ndarray:
    """Whether the ranks of each row do not fill its nodes [R]."""
    ranks, stated = table.shape["num_gpus"], table.shape["gpus_per_node"]
    several = (stated > 0.0) & (stated < ranks)
    return several & (ranks % np.where(several, stated, 1.0) != 0.0)


def _in_fp8(table: KernelTable, points: Points) -> np.ndarray:
    """Whether the kernel of each row dispatches in fp8 where no format is stated [R]."""
    kernel = as_text(table.kernel)
    by_kernel = np.array([in_fp8(DISPATCH, str(name)) for name in kernel.values], bool)[kernel.codes]
    return by_kernel & (points.numbers["op"] == OPS.index(DISPATCH))


def _foreign(points: Points, parameters: CollectiveParameters) -> np.ndarray:
    """Whether each row's kernel counts as an engine's although nothing of that name was learned of [R]."""
    known = {kernel_word(name) for name in parameters.learned.curves.known["cell by size"]}
    unheard = np.array([kernel_word(name) not in known for name in points.names["cell"]], bool)[points.group]
    return unheard & (points.numbers["runner"] == RUNNERS.index("engine"))


def _unheard_names(table: KernelTable, points: Points, cells: Sequence[str]) -> Iterator[tuple[np.ndarray, str]]:
    """Which rows state a framework, or a topology of a device, that nobody measured, with the nearest that was."""
    frameworks = measured_frameworks(cells)

    def unheard(word: str) -> str:
        said = f"framework '{word}' was not measured{_nearest(word, frameworks)}"
        return "" if part_of_name(word) in frameworks else said

    yield from _by_word(table.framework, np.full(len(table), True), unheard)
    for device, topologies in measured_topologies(cells).items():
        measured = f"(measured: {', '.join(sorted(filter(None, topologies)))})"

        def remark(word: str, known: set[str] = topologies, measured: str = measured) -> str:
            return "" if part_of_name(word) in known else f"topology '{word}' was not measured on the device {measured}"

        of_device = (points.device == device)[points.group]
        yield from _by_word(table.text.get("topology", repeated("", len(table))), of_device, remark)


def _unknown_operations(table: KernelTable, points: Points) -> Iterator[tuple[np.ndarray, str]]:
    """Which rows name no operation of the law, with the nearest that there is."""
    unknown = points.problem == PROBLEMS.index(NO_OPERATION)
    ops = table.text.get("op", repeated("", len(table)))
    yield from _by_word(ops, unknown, lambda word: f"it is '{word}'{_nearest(word, OPS)}")


def _by_word(column: Column, rows: np.ndarray, remark: Callable[[str], str]) -> Iterator[tuple[np.ndarray, str]]:
    """What `remark` says of every word that a column has in some of its rows [R], "" for nothing, with its rows."""
    text = as_text(column)
    for code in np.unique(text.codes[rows]).tolist():
        word = str(text.values[code])
        if word and (said := remark(word)):
            yield rows & (text.codes == code), said


def _nearest(word: str, known: Collection[str]) -> str:
    """The nearest name as the end of a remark, "" for none near."""
    return did_you_mean(word, sorted(known)).replace(" Did", ": did")


def _with_remark(text: Text, rows: np.ndarray, remark: str) -> Text:
    """The same text, of some rows [R] with a remark behind it."""
    used, place = np.unique(text.codes[rows], return_inverse=True)
    more = [f"{value}; {remark}" if value else remark for value in text.values[used].tolist()]
    codes = text.codes.astype(np.int64)
    codes[rows] = len(text.values) + place
    return Text(np.concatenate([text.values, _strings(*more)]), codes)


def predict_points(points: Points, parameters: CollectiveParameters) -> tuple[dict[str, np.ndarray], dict[str, Text]]:
    """`NUMBERS` [us] and `TEXTS` of points [R]."""
    points = as_run(parameters.learned, points)
    law = points.law
    tiers = tiers_of(points, parameters)
    kinds = points.names["kind"]
    ends = [parameters.ends(TIERS[tier], kind) for tier, kind in zip(tiers, kinds, strict=True)]
    kernel, launch = kernel_time(parameters.learned, points), launch_of(parameters.learned.launches, points)
    time = np.maximum(kernel, launch) * MICRO
    below, above = np.exp(np.array(ends).reshape(-1, 2))[points.group].T
    numbers = dict(zip(NUMBERS, (time, time / below, time * above, law.alpha_beta * MICRO), strict=True))
    usable = points.problem == 0
    numbers = {name: np.where(usable, values, np.nan) for name, values in numbers.items()}
    none = len(KINDS)
    texts = {
        "algorithm": Text(_strings(*KINDS, ""), np.where(usable, law.kind.astype(int), none)),
        "limiter": Text(
            _strings(*LIMITERS), np.where(usable, _limiter(points, law, launch > kernel), len(LIMITERS) - 1)
        ),
        "tier": Text(_strings(*TIERS, ""), np.where(usable, tiers[points.group], len(TIERS))),
        "reason": _reasons(points, tiers),
    }
    return numbers, texts


def tiers_of(points: Points, parameters: CollectiveParameters) -> np.ndarray:
    """Place in `TIERS` of each group [G]."""
    tier = np.where(_known(points, parameters, "kind"), TIERS.index(TRANSFER), TIERS.index(LAW))
    tier = np.where(_known(points, parameters, "device"), TIERS.index(DEVICE), tier)
    tier = np.where(_known(points, parameters, "cell setting"), TIERS.index(MEASURED), tier)
    return np.where(np.isin(points.names["cell"], parameters.adapted), TIERS.index(ADAPTED), tier)


def _known(points: Points, parameters: CollectiveParameters, level: str) -> np.ndarray:
    """Which groups have a name at a level that was learned of [G]."""
    return np.isin(points.names[level], parameters.learned.curves.known[f"{level} by size"])


def _limiter(points: Points, law: LawTime, launched: np.ndarray) -> np.ndarray:
    """Place in `LIMITERS`: the launch where that is longer, latency where most of the time is spent without a byte."""
    carried = np.where(points.numbers["nodes"] > 1.0, LIMITERS.index("network"), LIMITERS.index("link"))
    found = np.where(law.empty > 0.5 * law.time, LIMITERS.index("latency"), carried)
    return np.where(launched, LIMITERS.index("launch"), found)


def _reasons(points: Points, tiers: np.ndarray) -> Text:
    """What is wrong with a row, or what to know of its prediction [R]."""
    remarks = [
        "; ".join(filter(None, (REMARKS[TIERS[tier]], STAND_IN if stand_in else "")))
        for tier, stand_in in zip(tiers, points.stand_in, strict=True)
    ]
    values = _strings(*remarks, *PROBLEMS)
    return Text(values, np.where(points.problem > 0, len(remarks) + points.problem, points.group))


def _strings(*values: str) -> np.ndarray:
    return np.array(values, dtype=object)


def _placed(into: Text, rows: np.ndarray, found: Text) -> Text:
    codes = into.codes.astype(np.int64)
    codes[rows] = found.codes.astype(np.int64) + len(into.values)
    return Text(np.concatenate([into.values, found.values]), codes)
