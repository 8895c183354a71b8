"""One self-contained HTML page of what a command printed."""

from __future__ import annotations

import base64
import html
import io
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from jaxperf.core.version import VERSION
from jaxperf.io.whole_file import whole_file

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font-family: sans-serif; margin: 2em; color: #1a1a1a; background: #ffffff; }}
pre {{ font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace; line-height: 1.25; overflow-x: auto; }}
img {{ max-width: 100%; }}
</style>
</head>
<body>
<h1><code>{title}</code></h1>
<p>jaxperf {version}, {date}</p>
<pre>{answer}</pre>
{pictures}</body>
</html>
"""


class Tee:
    """The standard output of the moment, in all it says of itself, which keeps the text that passes."""

    def __init__(self) -> None:
        self._through, self._kept = sys.stdout, io.StringIO()

    @property
    def text(self) -> str:
        """What was written so far."""
        return self._kept.getvalue()

    def write(self, text: str) -> int:
        """Passes the text on."""
        self._kept.write(text)
        return self._through.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._through, name)


def pictures(values: Iterable[Any], before: Mapping[Path, int] | None = None) -> dict[Path, int]:
    """The PNG files among the values of options, with the time [ns] each was written; those alone that are new since
    `before`."""
    paths = [
        value for value in values if isinstance(value, Path) and value.suffix.lower() == ".png" and value.is_file()
    ]
    found = {path: path.stat().st_mtime_ns for path in paths}
    return {path: at for path, at in found.items() if before is None or before.get(path) != at}


def write_page(path: Path, command: str, printed: str, drawn: Iterable[Path] = ()) -> None:
    """Write the page, whole or not at all.

    **Arguments:** `command`: the line that was given, the title of the page; `printed`: its answer, colors of a
    terminal in it; `drawn`: pictures to show below.
    **Raises:** `InputError` where it cannot be written.
    """
    page = PAGE.format(
        title=html.escape(command),
        version=VERSION,
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        answer=_marked_up(printed),
        pictures="".join(map(_embedded, drawn)),
    )
    with whole_file(path) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="backslashreplace")


def _marked_up(printed: str) -> str:
    """Text with a terminal's codes as HTML that needs no style sheet."""
    text = Text.from_ansi(printed)
    console = Console(record=True, file=io.StringIO(), width=max(map(len, printed.splitlines()), default=0) + 1)
    console.print(text, soft_wrap=True, highlight=False, markup=False, emoji=False)
    return console.export_html(code_format="{code}", inline_styles=True)


def _embedded(picture: Path) -> str:
    data = base64.b64encode(picture.read_bytes()).decode()
    name = html.escape(picture.name)
    return f'<p><img alt="{name}" src="data:image/png;base64,{data}"></p>\n'
