"""Both ways in which a sweep is evaluated; what is too small for stages by itself is made to have them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jaxperf.sweeps import run


@pytest.fixture(scope="module", params=["rows", "stages"])
def ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs the tests of a module in rows, then in stages."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "stages":
            patch.setattr(run, "FEW_POINTS", 0)
        yield
