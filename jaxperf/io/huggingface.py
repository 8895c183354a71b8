"""Read a Hugging Face `config.json`, offline, into a `ModelConfig`; the models that ship with the project by name.

Which function reads a config is decided in `jaxperf.io.architectures`; the functions are in `jaxperf.io.families`, the
spellings of fields in `jaxperf.io.config_fields`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.architectures import choose_family
from jaxperf.io.config_fields import Fields
from jaxperf.io.json_text import parse_unique
from jaxperf.io.quantized_names import QUANTIZED_NAME, usual_storage
from jaxperf.models.config import (
    ModelConfig,
    check_text,
    show,
)
from jaxperf.models.split_formats import CALLED, split_blocks

Source = str | os.PathLike[str] | Mapping[str, Any]

# How names of further trainings of the same shapes end: -Instruct, -it, -Thinking-2507, -Instruct-0905.
TRAINED_NAME = re.compile(r"(?:-(?:instruct|it|chat|base|thinking|hf|\d{4}))+$")

LARGEST_FILE = 16 * 2**20  # bytes; a config is a few kilobytes, so anything above is another kind of file


def _describe(data: Mapping[str, Any], where: str, name: str | None) -> ModelConfig:
    """Map the fields of one config; every `InputError` is prefixed with `where`."""
    try:
        family, architecture, part, notes = choose_family(data)
        config = family(Fields(part, check_text("name", name or architecture), architecture, notes))
        notes.extend(_split_notes(config))
        own = data.get("_jaxperf")
        if isinstance(own, Mapping):  # only the shipped files have it: where the numbers come from, what was assumed
            notes.extend(Fields(own, "", "", []).listing("assumptions", str) or [])
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return dataclasses.replace(config, assumptions=tuple(dict.fromkeys(notes)))


def _split_notes(config: ModelConfig) -> list[str]:
    """Which blocks a checkpoint stores in several formats, in a sentence."""
    found = split_blocks(config)
    blocks = ", ".join(f"{CALLED[block]} of {count} layers" for block, count in found.items())
    read = "each block was read as the last of them (o_proj, down_proj) is stored"
    return [f"quantization_config lists some products of a block alone ({blocks}); {read}."] if found else []


def parse_config(text: str, where: str) -> Mapping[str, Any]:
    """The fields in a text; every `InputError` begins with `where`."""
    if not text.strip():
        raise InputError(f"{where} is empty; it must hold a JSON object.")
    data = parse_unique(text, where)
    if not isinstance(data, dict):
        raise InputError(f"{where} holds {show(data)}; it must hold a JSON object with the fields of a model.")
    return data


def read_text(path: Path) -> str:
    """The text of a file of at most `LARGEST_FILE` bytes. Raises `InputError` naming it."""
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise InputError(f"{path} has {size} bytes; at most {LARGEST_FILE} are read of such a file.")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file in UTF-8; save it as one.") from None


def _config_path(source: str | os.PathLike[str]) -> Path:
    """The file itself, or `config.json` in a directory."""
    spelled = os.fspath(source) if isinstance(source, os.PathLike) else source
    if not isinstance(spelled, str) or not spelled.strip() or not os.path.exists(spelled):
        raise InputError(f"No file or directory {show(spelled)}; give a config.json or a directory that holds one.")
    path = Path(spelled)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise InputError(f"The directory {path} has no config.json; give a directory that holds one, or the file.")
        return path / "config.json"
    if not path.is_file():
        raise InputError(f"{path} is not a regular file; give a config.json or a directory that holds one.")
    return path


def folder_name(path: Path) -> str:
    """What a config.json is called: its folder, or the repository where that is a folder of the Hugging Face cache."""
    folder = Path(os.path.abspath(path)).parent  # not resolved: the cache links every file to a folder "blobs"
    for parent in (folder, *folder.parents):
        if parent.name.startswith("models--"):
            return parent.name.rpartition("--")[2] or parent.name
    return folder.name or "config"


def read_config(source: Source, name: str | None = None) -> ModelConfig:
    """Read one model description; nothing is downloaded.

    **Arguments:** `source`: a config file, a directory with a `config.json`, or the fields themselves; `name`: shown
    in reports, by default the directory (for `config.json`) or the file without its suffix.
    **Returns:** the description, with everything guessed or ignored in `assumptions`.
    Raises `InputError` with one sentence naming the file, the field and what is allowed.
    """
    if isinstance(source, Mapping):
        return _describe(source, "config", name)
    path = _config_path(source)
    default = folder_name(path) if path.name == "config.json" else path.stem
    return _describe(parse_config(read_text(path), str(path)), str(path), name or default)


# --- the shipped models -----------------------------------------------------------------------------------------------


def _shipped() -> Traversable:
    return resources.files("jaxperf.models") / "configs"


def _sort_key(name: str) -> tuple[Any, ...]:
    """Names in reading order: the digits of sizes compare as numbers, so 7b comes before 13b."""
    parts = re.findall(r"\d+(?:\.\d+)?|\D+", name)
    return tuple((1, float(part)) if part[0].isdigit() else (0, part) for part in parts)


def model_names() -> tuple[str, ...]:
    """The names of the shipped models, without aliases, in reading order."""
    names = (entry.name for entry in _shipped().iterdir())
    return tuple(sorted((name.removesuffix(".json") for name in names if name.endswith(".json")), key=_sort_key))


def model_aliases() -> dict[str, str]:
    """Every alias as written, with the shipped name it stands for."""
    table = tomllib.loads((_shipped() / "aliases.toml").read_text(encoding="utf-8"))
    return {alias: name for name, aliases in table.items() for alias in aliases}


def _key(name: str) -> str:
    return name.strip().casefold().replace("_", "-").replace(" ", "-")


@functools.cache  # a table asks for a model in each of its rows
def _known_keys() -> Mapping[str, str]:
    """The shipped model that each key stands for: of names, of aliases, and of what follows an alias's slash."""
    aliases = model_aliases()
    known = {_key(alias.rpartition("/")[2]): shipped for alias, shipped in aliases.items()}
    known |= {_key(alias): shipped for alias, shipped in aliases.items()}
    known |= {_key(shipped): shipped for shipped in model_names()}
    return MappingProxyType(known)


def any_punctuation(name: str) -> str | None:
    """The shipped model that a name stands for whatever its case, punctuation and owner ("meta-llama/"); None where it
    is none or, without punctuation, several ("gpt313b")."""
    spellings = (name, name.rpartition("/")[2])
    return next((found for each in spellings if (found := _known_keys().get(_key(each)))), None) or next(
        (found for each in spellings if (found := _known_letters().get(_letters(each)))), None
    )


@functools.cache
def _known_letters() -> Mapping[str, str]:
    """The only shipped model of each key without punctuation."""
    found: dict[str, set[str]] = {}
    for key, shipped in _known_keys().items():
        found.setdefault(_letters(key), set()).add(shipped)
    return MappingProxyType({letters: names.pop() for letters, names in found.items() if len(names) == 1})


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def _shipped_name(name: str) -> tuple[str | None, str, str]:
    """(the shipped model that a name stands for or None, the endings left out for it: of a quantized checkpoint and of
    a further training).

    A name is tried as it is, without the one and without both, each with its owner and without: a checkpoint may be
    someone else's (nvidia/Llama-3.1-8B-Instruct-FP8).
    """
    known, key = _known_keys(), _key(name)
    plain = QUANTIZED_NAME.sub("", key)
    for each in (key, plain, TRAINED_NAME.sub("", plain)):
        for spelled in (each, each.rpartition("/")[2]):
            if spelled in known:
                return known[spelled], key[len(plain) :] if each != key else "", plain[len(each) :]
    return None, "", ""


def holds_config(spelled: str | os.PathLike[str]) -> bool:
    """Whether a text is the path of a file, or of a directory with a `config.json`."""
    return os.path.isfile(spelled) or os.path.isfile(os.path.join(spelled, "config.json"))


def load_model(name_or_path: str | os.PathLike[str]) -> ModelConfig:
    """Describe a model from a path, a shipped name or an alias of one, in that order; nothing is downloaded.

    A directory without a `config.json` does not hide a shipped model of the same name. An alias is recorded in
    `assumptions`, and so is the ending of a quantized checkpoint, whose shapes are those of the model. Raises
    `InputError` naming the nearest known names, or what `read_config` raises.
    """
    if not isinstance(name_or_path, str | bytes | os.PathLike):
        raise InputError(
            f"The model is {show(name_or_path)}; give a config.json, a directory that holds one, or one of the "
            f"{len(model_names())} shipped names."
        )
    spelled = os.fspath(name_or_path)
    shipped, ending, training = _shipped_name(spelled) if isinstance(spelled, str) else (None, "", "")
    if shipped is None or holds_config(spelled):
        if isinstance(spelled, str) and spelled.strip() and not os.path.exists(spelled):
            names = (*model_names(), *model_aliases())
            raise InputError(
                f"No model or path {show(spelled)}; give a config.json, a directory that holds one, "
                f"or one of the {len(model_names())} shipped names." + did_you_mean(spelled, names)
            )
        return read_config(spelled)
    where = f"shipped {shipped}.json"
    text = (_shipped() / f"{shipped}.json").read_text(encoding="utf-8")
    data, usual = parse_config(text, where), usual_storage(ending)
    config = _describe(data, where, shipped)
    if usual is not None and usual[0] != config.weight_format:
        config = _describe({**data, "quantization_config": usual[1]}, where, shipped)
    if _key(spelled) == _key(shipped):
        return config
    has = f"whose shapes {training} is taken to have" if training else "which has the same shapes"
    note = f"{spelled} was read as the shipped {shipped}, {has}; the context limit is {shipped}'s."
    if ending and usual is None:
        note += f" How {ending} stores its weights is not known here: they are in {config.weight_format} unless given."
    elif ending:
        note += f" By {ending} its weights are taken to be in {config.weight_format} unless given."
    return dataclasses.replace(config, assumptions=(note, *config.assumptions))
