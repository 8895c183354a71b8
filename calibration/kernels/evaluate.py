"""The whole evaluation of the kernel level, by one command: the shipped fit once more, with all that it holds out.

"unseen generation" leaves out every row of one, "unseen device" those of one device whose relatives stay; "200 rows"
and "10 % of rows" adapt the fit without a generation to so much of one of its devices; "unseen shapes" leaves out one
shape of ten. Beside ours stand the plain roofline and a constant, `calibration.kernels.held_out.constants`.

Folds are smaller fits than the shipped one; `whole` fits them with all of its steps and rows, to see what that hides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from calibration.datasets.schema import KernelTable, Read
from calibration.kernels.calibrate import calibrate_family, gather, not_gpus, of_a_fold
from calibration.kernels.fit import DEFAULT, Settings
from calibration.kernels.inputs import Prepared, prepare
from calibration.kernels.transfer import transfer, unseen_devices

ErrorRows = list[dict[str, Any]]


def evaluate(
    reads: Sequence[Read],
    families: Sequence[str] = (),
    settings: Settings = DEFAULT,
    progress: Callable[[str], None] = lambda _: None,
    apart: Callable[[Mapping[str, KernelTable]], Iterator[ErrorRows]] | None = None,
    whole: bool = False,
) -> Iterator[ErrorRows]:
    """Error rows (`held_out.error_rows`) of every split, one family after the other as they are finished;
    none without a usable row.

    **Arguments:** `families`: only these, if any; `apart`: evaluates the families of these tables elsewhere;
    `whole`: see `evaluate_family`.
    """
    found = gather(reads, not_gpus(reads))
    tables = {name: each for name, each in found.items() if not families or {name, each.family} & set(families)}
    if apart:
        yield from apart(tables)
        return
    for table in tables.values():
        data = prepare(table)
        data = data.take(np.flatnonzero(data.usable))
        if len(data.table):
            yield evaluate_family(data, settings, progress, whole)


def evaluate_family(
    data: Prepared, settings: Settings, progress: Callable[[str], None], whole: bool = False
) -> ErrorRows:
    """Error rows of one family: those that its parameters would carry, and those of every device held out.

    `whole`: only those of generations held out, every one by a fit with all of `settings`.
    """
    if whole:
        return transfer(data, settings, progress).rows
    return calibrate_family(data, settings, progress).card_rows + unseen_devices(data, of_a_fold(settings), progress)
