"""Every test runs with 64-bit floats and with implicit promotion of ranks and types turned into errors."""

from __future__ import annotations

import functools
import gc
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if "PYTEST_XDIST_WORKER" not in os.environ:  # workers get the variables of the process that starts them
    # A cache of the run's own, empty at first: workers and child processes share whatever any of them compiled.
    CACHE = tempfile.TemporaryDirectory(prefix="jaxperf-tests-", ignore_cleanup_errors=True)
    os.environ["XDG_CACHE_HOME"] = CACHE.name
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(CACHE.name) / "jaxperf" / "jax")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

import hypothesis
import jax
import pytest
from jax._src import compiler

from jaxperf.core.compiler_options import STRAIGHT, quicken_loops
from jaxperf.core.mappings import release_compiled

quicken_loops()  # as commands that sweep or simulate do
jax.config.update("jax_enable_x64", os.environ.get("JAXPERF_TEST_X64", "1") == "1")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Compilation makes the first example slow, so a deadline per example would only measure the machine.
hypothesis.settings.register_profile("jaxperf", deadline=None, max_examples=25, derandomize=True)
hypothesis.settings.load_profile("jaxperf")


# Folders whose programs run for long, or whose tests are about what XLA and LLVM make of them. Those of the others run
# for a moment, and compiling them with fewer of LLVM's passes saves a fifth; XLA's own are the same.
OPTIMIZED = ("benchmarks", "core", "validation")

# Without the emitters of fused loops by MLIR, and with one LLVM module a program, most large programs compile in two to
# four times less processor time.
QUICK_OPTIONS: dict[str, Any] = {"xla_cpu_parallel_codegen_split_count": 1, **STRAIGHT}

# Tracing makes millions of small objects that go by themselves; to look through all others every time costs a seventh.
gc.set_threshold(200_000, 50, 100)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with few tests come first: theirs are the long ones, which would else keep one worker busy at the end."""
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: tests[item.path])


@pytest.fixture(scope="module", autouse=True)
def few_mappings() -> Iterator[None]:
    """Lets go of all compiled functions after a module that leaves too many."""
    yield
    release_compiled()


@pytest.fixture(scope="module")
def plain_jax() -> Iterator[None]:
    """As a command runs, in a process of its own: JAX's default promotion, 32 bits."""
    names = ("jax_numpy_rank_promotion", "jax_numpy_dtype_promotion", "jax_enable_x64")
    before = {name: getattr(jax.config, name) for name in names}
    for name, value in zip(names, ("allow", "standard", False), strict=True):
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def quick_options(compile_options: Callable[..., Any], *args: Any, **how: Any) -> Any:
    """JAX's compile options, with `QUICK_OPTIONS` beneath what a program is told itself; JAX has no setting for all."""
    own = dict(how.pop("env_options_overrides", None) or {})
    return compile_options(*args, env_options_overrides=QUICK_OPTIONS | own, **how)


@pytest.fixture(scope="module")
def quick_compilation() -> Iterator[None]:
    """For modules whose programs run for a moment, which optimizing them would not repay."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "get_compile_options", functools.partial(quick_options, compiler.get_compile_options))
        yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="module", autouse=True)
def quick_folders(request: pytest.FixtureRequest) -> None:
    """A module of the other folders whose programs run for longer defines it as nothing."""
    if not any(request.path.is_relative_to(Path(__file__).parent / folder) for folder in OPTIMIZED):
        request.getfixturevalue("quick_compilation")


@pytest.fixture(scope="session")
def data_directory() -> Path:
    """The measured data beside the project (or at `JAXPERF_DATA`); skips the test where it is absent."""
    directory = Path(os.environ.get("JAXPERF_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not directory.is_dir():
        pytest.skip(f"measured data is not at {directory}; set JAXPERF_DATA to run this test")
    return directory
