"""How few slips of the pen turn one word into another."""

from __future__ import annotations


def edits(one: str, other: str) -> int:
    """The fewest letters left out, added, replaced, or swapped with the next that turn `one` into `other`.

    The optimal string alignment distance (Damerau 1964, Levenshtein 1966): no letter is edited twice.
    """
    above: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one):
        earlier, above, row = above, row, [i + 1]
        for j, match in enumerate(other):
            least = min(above[j + 1] + 1, row[j] + 1, above[j] + (letter != match))
            if i and j and letter == other[j - 1] and one[i - 1] == match:
                least = min(least, earlier[j - 1] + 1)
            row.append(least)
    return row[-1]
