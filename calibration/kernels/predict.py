"""Predict every row of a table: time, interval, plain roofline, what limits it, and where the number comes from."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import hwspecs
from calibration.datasets.groups import Groups, group
from calibration.datasets.reasons import with_problems
from calibration.datasets.schema import FAMILIES, KernelTable, Read
from calibration.datasets.stated_formats import UNKNOWN_CACHE
from calibration.datasets.text import Text, as_text, repeated
from calibration.intervals import UNKNOWN
from calibration.kernels.answers import (
    ADAPTED,
    LIMITERS,
    MEASURED,
    ROOFLINE,
    TIERS,
    TRANSFER,
    Answer,
    Trust,
    answers,
)
from calibration.kernels.as_known import (
    with_assumed_cache,
    with_assumed_format,
    with_known_kernels,
    with_known_operations,
    with_runnable_kernels,
)
from calibration.kernels.demand import POINTS
from calibration.kernels.family import FittedFamily
from calibration.kernels.inputs import prepare
from calibration.kernels.levels import DEVICE_LEVELS, spell_each
from calibration.kernels.local import moved, predicted
from calibration.kernels.parameters import Parameters
from calibration.kernels.regimes import INSTEAD, regimes
from calibration.kernels.relatives import stand_ins
from calibration.kernels.releases import with_known_releases
from calibration.kernels.remarks import (
    CHANGED,
    DEVICE,
    FAR,
    FOREIGN,
    FORMAT,
    FRAMEWORK,
    HERE,
    KERNEL,
    NO_CACHE,
    NO_FORMAT,
    OVERFLOWING,
    RELATIVE,
    RELEASE,
    REMARKED,
    STACK,
    UNUSABLE,
    told,
)
from hwspecs.changed import changed_facts

NUMBERS = ("predicted", "lower", "upper", "roofline")
ADDED = (*(f"{name}_us" for name in NUMBERS), "limiter", "tier", "reason")  # columns, in their order
UNREAD = "the row could not be read"
NO_MODEL = "no model of {} in this format on this device"
TOO_LARGE = "its sizes are too large: the counts of its operations or bytes are beyond 3e38"
EMPTY = "{} is 0: there is nothing to compute"
ELSEWHERE = "collectives are no kernels of one device: jaxperf collectives predicts them"
AS_ANOTHER = "{} never measured: predicted as {}"
UNKNOWN_DEVICE = "the device is unknown or has no specification"
OF_SOFTWARE = (
    STACK | FRAMEWORK | HERE | KERNEL | RELEASE | RELATIVE
)  # remarks that one more of its software takes the place of
Columns = dict[str, np.ndarray | Text]


@dataclass(frozen=True)
class Predicted:
    """`columns` for all rows of the file, in its order, and `summary`: what a reader should know, one line each."""

    columns: Columns
    summary: list[str]


def predict(read: Read, parameters: Parameters, directories: Sequence[str] = ()) -> Predicted:
    """Predict all rows of a table that was read.

    **Returns:** columns `predicted_us`, `lower_us`, `upper_us` (90 % interval), `roofline_us` [us], and as `Text`
    `limiter`, `tier` ("measured", "adapted", "transfer", "roofline", or "" without a prediction) and `reason`, all
    [rows of the file].
    """
    parts = [(table.row, _columns(table, parameters, directories)) for table in read.tables]
    found = _whole(read.rows, parts, UNREAD)
    found["reason"] = with_problems(as_text(found["reason"]), read, UNREAD)
    return Predicted(found, _summary(read, found))


def predict_table(table: KernelTable, parameters: Parameters, directories: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """The columns of one table, [rows of the table]; those of text are arrays of Python strings."""
    return {name: np.asarray(column) for name, column in _columns(table, parameters, directories).items()}


def _columns(table: KernelTable, parameters: Parameters, directories: Sequence[str]) -> Columns:
    """Rows without a device have no prediction; the others are predicted together."""
    known = np.flatnonzero(table.device != "")
    if not len(known):
        return _nothing(len(table), UNKNOWN_DEVICE)
    part = table if len(known) == len(table) else table.take(known)
    parts = []
    for name, rows in regimes(part):
        alike = part if len(rows) == len(part) else part.take(rows)
        parts.append((known[rows], _of_devices(alike, name, parameters, directories)))
    return _whole(len(table), parts, UNKNOWN_DEVICE)


def _of_devices(table: KernelTable, name: str, parameters: Parameters, directories: Sequence[str]) -> Columns:
    """Of rows that the model `name` predicts."""
    if table.family not in POINTS:
        return _nothing(len(table), ELSEWHERE)
    fitted, groups, before = parameters.families.get(name), group(table), ""
    silent = np.asarray(table.dtype == "")[groups.first]
    if fitted is not None:
        other_cache = np.asarray(table.cache == UNKNOWN_CACHE)[groups.first]
        table = with_assumed_format(with_assumed_cache(table), groups, fitted)
        table = with_known_releases(table, groups, fitted)
        table, alone = with_known_kernels(table, groups, fitted, directories)
        table, foreign = with_runnable_kernels(table, groups, fitted, _architectures(table, groups, directories))
        table = with_known_operations(table, groups, fitted)
        adapted = parameters.card.get("adapted", {}).get(name, ())
        asked = table.take(groups.first)
        trust = _trust(fitted, asked, adapted, directories)
        assumed = other_cache | silent & np.asarray(asked.dtype != "")  # some measured rows state no format either
        if assumed.any():
            trust = _where(~assumed, trust, _distrust(fitted, asked, directories))
        remarks = _of_foreign(np.asarray(trust.remarks) | KERNEL * alone, foreign)
        trust = dataclasses.replace(trust, remarks=remarks | NO_FORMAT * silent | NO_CACHE * other_cache)
    elif INSTEAD.get(name) in parameters.families:
        fitted = dataclasses.replace(parameters.families[INSTEAD[name]], local={})
        table, foreign = with_runnable_kernels(table, groups, fitted, _architectures(table, groups, directories))
        trust = _distrust(fitted, table.take(groups.first), directories)
        remarks = _of_foreign(np.asarray(trust.remarks), foreign) | NO_FORMAT * silent
        trust = dataclasses.replace(trust, remarks=remarks)
        before = AS_ANOTHER.format(name, INSTEAD[name])
    else:
        before = f"no fitted parameters of {name}"
        trust = _no_trust(len(groups))
    found = answers(table, groups, fitted, trust, directories)
    if fitted is not None and fitted.local:
        _adapt(found, fitted, table, groups, directories)
    texts = {
        "limiter": Text(_strings(*LIMITERS), np.asarray(found.limiter)),
        "tier": Text(_strings(*TIERS), np.asarray(found.tier)),
        "reason": _reasons(found, table, before),
    }
    return {f"{name}_us": np.asarray(getattr(found, name), np.float64) for name in NUMBERS} | texts


def _architectures(table: KernelTable, groups: Groups, directories: Sequence[str]) -> dict[str, str]:
    """The architecture of each device of a table."""
    names = set(table.device[groups.first])
    return {name: hwspecs.load(name, directories).architecture for name in names}


def _of_foreign(remarks: np.ndarray, foreign: np.ndarray) -> np.ndarray:
    """The remarks of groups, of those whose software does not run on their device that in place of what else is told of
    it [G]."""
    return np.where(foreign, remarks & ~OF_SOFTWARE | FOREIGN, remarks)


def _no_trust(groups: int) -> Trust:
    unknown = np.full(groups, UNKNOWN[1])
    return Trust({}, unknown, unknown, np.full(groups, ROOFLINE), np.zeros(groups, int))


def _trust(fitted: FittedFamily, table: KernelTable, adapted: Sequence[str], directories: Sequence[str]) -> Trust:
    """In the groups that the rows of `table` stand for."""
    known, spelled = fitted.names.known, spell_each(table)
    changed = _changed(table, directories) & ~np.isin(spelled["device"].astype(str), list(fitted.local))
    nobody = {level: np.where(changed, "", spelled[level]) for level in DEVICE_LEVELS}
    own = fitted.names.index({**spelled, **nobody})
    unseen = {level: at >= len(known[level]) for level, at in own.items()}
    inside = np.zeros(len(table))
    width = fitted.spread.half_width(spelled, ~unseen["cell"], inside)
    transfer = fitted.spread.half_width(spelled, np.zeros(len(table), bool), inside)
    tier = np.where(unseen["cell"], TRANSFER, MEASURED)
    tier[np.isin(spelled["cell"].astype(str), list(adapted))] = ADAPTED
    instead = stand_ins(table, fitted, directories)
    near = (instead.release | instead.relative) & ~changed
    for device, local in fitted.local.items():
        rows = moved(fitted, spelled, device)
        near &= ~rows  # what these were adapted to are residuals of their own names
        tier[rows] = ADAPTED
        for level, at in unseen.items():
            at[rows] &= ~np.isin(spelled[level][rows].astype(str), local.names.known[level])
    learned = fitted.names.index(instead.names)
    levels = {level: np.where(near, learned[level], at) for level, at in own.items()}
    unseen["stack"] &= ~near
    remarks = STACK * unseen["stack"] + FRAMEWORK * unseen["framework"] + FORMAT * unseen["format"]
    remarks += DEVICE * (unseen["device"] & ~changed) + CHANGED * changed
    remarks += HERE * (unseen["cell"] & ~unseen["stack"] & ~unseen["device"] & ~near)
    remarks += RELEASE * (near & instead.release) + RELATIVE * (near & instead.relative)
    return Trust(levels, width, transfer, tier, remarks)


def _changed(table: KernelTable, directories: Sequence[str]) -> np.ndarray:
    """Whether the device of each row is a user's in place of the shipped one of its name [R]."""
    device = np.asarray(table.device).astype(str)
    names = np.unique(device).tolist() if directories else ()
    return np.isin(device, [name for name in names if changed_facts(hwspecs.load(name, directories))])


def _distrust(fitted: FittedFamily, table: KernelTable, directories: Sequence[str]) -> Trust:
    """Of rows that a model or a format stands in for: what is known of their software holds, but none was measured."""
    trust = _trust(fitted, table, (), directories)
    return dataclasses.replace(trust, width=trust.transfer, tier=np.full(len(table), TRANSFER))


def _where(known: np.ndarray, trust: Trust, distrust: Trust) -> Trust:
    """`trust` of the groups that are `known`, of the others the width and the tier of `distrust`."""
    width = np.where(known, trust.width, distrust.width)
    return dataclasses.replace(trust, width=width, tier=np.where(known, trust.tier, distrust.tier))


def _adapt(found: Answer, fitted: FittedFamily, table: KernelTable, groups: Groups, directories: Sequence[str]) -> None:
    """Put the answers of rows that a family was adapted to in the place of what it says without."""
    spelled = spell_each(table.take(groups.first))
    for device, local in fitted.local.items():
        rows = np.flatnonzero(moved(fitted, spelled, device)[groups.which])
        if not len(rows):
            continue
        mean, deviation, remote = predicted(local, fitted, prepare(table.take(rows), directories))
        time, stretch = found.predicted[rows] * np.exp(mean), np.exp(local.width[1] * deviation)
        found.predicted[rows], found.lower[rows], found.upper[rows] = time, time / stretch, time * stretch
        far = FAR * (remote & np.isfinite(time))
        found.remarks[rows] = (found.remarks[rows] & ~REMARKED(FAR)) | far.astype(REMARKED)


def _reasons(found: Answer, table: KernelTable, before: str) -> Text:
    """What is told of each row: `before` and its remarks, or why it has no prediction [R]."""
    others = {UNUSABLE: NO_MODEL.format(table.family), OVERFLOWING: TOO_LARGE} | _name_empty(found, table)
    codes = np.asarray(found.remarks)
    present = np.flatnonzero(np.bincount(codes))
    texts = [others.get(code) or "; ".join(filter(None, (before, told(code)))) for code in present.tolist()]
    place = np.zeros(present[-1] + 1, np.int64)
    place[present] = np.arange(len(present))
    return Text(_strings(*texts), place[codes])


def _name_empty(found: Answer, table: KernelTable) -> dict[int, str]:
    """Put codes after the last one in place of `UNUSABLE` where a size is 0, and return what each stands for."""
    sizes = [column.name for column in FAMILIES[table.family] if column.least > 0.0 and column.name in table.shape]
    for code, name in enumerate(sizes, OVERFLOWING + 1):
        found.remarks[(found.remarks == UNUSABLE) & (table.shape[name] == 0.0)] = code
    return {code: EMPTY.format(name) for code, name in enumerate(sizes, OVERFLOWING + 1)}


# --- columns of all rows of a file ------------------------------------------------------------------------------------


def _strings(*values: str) -> np.ndarray:
    return np.array(values, dtype=object)


def _nothing(rows: int, reason: str) -> Columns:
    """The columns of rows without a prediction."""
    numbers: Columns = {f"{name}_us": np.full(rows, np.nan) for name in NUMBERS}
    return numbers | {"limiter": repeated("", rows), "tier": repeated("", rows), "reason": repeated(reason, rows)}


def _whole(rows: int, parts: Sequence[tuple[np.ndarray, Columns]], reason: str) -> Columns:
    """The columns of all rows from those of some of them; the others have no prediction, for this reason."""
    if len(parts) == 1 and np.array_equal(parts[0][0], np.arange(rows)):
        return parts[0][1]
    found = _nothing(rows, reason)
    for at, part in parts:
        found = {name: _put(column, at, part[name]) for name, column in found.items()}
    return found


def _put(into: np.ndarray | Text, rows: np.ndarray, found: np.ndarray | Text) -> np.ndarray | Text:
    if isinstance(into, Text):
        found, codes = as_text(found), into.codes.astype(np.int64)
        codes[rows] = found.codes.astype(np.int64) + len(into.values)
        return Text(np.concatenate([into.values, found.values]), codes)
    whole = into.copy()
    whole[rows] = found
    return whole


def _summary(read: Read, found: Columns) -> list[str]:
    lines = []
    for table in read.tables:
        tiers = sorted(as_text(found["tier"][table.row]).counts().items())
        told = ", ".join(f"{count:,} {tier or 'without a prediction'}" for tier, count in tiers)
        lines.append(f"{table.family}: {told}")
    reasons = Counter({reason: count for reason, count in as_text(found["reason"]).counts().items() if reason})
    return lines + [f"{count:,} rows: {reason}" for reason, count in reasons.most_common(10)]
