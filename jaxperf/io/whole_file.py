"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from hwspecs.errors import InputError


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file beside `path` to write, which takes its place at the end; nothing half-written stays behind.

    **Raises:** `InputError` where the file system refuses.
    """
    temporary = path.with_name(f".tmp-{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"Cannot write '{path}': {error.strerror or error}.") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(text: str, path: Path) -> None:
    """A text file in UTF-8. Raises `InputError` as `whole_file` does."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
