"""Programs that run for a moment are compiled with little optimization."""

from tests.serving.simulator.conftest import quick_compilation

__all__ = ["quick_compilation"]
