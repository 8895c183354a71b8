"""Linux allows a process 65,530 mappings of memory; every compiled function keeps a few, and XLA crashes beyond."""

from __future__ import annotations

import gc
from pathlib import Path

import jax

MOST = 30_000
MAPPINGS = Path("/proc/self/maps")  # only Linux has it


def release_compiled() -> None:
    """Lets go of all compiled functions where they keep more than `MOST` mappings: a loop that compiles something else
    each time calls this between. Functions that are still used compile again."""
    if MAPPINGS.exists() and MAPPINGS.read_bytes().count(b"\n") > MOST:
        jax.clear_caches()
        gc.collect()
