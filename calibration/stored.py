"""Fitted numbers on disk: named arrays (safetensors) and a card (JSON) beside them, with a schema and a checksum.

Both files are written whole or not at all, nothing is ever unpickled, and what does not fit together is told with what
to do about it.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from hwspecs.errors import InputError
from jaxperf.core.parameter_files import file_of


def save_arrays(path: str | Path, arrays: Mapping[str, np.ndarray], card: Mapping[str, Any], schema: int) -> None:
    """Write PATH.safetensors and PATH.json. Raises `InputError` where that fails."""
    from safetensors.numpy import save

    body = save({name: np.asarray(value, order="C") for name, value in arrays.items()})  # it reads no other order
    written = {**card, "schema": schema, "sha256": hashlib.sha256(body).hexdigest()}
    tensors_path, card_path = paths(path)
    try:
        write_whole(tensors_path, body)
        write_whole(card_path, (json.dumps(written, indent=1, sort_keys=True) + "\n").encode())
    except OSError as error:
        raise InputError(f"Cannot write '{path}': {error.strerror or error}.") from None


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


def paths(path: str | Path) -> tuple[Path, Path]:
    """The arrays' and the card's path, by either or by what they have in common."""
    return file_of(path, ".safetensors"), file_of(path, ".json")


def write_whole(path: Path, body: bytes) -> None:
    """Through a temporary file beside it, so that a full disk or Ctrl-C leaves the old one. Raises `OSError`."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # as any other new file; mkstemp keeps it to its owner
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


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
