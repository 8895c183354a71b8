"""The Python of README and docs runs as it stands, and prints what stands below it."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest

from tests.docs import page
from tests.io import test_calculon as calculon
from tests.io.test_megatron import SCRIPT

FILES = {
    "gemms.csv": "gpu,dtype,m,n,k,latency_us\nh100-sxm,bf16,12,64,128,3\nh100-sxm,bf16,12x,64,128,3\n",
    "train_gpt3.sh": SCRIPT,
    "gpt3-175B.json": json.dumps(calculon.APPLICATION),
    "execution.json": json.dumps(calculon.EXECUTION),
    "a100_80g.json": json.dumps(calculon.SYSTEM),
}
FOLLOWED = ("add-a-device.md", "add-a-kernel.md", "add-a-model.md")  # by tests of their own
LONG = ("../README.md", "design.md", "plan-train.md", "steady.md")  # what they ask is tested at less length elsewhere
PAGES = ("../README.md", *sorted(path.name for path in page.DOCS.glob("*.md") if path.name not in FOLLOWED))
BLOCKS = {name: page.blocks(name) for name in PAGES}
CODE = {name: blocks for name, blocks in BLOCKS.items() if any(each.language == "python" for each in blocks)}


@pytest.mark.usefixtures("plain_jax")
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in CODE])
def test_a_page_runs_and_prints_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file, text in FILES.items():
        (tmp_path / file).write_text(text)
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    said = ""
    for block in CODE[name]:
        if block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(block.text, name, "exec"), scope)
            said = printed.getvalue()
        elif block.language == "text":
            assert said == block.text


def test_pages_with_python_are_found() -> None:
    assert {"../README.md", "networks.md", "steady.md", "tracing.md"} <= set(CODE)
