"""The one exception class for a user's mistake, and the nearest-name hint that goes with it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something the user gave is wrong; the message is one plain sentence that says what, where and what is allowed.

    The command line prints the message without a traceback and exits with code 2.
    """


def nearest(name: str, candidates: Iterable[str], count: int = 3, cutoff: float = 0.4) -> list[str]:
    """The `count` candidates closest in spelling to `name`, best first; an empty list when none is as alike as `cutoff`
    (0 to 1)."""
    by_key = {candidate.casefold(): candidate for candidate in candidates}
    return [by_key[key] for key in difflib.get_close_matches(name.casefold(), list(by_key), n=count, cutoff=cutoff)]


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A sentence fragment such as ` Did you mean h100-sxm or h100-nvl?`, or an empty string."""
    found = nearest(name, candidates)
    return f" Did you mean {' or '.join(found)}?" if found else ""
