"""The sweep file: a YAML description of a sweep, checked field by field."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.expressions import expand
from jaxperf.io.yaml_text import UniqueKeys
from jaxperf.models.config import show

# What a field of the sweep file holds, in words; every other field is a text.
_WANTED = {
    "axes": "a mapping of at least one parameter to its values, such as batch: powers(1, 512)",
    "metrics": "a list of at least one metric, such as [tpot, memory]",
    "keep": "all, top(COUNT, METRIC) or pareto(METRIC, METRIC, ...)",
}
_SELECTION = re.compile(r"^\s*(top|pareto)\s*\((.*)\)\s*$")


class Keep(BaseModel):
    """Which rows are written: all, the `count` best of one metric, or the Pareto front of several."""

    model_config = ConfigDict(frozen=True)

    kind: str
    metrics: tuple[str, ...] = ()
    count: int = 0


class SweepFile(BaseModel):
    """`axes`: parameter -> values, in order, the last varying fastest; a mapping of parameters is a zip axis."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    task: str = "decode"
    axes: dict[str, Any] = Field(min_length=1)
    metrics: tuple[str, ...] | None = Field(None, min_length=1)
    keep: str = "all"
    launch: str = "graph"
    devices_directory: str | None = None


def read_sweep_file(path: str | Path) -> SweepFile:
    """The checked contents of a sweep file, number lists expanded.

    **Raises:** `InputError` naming file and field for a missing file, malformed YAML or a wrong value.
    """
    path = Path(path)
    try:
        raw = _Loader(path.read_text(encoding="utf-8")).get_single_data()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"Cannot read the sweep file '{path}': {reason}.") from None
    except yaml.reader.ReaderError as error:
        raise InputError(f"{path}: not valid YAML: character {error.position + 1} is not text.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(f"{path}: not valid YAML{at}: {error.problem or error.context}.") from None
    except RecursionError:
        raise InputError(f"{path}: lists or mappings are nested too deeply.") from None
    except ValueError as error:  # a number of thousands of digits, a thirteenth month
        raise InputError(f"{path}: holds a number or date that cannot be read: {error}.") from None
    if not isinstance(raw, dict):
        raise InputError(f"{path}: a sweep file is a mapping with the keys {', '.join(SweepFile.model_fields)}.")
    try:
        found = SweepFile.model_validate(raw)
    except ValidationError as error:
        raise InputError(" ".join(_sentence(path, problem) for problem in error.errors())) from None
    metrics = found.metrics or ()
    twice = next((name for name in metrics if metrics.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path}: 'metrics' has {show(twice)} twice; name it once.")
    return found.model_copy(update={"axes": {key: _values(path, key, value) for key, value in found.axes.items()}})


class _Loader(UniqueKeys):
    """`1e6` is a number as YAML 1.2 has it, and not text as in 1.1."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+\Z"), "-+.0123456789"
)


def _values(path: Path, key: str, value: Any, inside: bool = False) -> Any:
    """Values of one axis, calls expanded; a mapping of parameters is a zip axis and holds no further mapping."""
    where = f"{path}: axes.{key}"
    if isinstance(value, dict) and not inside:
        return {str(name): _values(path, f"{key}.{name}", each, inside=True) for name, each in value.items()}
    if value is None or isinstance(value, bool | dict):
        raise InputError(
            f"{where} is {show(value)}; give a number, a name, a list of them, or a call like powers(1, 512) "
            "(in quotes inside braces)."
        )
    return expand(where, value)


def _sentence(path: Path, problem: Any) -> str:
    """One pydantic problem in plain words."""
    field = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        allowed = list(SweepFile.model_fields)
        return f"{path}: unknown key '{field}'; allowed: {', '.join(allowed)}.{did_you_mean(field, allowed)}"
    if problem["type"] == "missing":
        return f"{path}: the key '{field}' is missing."
    wanted = _WANTED.get(str(problem["loc"][0]), "a text")
    return f"{path}: '{field}' is {show(problem['input'])}; it must be {wanted}."


def parse_keep(text: str) -> Keep:
    """`all`, `top(100, tokens_per_second)` or `pareto(tpot, tokens_per_second)`.

    **Raises:** `InputError` for anything else.
    """
    allowed = "allowed: all, top(COUNT, METRIC), pareto(METRIC, METRIC, ...)"
    if text.strip() == "all":
        return Keep(kind="all")
    match = _SELECTION.match(text)
    if match is None:
        raise InputError(f"Cannot read keep '{text}'; {allowed}.")
    kind, inside = match.groups()
    parts = [part.strip() for part in inside.split(",")]
    if kind == "pareto":
        if len(parts) < 2 or not all(parts):
            raise InputError(f"keep '{text}' needs at least two metrics; {allowed}.")
        return Keep(kind="pareto", metrics=tuple(parts))
    if len(parts) != 2 or not re.fullmatch("[0-9]{1,12}", parts[0]) or int(parts[0]) < 1:
        raise InputError(f"keep '{text}' needs a count of at least one and a metric; {allowed}.")
    return Keep(kind="top", metrics=(parts[1],), count=int(parts[0]))
