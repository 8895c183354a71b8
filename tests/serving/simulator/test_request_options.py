"""Priorities and prompts computed elsewhere, as columns of a trace."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hwspecs.errors import InputError
from jaxperf.io.request_options import with_options
from jaxperf.io.request_traces import read_requests
from jaxperf.serving.simulator.trace import pad_traces
from jaxperf.serving.simulator.workloads import round_robin

HEAD = "req,arrived_at,prefill_tokens,decode_tokens,priority,prefilled_tokens,hash_ids\n"


def read(folder: Path, text: str):
    (folder / "t.csv").write_text(text)
    return with_options(read_requests(folder / "t.csv"))


def test_columns_follow_the_requests_in_order_of_arrival(tmp_path: Path) -> None:
    trace, options = read(tmp_path, HEAD + "a,2,10,2,-5,10,\nb,0,20,1,,19.0,\nc,1,30,2,3,,\n")
    assert trace.row.tolist() == [1, 2, 0]
    assert options["priority"].tolist() == [0, 3, -5] and options["brought"].tolist() == [19, 0, 10]
    first, second = round_robin(trace, 2, **options)
    assert first.priority is not None and first.priority.tolist() == [0, -5]
    assert second.brought is not None and second.brought.tolist() == [0]


def test_a_trace_without_them_is_as_it_was(tmp_path: Path) -> None:
    trace, options = read(tmp_path, "arrived_at,prefill_tokens,decode_tokens\n0,10,2\n1,0,2\n")
    assert options == {} and trace.row.tolist() == [0] and list(trace.reasons) == [1]


def test_rows_with_cells_that_are_wrong_are_no_requests(tmp_path: Path) -> None:
    cells = ("2,1.5,0", "2,1,11", "1,1,10", "2,high,0", "2,1,-1", "2,1,10")
    rows = "".join(f"{number},0,10,{cell},[{number}]\n" for number, cell in enumerate(cells, 1))
    trace, options = read(tmp_path, HEAD + rows)
    assert trace.row.tolist() == [5] and trace.hashes == [[6]]
    assert options["brought"].tolist() == [10] and options["priority"].tolist() == [1]
    assert sorted(trace.reasons) == [0, 1, 2, 3, 4]
    assert trace.reasons[0] == 'priority: "1.5" is not a whole number from -1,073,741,824 to 1,073,741,824'
    assert trace.reasons[2] == 'prefilled_tokens: "10" is not a whole number from 0 to 9'


@pytest.mark.parametrize(
    ("brought", "words"), [([11], "from none to all"), ([-1], "from none to all"), ([10], "second")]
)
def test_arrays_that_bring_what_cannot_be(brought: list[int], words: str) -> None:
    one = SimpleNamespace(arrived=np.zeros(1), prompt=np.array([10]), output=np.array([1]), brought=np.array(brought))
    with pytest.raises(InputError, match=words):
        pad_traces([one])


def test_columns_are_known_however_they_are_written(tmp_path: Path) -> None:
    """Spaces behind commas and capitals, as for the columns that must be there."""
    head = "arrived_at, prefill_tokens, decode_tokens, Priority, prefilled_tokens , Hash_ids\n"
    trace, options = read(tmp_path, head + "0, 20, 4, 2, 8,[1]\n1, 20, 4, , 0,\n")
    assert trace.hashes == [[1], []] and not trace.reasons
    assert {name: values.tolist() for name, values in options.items()} == {"priority": [2, 0], "brought": [8, 0]}
