"""Programs that run for a moment are compiled with little optimization."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def unoptimized(quick_compilation: None) -> None:
    """Whatever is compiled here runs for less time than optimizing it would take."""
