"""The one exception class for a user's mistake, the nearest-name hint that goes with it, and a warning."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable

from hwspecs.edits import edits

LEAST_START = 2  # letters and digits; one begins too many names
LEAST_PART = 4  # the same of a part of a name
LONG = re.compile(r"(\S{60})\S{240,}?([^\w\s]{0,3})(?!\S)")  # longer than the path of any file that people have
LETTERS_A_SLIP = 3  # a name with more slips of the pen than one in so many letters is another name


def shortened(text: str) -> str:
    """`text` with words of 300 letters and more, such as numbers of so many digits, cut to their first 60."""
    return LONG.sub(r"\1...\2", text)


class InputError(ValueError):
    """Something the user gave is wrong; the message is one plain sentence that says what, where and what is allowed.

    The command line prints the message without a traceback and exits with code 2. A number or name of hundreds of
    letters that it quotes is shortened.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(message))


class InconsistentPeaks(UserWarning):
    """A user's device states peaks that do not follow from its cores and clock, without a note of why."""


def nearest(name: str, candidates: Iterable[str], count: int = 3, cutoff: float = 0.0) -> list[str]:
    """The `count` candidates that `name` may be meant for, best first, each spelling once; often none.

    Only letters and digits count. First come those that go on where `name` ends ("V100"), the shortest first. Then, as
    difflib's ratio has them alike: those that hold all its words, that begin as it does, or hold it or are held by it
    whole, and those that a slip of the pen in every third letter makes of it; of these none that is less alike than
    `cutoff` (0 to 1).
    """
    given, words = letters(name), _words(name)
    found: dict[str, tuple[bool, float, int, str]] = {}
    for candidate in candidates:
        key = letters(candidate)
        if len(given) >= LEAST_START and key.startswith(given):
            found.setdefault(key, (False, len(key), 0, candidate))
        elif given and key and (_part(given, key, words <= _words(candidate)) or _slip(given, key)):
            ratio = difflib.SequenceMatcher(None, candidate.casefold(), name.casefold()).ratio()
            if ratio >= cutoff:
                found.setdefault(key, (True, -ratio, edits(given, key), candidate))
    return [candidate for *_, candidate in sorted(found.values(), key=lambda each: each[:3])[:count]]


def _part(given: str, key: str, all_words: bool) -> bool:
    """Whether two names share enough: a beginning, the one whole, or all words of the one given."""
    short, long = sorted((given, key), key=len)
    begins = len(os.path.commonprefix((given, key))) >= max(LEAST_PART, len(long) / LETTERS_A_SLIP)
    return begins or (len(short) >= LEAST_PART and short in long) or (all_words and len(given) >= LEAST_START)


def _slip(given: str, key: str) -> bool:
    """Whether a name is another with a slip in every third letter, or a short one with one after a right first letter
    (of two letters one too many or too few) or in the order."""
    longest = max(len(given), len(key))
    begins = given[0] == key[0] and (longest > 2 or len(given) != len(key))
    allowed = max(longest // LETTERS_A_SLIP, int(begins or sorted(given) == sorted(key)))
    return abs(len(key) - len(given)) <= allowed and edits(given, key) <= allowed


def letters(text: str) -> str:
    """A name without case and punctuation."""
    return "".join(each for each in text.casefold() if each.isalnum())


def _words(text: str) -> set[str]:
    return set("".join(each if each.isalnum() else " " for each in text.casefold()).split())


def did_you_mean(name: object, candidates: Iterable[str]) -> str:
    """A sentence fragment such as ` Did you mean h100-sxm or h100-nvl?`, or an empty string, as of what is no text."""
    found = nearest(name, candidates) if isinstance(name, str) else []
    return f" Did you mean {' or '.join(found)}?" if found else ""
