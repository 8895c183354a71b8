"""The ways in which a sweep is evaluated; what is too small to be compiled by itself is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jaxperf.sweeps import blocks, staged


@pytest.fixture(scope="module", params=["host", "stages", "nested stages"])
def ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs the tests of a module on the host, then compiled in stages whose points are rows or several axes."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "host":
            patch.setattr(blocks, "FEW_POINTS", 0)
        if request.param == "nested stages":
            patch.setattr(staged, "FEW_ROWS", 0)
        yield
