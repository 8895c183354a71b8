"""Chakra execution traces of MLCommons: read as `Trace`, binary or JSON, gzipped or not; small ones written.

One file holds what one rank did; its rank is the number before the ending (`NAME.3.et`), as ASTRA-sim asks for.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from hwspecs.errors import InputError
from jaxperf.io.chakra.json_form import decode_json
from jaxperf.io.chakra.messages import decode, encode
from jaxperf.io.chakra.operations import check_ranks, group_name, message_of, trace_of
from jaxperf.io.json_text import parse_json
from jaxperf.training.replay.trace import Trace

ENDINGS = (".et", ".et.gz", ".json", ".json.gz")
_RANK = re.compile(r"[._-](\d+)\.(?:et|json)(?:\.gz)?$", re.IGNORECASE)
_GZIP = b"\x1f\x8b"


def read_traces(paths: Sequence[str | Path]) -> tuple[Trace, ...]:
    """The traces of files and folders, in the order of their ranks.

    **Raises:** `InputError` as `read_chakra` does, for an empty folder, and where two files are of one rank.
    """
    files = [file for path in paths for file in _files(Path(path))]
    if not files:
        raise InputError("No trace is given.")
    numbers = [_rank(file) for file in files]
    if len(files) > 1 and None in numbers:
        bad = files[numbers.index(None)]
        raise InputError(f"{bad}: the rank is not told; of several traces each is named NAME.RANK.et.")
    traces = sorted((read_chakra(file) for file in files), key=lambda trace: trace.rank)
    for one, other in zip(traces, traces[1:], strict=False):
        if one.rank == other.rank:
            raise InputError(f"{one.source} and {other.source} are both of rank {one.rank}.")
    return tuple(traces)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.name.lower().endswith(ENDINGS) and _rank(file) is not None)
    if not found:
        raise InputError(f"{path} holds no trace: none of its files is named NAME.RANK.et.")
    return found


def _rank(path: Path) -> int | None:
    found = _RANK.search(path.name)
    return int(found.group(1)) if found else None


def read_chakra(path: str | Path) -> Trace:
    """The trace in one file; its rank is 0 where the name does not tell it.

    **Raises:** `InputError` naming file, byte or line, and node for a file that cannot be read or is damaged, an
    attribute that means nothing, and what `Trace` refuses.
    """
    path = Path(path)
    try:
        body = path.read_bytes()
        body = gzip.decompress(body) if body.startswith(_GZIP) else body
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if path.name.lower().endswith((".json", ".json.gz")):
        try:
            messages = decode_json(body.decode("utf-8"), str(path))
        except UnicodeDecodeError as error:
            raise InputError(f"{path}, byte {error.start}: it is not UTF-8 text.") from None
    else:
        messages = decode(body, str(path))
    return trace_of(messages, _rank(path) or 0, str(path))


def read_groups(path: str | Path) -> dict[str, tuple[int, ...]]:
    """The communicator groups of an ASTRA-sim file: {"1": [0, 1, 2, 3]}.

    **Raises:** `InputError` naming file and group for anything else.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not valid JSON: {error}.") from None
    found = parse_json(text, str(path))
    if not isinstance(found, Mapping):
        raise InputError(f"{path} must map the name of each group to a list of its ranks.")
    for name, ranks in found.items():
        check_ranks(ranks, f"{path}: group '{name}'")
    return {group_name(name): tuple(ranks) for name, ranks in found.items()}


def write_chakra(trace: Trace, path: str | Path) -> None:
    """The trace as a binary Chakra file; times are rounded to microseconds, and groups are not written.

    **Raises:** `InputError` where the file system refuses.
    """
    try:
        Path(path).write_bytes(encode(message_of(each) for each in trace.operations))
    except OSError as error:
        raise InputError(f"Cannot write '{path}': {error.strerror or error}.") from None
