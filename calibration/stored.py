"""Fitted numbers written to disk: named arrays (safetensors) and a card (JSON) with their schema and checksum.

Both files are written whole or not at all. What reads them is `jaxperf.core.parameter_files`.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hwspecs.errors import InputError
from jaxperf.core.parameter_files import paths


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
