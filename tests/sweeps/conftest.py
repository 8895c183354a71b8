"""The ways in which a sweep is evaluated; what is too small for stages by itself is made to have them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jaxperf.sweeps import run, staged


@pytest.fixture(scope="module", params=["rows", "stages", "nested stages"])
def ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs the tests of a module in rows, then in stages whose points are rows or several axes."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "rows":
            patch.setattr(run, "FEW_POINTS", 0)
        if request.param == "nested stages":
            patch.setattr(staged, "FEW_ROWS", 0)
        yield
