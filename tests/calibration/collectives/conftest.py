"""The shipped parameters, and tables of collectives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from calibration.collectives.parameters import CollectiveParameters, load_collectives
from calibration.collectives.rows import FAMILY, read_collectives
from calibration.datasets.schema import KernelTable


@pytest.fixture(scope="session")
def shipped() -> CollectiveParameters:
    return load_collectives()


@pytest.fixture
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., KernelTable]:
    """Rows below the module's own `HEADER`, written as CSV and read."""

    def read(*rows: str) -> KernelTable:
        file = tmp_path / "c.csv"
        file.write_text("\n".join([request.module.HEADER, *rows]) + "\n")
        found = read_collectives(file).table(FAMILY)
        assert found is not None
        return found

    return read
