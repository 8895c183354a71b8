"""A Python function by its name: `MODULE:FUNCTION` or `FILE.py:FUNCTION`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from hwspecs.errors import InputError, did_you_mean


def load_function(reference: str) -> Callable[..., Any]:
    """The function that `MODULE:FUNCTION` names; modules are also looked for in the folder one works in.

    **Raises:** `InputError` naming the module or file and the function, and the cause.
    """
    found = load_object(reference)
    if not callable(found):
        raise InputError(f"'{reference}' is {type(found).__name__}, not a function.")
    return found


def load_object(reference: str) -> Any:
    """Whatever `MODULE:NAME` names. Raises `InputError` as `load_function` does."""
    where, sign, name = reference.rpartition(":")
    if not sign or not where or not name:
        raise InputError(f"'{reference}' does not name a function; write MODULE:FUNCTION or FILE.py:FUNCTION.")
    found: Any = _module(where, reference)
    for part in name.split("."):
        if not hasattr(found, part):
            known = [word for word in dir(found) if not word.startswith("_") and callable(getattr(found, word))]
            raise InputError(f"'{where}' has no '{part}'.{did_you_mean(part, known)}")
        found = getattr(found, part)
    return found


def _module(where: str, reference: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return _from_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except InputError:
        raise
    except ModuleNotFoundError as error:
        raise InputError(f"'{reference}': no module named '{error.name}'.") from None
    except (Exception, SystemExit) as error:  # whatever the user's module raises
        raise InputError(f"'{where}' cannot be imported: {type(error).__name__}: {error}.") from None


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"'{path}' does not exist.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"'{path}' is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses and pickles look their module up
    spec.loader.exec_module(module)
    return module
