"""Only `core/numerics.py` may round a quotient: anywhere else XLA's rewriting of divisions gains or loses a unit."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import jaxperf.core

ROOT = Path(jaxperf.core.__file__).parents[1]
EXEMPT = {"core/numerics.py", "sweeps/host_rules.py"}  # the second carries out what programs say
# Exact integers and fractions of Python and NumPy.
ON_THE_HOST = (
    "loopnest/data_centric.py",
    "loopnest/fused/search.py",
    "loopnest/lower_bound_branch.py",
    "loopnest/mapper.py",
    "loopnest/mapspace",
    "loopnest/relaxed_search.py",
    "loopnest/search.py",
    "models/cache_elements.py",
    "models/feedforward.py",
    "models/flops.py",
    "models/fusion.py",
    "models/parameters.py",
    "models/storage.py",
    "models/training_memory.py",
    "models/workloads/",
    "network/astra",
    "network/limited_routing.py",
    "network/link_load_paths.py",
    "serving/fleet/capacity.py",
    "serving/fleet/ratio.py",
    "serving/fleet/run.py",
    "serving/plan/space.py",
    "serving/queueing/law.py",
    "serving/ranking.py",
    "serving/room.py",
    "serving/simulator/paths.py",
    "serving/simulator/policies/base.py",
    "serving/simulator/refusals.py",
    "serving/simulator/settings.py",
    "serving/simulator/tabulate.py",
    "serving/simulator/waste.py",
    "serving/simulator/workloads.py",
    "serving/techniques/wide_experts.py",
    "serving/workloads/",
    "training/search",
)
FORMULA_LAYERS = ("core", "kernels", "loopnest", "network", "models", "serving", "training")
ROUNDING = {"ceil", "floor", "floor_divide", "trunc", "rint", "round"}
ARRAY_LIBRARIES = {"jnp", "np", "numpy", "lax"}


def offences(source: str, *, strict: bool) -> Iterator[int]:
    """Lines that round: by an array library, and in `strict` files by `math` or `//` too."""
    for node in ast.walk(ast.parse(source)):
        if strict and isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
            yield node.lineno
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ROUNDING:
            library = ast.unparse(node.func.value).rpartition(".")[2]
            if library in ARRAY_LIBRARIES or (strict and library == "math"):
                yield node.lineno


def modules() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py"))


@pytest.mark.parametrize("name", [name for name in modules() if name not in EXEMPT])
def test_no_rounding_of_quotients_outside_numerics(name: str) -> None:
    strict = name.split("/")[0] in FORMULA_LAYERS and not name.startswith(ON_THE_HOST)
    found = list(offences((ROOT / name).read_text(), strict=strict))
    assert not found, f"{name} rounds in lines {found}; use core.numerics.ceil_div or floor_div"


@pytest.mark.parametrize("line", ["jnp.ceil(a / b)", "np.floor(x)", "jax.numpy.ceil(x)", "math.ceil(a / b)", "a // b"])
def test_the_check_finds_each_spelling(line: str) -> None:
    assert list(offences(line, strict=True)) == [1]
