"""The version of the package, as what it writes carries it; `pyproject.toml` has the same."""

VERSION = "0.1.0"
