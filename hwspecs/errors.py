"""The one exception class for a user's mistake, the nearest-name hint that goes with it, and a warning."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LEAST_START = 3  # letters and digits; fewer begin too many names


class InputError(ValueError):
    """Something the user gave is wrong; the message is one plain sentence that says what, where and what is allowed.

    The command line prints the message without a traceback and exits with code 2.
    """


class InconsistentPeaks(UserWarning):
    """A user's device states peaks that do not follow from its cores and clock, without a note of why."""


def nearest(name: str, candidates: Iterable[str], count: int = 3, cutoff: float = 0.4) -> list[str]:
    """The `count` candidates closest in spelling to `name`, those first that go on where it ends ("V100"), best first;
    an empty list when none is as alike as `cutoff` (0 to 1)."""
    by_key = {candidate.casefold(): candidate for candidate in candidates}
    given, start = name.casefold(), _letters(name)
    longer = [key for key in by_key if len(start) >= LEAST_START and _letters(key).startswith(start)]
    alike = difflib.get_close_matches(given, list(by_key), n=count, cutoff=cutoff)
    longer.sort(key=lambda key: (not key.startswith(given), len(key)))
    keys = dict.fromkeys([*longer, *alike])
    return [by_key[key] for key in list(keys)[:count]]


def _letters(text: str) -> str:
    return "".join(each for each in text.casefold() if each.isalnum())


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A sentence fragment such as ` Did you mean h100-sxm or h100-nvl?`, or an empty string."""
    found = nearest(name, candidates)
    return f" Did you mean {' or '.join(found)}?" if found else ""
