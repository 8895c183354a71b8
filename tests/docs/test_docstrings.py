"""What the docstrings of public functions say: units of what they return, and that they raise."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import jaxperf

ROOT = Path(jaxperf.__file__).parent
FOLDERS = ("core", "kernels", "network", "sweeps", "serving")
NUMBER = re.compile(r"Scalar|Float\[")
UNIT = re.compile(r"\[[^\]]*[A-Za-z1$][^\]]*\]|`[A-Z]\w+` of scalars|seconds|bytes")
ANY_UNIT = {"least_loaded"}  # of what it is given


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """All that have a public name, methods too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node


def raises(node: ast.FunctionDef) -> bool:
    return any(
        isinstance(each, ast.Raise) and each.exc and "InputError" in ast.unparse(each.exc) for each in ast.walk(node)
    )


def faults(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    module = ast.get_docstring(tree) or ""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            if not ast.get_docstring(node):
                yield f"{path}: {node.name} has no docstring"
    for node in functions(tree):
        if (said := ast.get_docstring(node)) is None:
            continue  # a method that a base documents
        if raises(node) and "InputError" not in said:
            yield f"{path}: {node.name} raises InputError"
        returned = ast.unparse(node.returns) if node.returns else ""
        if NUMBER.search(returned) and not UNIT.search(said + module) and node.name not in ANY_UNIT:
            yield f"{path}: {node.name} returns numbers without a unit"


@pytest.mark.parametrize("folder", FOLDERS)
def test_public_functions_state_units_and_errors(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths and [fault for path in paths for fault in faults(path)] == []


def test_public_names_say_what_they_raise() -> None:
    assert [*faults(ROOT / "api.py"), *faults(ROOT / "plain_call.py")] == []
    silent = {"Device"}  # a class of arrays
    for name in set(jaxperf.__all__) - silent:
        assert "InputError" in (getattr(jaxperf, name).__doc__ or "") or name == "InputError", name
