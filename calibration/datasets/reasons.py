"""What was wrong with a row, where its prediction would have been."""

from __future__ import annotations

import numpy as np

from calibration.datasets.schema import Read
from calibration.datasets.text import Text


def with_problems(reason: Text, read: Read, unread: str) -> Text:
    """The reasons of all rows, of those that could not be read, `unread`, with what was wrong; alike problems stay
    untold."""
    wrong: dict[int, str] = {}
    for problem in read.problems:
        if problem.excluded and problem.count == 1:
            told = f"column '{problem.column}': {problem.message.rstrip('.')}"
            wrong[problem.row] = f"{wrong[problem.row]}; {told}" if problem.row in wrong else f"{unread}: {told}"
    if not wrong:
        return reason
    codes = reason.codes.astype(np.int64)
    codes[list(wrong)] = len(reason.values) + np.arange(len(wrong))
    return Text(np.concatenate([reason.values, np.array(list(wrong.values()), object)]), codes)
