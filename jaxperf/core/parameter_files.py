"""Names of the files of fitted parameters, which lie beside each other: P.safetensors, P.json, P.sustained.json."""

from __future__ import annotations

from pathlib import Path

ENDINGS = (".safetensors", ".json")


def base_of(path: str | Path) -> str:
    """What the names of the files have in common, by it or by the arrays or the card, in whatever case they end."""
    text = str(path)
    ending = next((each for each in ENDINGS if text.lower().endswith(each)), "")
    return text[: len(text) - len(ending)]


def file_of(path: str | Path, ending: str) -> Path:
    """The file of that ending, in small letters: `path` where it is this one, else the one beside it, which may end in
    capitals."""
    if str(path).lower().endswith(ending):
        return Path(path)
    small, capital = (Path(base_of(path) + each) for each in (ending, ending.upper()))
    return capital if capital.exists() and not small.exists() else small
