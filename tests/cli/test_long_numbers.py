"""Numbers of more digits than Python reads are mistakes as others are, wherever a number is part of a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from calibration.collectives.versions import model_versions
from calibration.serving.engines import release_of
from calibration.sustained.rows import newest
from hwspecs.errors import InputError
from hwspecs.whole import whole_number
from jaxperf.cli.capacity import _counts
from jaxperf.cli.measured import counted
from jaxperf.cli.plan_options import parse_pool, parse_sizes
from jaxperf.cli.replay import parse_sizes as replay_sizes
from jaxperf.io.megatron.reader import Reader
from jaxperf.io.shapes import parse_arrays

LONG = "1" * 5000


@pytest.mark.parametrize(
    "read",
    [
        lambda: parse_sizes(LONG),
        lambda: parse_sizes(f"1...{LONG}"),
        lambda: parse_pool(f"h100-sxm:{LONG}"),
        lambda: _counts(f"1,{LONG}"),
        lambda: replay_sizes("--sizes", f"8,{LONG}"),
        lambda: parse_arrays(f"f32[{LONG},8]"),
        lambda: Reader({"num_layers": [LONG]}, "run.sh").count("num_layers"),
    ],
)
def test_they_are_refused(read: Callable[[], Any]) -> None:
    with pytest.raises(InputError):
        read()


def test_as_a_version_they_are_none() -> None:
    assert release_of(f"0.{LONG}.1", 3) == () and release_of("0.24.1", 2) == (0, 24)
    versions = np.array([f"2.{LONG}", "2.18"], object)
    later, old = model_versions(np.array(["nccl", "nccl"], object), versions)
    assert later != old
    assert newest(np.array([f"1.{LONG}", "1.9"])) == f"1.{LONG}"


def test_a_whole_number_has_digits_only() -> None:
    texts = ("64", "007", "", "-1", "1.0", "²", LONG)
    assert [whole_number(text) for text in texts] == [64, 7, None, None, None, None, None]


def test_what_a_message_quotes_is_shortened() -> None:
    told = str(InputError(f"tp: '{LONG}' is no number; x"))
    assert told == f"tp: '{'1' * 59}...' is no number; x"
    assert str(InputError(f"{'a' * 200}: {LONG}.")) == f"{'a' * 200}: {'1' * 60}...."
    assert [row["reason"] for row in counted(Counter([f"tp: '{LONG}' is"]))] == [f"tp: '{'1' * 59}...' is"]


def test_a_path_that_no_file_can_have_is_shortened(refuse: Callable[..., str]) -> None:
    told = refuse("devices", "l4", "--devices-dir", LONG)
    assert told == f"jaxperf: '{'1' * 59}...': File name too long.\n"
