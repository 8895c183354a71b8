"""Links of README, CONTRIBUTING and docs lead to files; those of docs stay in docs, which are published alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import page

ROOT = page.DOCS.parent
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *page.DOCS.rglob("*.md")], ids=lambda path: path.name
)
def test_links_lead_to_files(path: Path) -> None:
    for target in LINK.findall(path.read_text(encoding="utf-8")):
        found = (path.parent / target).resolve()
        assert found.exists(), target
        assert path.parent == ROOT or found.is_relative_to(page.DOCS), target
