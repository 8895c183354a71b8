"""What every computing command does first: settings of JAX for a program that owns its process."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from jaxperf.core.compiler_options import quicken_loops


def start_jax(quick: bool = False) -> None:
    """64-bit floats, a compilation cache between runs, rare garbage collections, silence about machine features, and,
    if `quick`, quick loops.

    Quick loops are for a command whose time goes into formulas of many points or into simulated steps, and that takes
    no slopes.

    The library itself never changes JAX's configuration; a command owns its process and may.
    """
    # Tracing makes millions of small objects that go by themselves; to look through all others each time takes a tenth.
    gc.set_threshold(200_000, 50, 100)
    if quick:
        quicken_loops()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # else each cache hit prints kilobytes about CPU features
    import jax

    jax.config.update("jax_enable_x64", True)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "jaxperf" / "jax"
    if not cache.is_absolute():
        return  # no home, or a relative place, which the XDG specification says to ignore
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # a read-only home only costs the compile time again
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
