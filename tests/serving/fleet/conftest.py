"""Programs that run for a moment are compiled with little optimization."""

from tests.serving.simulator.conftest import unoptimized

__all__ = ["unoptimized"]
