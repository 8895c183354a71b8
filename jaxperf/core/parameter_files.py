"""Files of fitted parameters, which lie beside each other: arrays P.safetensors, their card P.json, P.sustained.json.

A card states the schema and the checksum of the arrays; nothing is ever unpickled, and what does not fit together is
told with what to do about it.
"""

from __future__ import annotations

import hashlib
import json
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwspecs.errors import InputError

if TYPE_CHECKING:
    import numpy as np

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


def paths(path: str | Path) -> tuple[Path, Path]:
    """The arrays' and the card's path, by either or by what they have in common."""
    return file_of(path, ".safetensors"), file_of(path, ".json")


def load_arrays(
    path: str | Path | None, shipped: str, schema: int, remedy: str, part: str = ""
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and card at PATH (.safetensors and .json beside each other), or the shipped ones of a name.

    `part`: of the card, which tells parameters of this kind from others that state how they were made.
    **Raises:** `InputError` for files that are missing, damaged, of another kind or schema; `remedy` says what to do.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    given = _given(path, shipped)  # the file that was named is the first to be missed
    tensors_path, card_path = paths(given)
    try:
        read = {file: file.read_bytes() for file in sorted((tensors_path, card_path), key=lambda file: file != given)}
    except OSError as error:
        missing = "" if str(given) == error.filename else f"'{error.filename}': "
        raise InputError(f"Cannot read parameters '{given}': {missing}{error.strerror}; {remedy}.") from None
    body, text = read[tensors_path], read[card_path]
    try:
        card = json.loads(text)
        if part and part not in card and "command" in card:
            made = f"'{card_path}' are of another kind, made by '{card['command']}' and without '{part}'"
            raise InputError(f"Parameters {made}; name others, or {remedy}.")
        _check(card, body, (card_path, tensors_path), schema, remedy)
        return load(body), card
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise damaged(path, shipped, error, remedy) from None


def damaged(path: str | Path | None, shipped: str, error: Exception, remedy: str) -> InputError:
    """What to raise where a card and its arrays can be read, but not understood."""
    return InputError(f"Parameters '{paths(_given(path, shipped))[1]}' are damaged ({error}); {remedy}.")


def _given(path: str | Path | None, shipped: str) -> Path:
    return Path(path) if path is not None else Path(str(resources.files("calibration") / "fitted" / shipped))


def _check(card: Any, body: bytes, places: tuple[Path, Path], schema: int, remedy: str) -> None:
    card_path, tensors_path = places
    found = card.get("schema")
    if found != schema:
        newer = isinstance(found, int) and found > schema
        told = "a newer jaxperf reads them" if newer else remedy
        raise InputError(f"Parameters '{card_path}' have schema {found}; this version reads schema {schema}: {told}.")
    if hashlib.sha256(body).hexdigest() != card["sha256"]:
        raise InputError(
            f"Parameters '{tensors_path}' do not have the checksum that '{card_path}' gives: "
            f"a byte was changed, or the two files do not belong together; {remedy}."
        )
