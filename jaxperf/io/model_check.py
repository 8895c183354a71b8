"""What is understood, guessed and refused of every model config below a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.huggingface import LARGEST_FILE, folder_name, parse_config, read_config, read_text
from jaxperf.models.config import ModelConfig, show

UNDERSTOOD, GUESSED, REFUSED = "understood", "guessed", "refused"

HEAD = 2**16  # bytes read of a file that is not called config.json, to see whether it is a config at all


@dataclass(frozen=True)
class Checked:
    """One file: `path` relative to the folder; the model, or the reason why it was refused."""

    path: str
    model: ModelConfig | None
    reason: str

    @property
    def status(self) -> str:
        """ "understood", "guessed" when there are assumptions, or "refused"."""
        if self.model is None:
            return REFUSED
        return GUESSED if self.model.assumptions else UNDERSTOOD


def check_folder(folder: str | Path, report: Callable[[int, int], None] | None = None) -> list[Checked]:
    """Read every `config.json` below `folder`, and every other JSON file that looks like a model's config.

    Links are followed, each folder once. What cannot be read is an item with a reason; nothing is downloaded.

    **Arguments:** `report`: called with the files done and all files.
    **Returns:** one item a file, in the order of their paths.
    Raises `InputError` when `folder` is not a folder that can be read, or holds no config at all.
    """
    root, shown = Path(folder), show(str(folder))
    if not str(folder).strip():
        raise InputError("The folder to check is blank; --check takes a folder with config.json files below it.")
    try:
        os.listdir(root)
    except NotADirectoryError:
        raise InputError(f"{shown} is a file; --check takes a folder with config.json files below it.") from None
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise InputError(f"The folder {shown} cannot be read: {said}.") from None
    candidates = sorted(_candidates(root))
    checked: list[Checked] = []
    for done, (path, problem) in enumerate(candidates, 1):
        item = Checked(path, None, problem) if problem else _check(root, path)
        checked += [item] if item is not None else []
        if report is not None:
            report(done, len(candidates))
    if not checked:
        raise InputError(
            f"The folder {shown} holds no model config; looked for config.json and other JSON files of models."
        )
    return checked


def _candidates(root: Path) -> Iterator[tuple[str, str]]:
    """Relative paths of JSON files below `root`, with the reason where a folder cannot be listed."""
    seen: set[tuple[int, int]] = set()
    _is_new(str(root), seen)
    problems: list[OSError] = []
    for folder, names, files in os.walk(root, followlinks=True, onerror=problems.append):
        names[:] = sorted(name for name in names if _is_new(os.path.join(folder, name), seen))
        for name in files:
            if name.lower().endswith(".json"):
                yield os.path.relpath(os.path.join(folder, name), root), ""
    for problem in problems:
        where = os.path.relpath(str(problem.filename), root)
        yield where, f"the folder cannot be read: {problem.strerror or problem}."


def _is_new(folder: str, seen: set[tuple[int, int]]) -> bool:
    """Whether a folder was not visited yet under any name; one that cannot be looked at is left to `os.walk`."""
    try:
        found = os.stat(folder)
    except OSError:
        return True
    if (key := (found.st_dev, found.st_ino)) in seen:
        return False
    seen.add(key)
    return True


def _check(root: Path, relative: str) -> Checked | None:
    """The file understood or refused; `None` for JSON that is the config of something else."""
    path = root / relative
    certain = path.name == "config.json"
    if not certain and not _may_be_config(path):
        return None
    try:
        if not path.is_file():
            raise InputError("is not a regular file.")
        data = parse_config(read_text(path), str(path))
        if not certain and not _looks_like_config(data):
            return None
        return Checked(relative, read_config(data, folder_name(path) if certain else path.stem), "")
    except InputError as error:
        return Checked(relative, None, _without_place(str(error), str(path)))
    except Exception as error:  # a mistake of ours must not cost the user the other files
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        return Checked(relative, None, f"jaxperf failed to read it ({said}); please report it with the file.")


def _without_place(message: str, path: str) -> str:
    """The sentence without the path in front, which the row shows already."""
    for place in ("config", path):
        message = message.removeprefix(f"{place}: ").removeprefix(f"{place} ")
    return message


def _may_be_config(path: Path) -> bool:
    """Whether the start of a regular file names a model class; large tables of weights and tokens are not parsed."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_FILE:
            return False
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError:
        return False
    return b'"model_type"' in head or b'"architectures"' in head


def _looks_like_config(data: Mapping[str, Any]) -> bool:
    """A named class and at least one size; tokenizers and processors may name a class but have no layers."""
    named = isinstance(data.get("architectures"), list) or isinstance(data.get("model_type"), str)
    sizes = ("hidden_size", "n_embd", "d_model", "dim", "num_hidden_layers", "n_layer", "num_layers")
    return named and (any(size in data for size in sizes) or isinstance(data.get("text_config"), Mapping))
