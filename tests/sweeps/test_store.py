import errno
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.sweeps import Interrupted, Pareto, Sweep, TopK, axis, reduce_sweep, stream_parquet, write_selection
from jaxperf.sweeps.store import SWEEP_KEY

REDUCERS = (TopK("time", 5, largest=False), Pareto({"time": "min", "area": "max"}))


def step(machine, batch, length, tile):
    waves = jnp.ceil(batch * length / machine["cores"])
    return {
        "time": jnp.where(waves > 9000.0, jnp.nan, waves * tile) / machine["rate"],
        "count": {"waves": waves.astype(jnp.int32), "many": waves > 100.0},
        "area": tile * tile,
    }


def small(points_per_block=9, tiles=(32, 64, 128)):
    machines = {"cores": np.array([108.0, 132.0, 304.0]), "rate": np.array([1.5, 2.0, 2.5])}
    axes = [
        axis("machine", machines, ["a100", "h100", "mi300x"]),
        axis("batch", [1, 64, 128, 129]),
        axis("length", [128, 384, 8192]),
        axis("tile", tiles),
    ]
    return Sweep(step, axes, points_per_block=points_per_block)


class StopAfter:
    """Progress that presses Ctrl-C once so many points are done."""

    def __init__(self, points):
        self.points = points

    def __call__(self, done, total):
        if done >= self.points:
            raise KeyboardInterrupt


def assert_table(path, sweep):
    table, dense = pq.read_table(path, partitioning=None), sweep.dense()
    assert table.num_rows == sweep.plan.points
    for name, values in dense.metrics.items():
        np.testing.assert_array_equal(table[name].to_numpy(), values.reshape(-1))
    reference = dense.rows(np.arange(sweep.plan.points))
    for name in ("machine", "batch", "length", "tile"):
        assert table[name].to_pylist() == reference[name].tolist()


def files(folder):
    return sorted(path.name for path in Path(folder).rglob("*"))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 200), st.sampled_from(["out.parquet", "out"]))
def test_round_trip(tmp_path_factory, points_per_block, name):
    path = tmp_path_factory.mktemp("round") / name
    sweep = small(points_per_block)
    stored = stream_parquet(sweep, path, reducers=REDUCERS)
    assert stored.rows == sweep.plan.points == 108 and stored.resumed_points == 0
    assert_table(path, sweep)
    for ours, theirs in zip(stored.selections, reduce_sweep(sweep, REDUCERS), strict=True):
        np.testing.assert_array_equal(ours.indices, theirs.indices)


def test_one_file_and_nothing_beside_it(tmp_path):
    stream_parquet(small(), tmp_path / "out.parquet", metadata={"model": "toy"}, units={"time": "s", "batch": "1"})
    assert files(tmp_path) == ["out.parquet"]
    schema = pq.read_schema(tmp_path / "out.parquet")
    assert schema.metadata[b"model"] == b"toy"
    assert schema.field("time").metadata[b"units"] == b"s"
    assert schema.field("machine").type == pa.dictionary(pa.int32(), pa.string())
    assert schema.field("batch").type == pa.int64() and schema.field("count.many").type == pa.bool_()
    assert schema.field("count.waves").type == pa.int32()


def test_a_folder_is_a_data_set(tmp_path):
    stream_parquet(small(), tmp_path / "out")
    assert "_manifest.json" in files(tmp_path / "out")
    assert len(list((tmp_path / "out").glob("part-*.parquet"))) == small().plan.blocks
    assert_table(tmp_path / "out", small())


@pytest.mark.parametrize("name", ["out.parquet", "out"])
@pytest.mark.parametrize("stop", [0, 9, 60, 107, 108])
def test_interrupt_and_resume_give_the_identical_result(tmp_path, name, stop):
    whole, resumed = tmp_path / "whole" / name, tmp_path / "resumed" / name
    whole.parent.mkdir()
    resumed.parent.mkdir()
    reference = stream_parquet(small(), whole, reducers=REDUCERS, metadata={"a": "b"})
    with pytest.raises(Interrupted) as caught:
        stream_parquet(small(), resumed, reducers=REDUCERS, metadata={"a": "b"}, progress=StopAfter(stop))
    stopped = caught.value
    assert stop <= stopped.done_points < stop + 9 and stopped.total_points == 108
    assert stopped.done_blocks * 9 == stopped.done_points and "resumes" in str(stopped)
    assert not [name for name in files(resumed.parent) if "tmp" in name]
    seen = []
    stored = stream_parquet(
        small(), resumed, reducers=REDUCERS, metadata={"a": "b"}, progress=lambda done, total: seen.append(done)
    )
    assert stored.resumed_points == stopped.done_points == seen[0] and seen[-1] == 108
    for one in (path for path in [whole, *whole.glob("*")] if path.is_file()):
        assert one.read_bytes() == (resumed.parent / one.relative_to(whole.parent)).read_bytes()
    for ours, theirs in zip(stored.selections, reference.selections, strict=True):
        np.testing.assert_array_equal(np.sort(ours.indices), np.sort(theirs.indices))
        assert set(ours.metrics) == set(theirs.metrics)


def _computes(skip):
    assert set(skip) == set(range(small().plan.blocks)), "a block is computed"
    return iter(())


def test_running_a_finished_sweep_again_computes_nothing(tmp_path):
    for name in ("out.parquet", "out"):
        first = stream_parquet(small(), tmp_path / name, reducers=REDUCERS)
        sweep = small()
        sweep._evaluate = _computes
        again = stream_parquet(sweep, tmp_path / name, reducers=REDUCERS)
        assert again.resumed_points == 108
        for ours, theirs in zip(again.selections, first.selections, strict=True):
            np.testing.assert_array_equal(np.sort(ours.indices), np.sort(theirs.indices))


@pytest.mark.parametrize("name", ["out.parquet", "out"])
def test_a_different_sweep_in_the_same_place_is_refused_unless_asked(tmp_path, name):
    path = tmp_path / name
    stream_parquet(small(), path, metadata={"model": "toy"})
    with pytest.raises(InputError, match="axis 'tile' changed.*another path"):
        stream_parquet(small(tiles=(32, 64, 96)), path, metadata={"model": "toy"})
    with pytest.raises(InputError, match="setting 'model' changed"):
        stream_parquet(small(), path, metadata={"model": "other"})
    stream_parquet(small(tiles=(32, 64, 96)), path, overwrite=True)
    assert_table(path, small(tiles=(32, 64, 96)))


def test_an_interrupted_sweep_is_not_mixed_with_another(tmp_path):
    path = tmp_path / "out.parquet"
    with pytest.raises(Interrupted):
        stream_parquet(small(), path, progress=StopAfter(24))
    with pytest.raises(InputError, match="points per block changed"):
        stream_parquet(small(20), path)
    with pytest.raises(InputError, match="formula"):
        other = Sweep(lambda **k: step(**k) | {"area": k["tile"]}, small().axes, points_per_block=9)
        stream_parquet(other, path)
    stream_parquet(small(20), path, overwrite=True)
    assert_table(path, small(20))


def test_identity_leaves_out_what_differs_from_run_to_run(tmp_path):
    path = tmp_path / "out.parquet"
    with pytest.raises(Interrupted):
        stream_parquet(small(), path, metadata={"date": "1"}, identity={"model": "toy"}, progress=StopAfter(24))
    stored = stream_parquet(small(), path, metadata={"date": "2"}, identity={"model": "toy"})
    assert stored.resumed_points == 27 and pq.read_schema(path).metadata[b"date"] == b"2"


def truncated(path):
    path.write_bytes(path.read_bytes()[:100])


def flipped(path):
    """One bit of the last value of the first column."""
    column = pq.read_metadata(path).row_group(0).column(0)
    data = bytearray(path.read_bytes())
    data[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1] ^= 0x40
    path.write_bytes(data)


def misspelled(path):
    """In what the file says of its sweep."""
    pq.write_table(pq.read_table(path).replace_schema_metadata({SWEEP_KEY: '{"metrics'}), path)


def undecodable(path):
    pq.write_table(pq.read_table(path).replace_schema_metadata({SWEEP_KEY: b"\xff"}), path)


@pytest.mark.parametrize("damage", [truncated, flipped])
def test_a_truncated_or_changed_part_is_computed_again(tmp_path, damage):
    path = tmp_path / "out"
    stream_parquet(small(), path)
    part = sorted(path.glob("part-*"))[3]
    damage(part)
    (path / ".tmp-part-00000004.parquet").write_bytes(b"half")
    assert stream_parquet(small(), path).resumed_points == 99
    assert_table(path, small())
    assert not list(path.glob(".tmp*"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (flipped, "is damaged"),
        (misspelled, "not the result of a sweep"),
        (undecodable, "not the result of a sweep"),
        (truncated, "not the result of a sweep"),
    ],
)
def test_a_finished_file_that_was_changed_is_not_taken_for_the_result(tmp_path, damage, said):
    path = tmp_path / "out.parquet"
    stream_parquet(small(), path)
    damage(path)
    with pytest.raises(InputError, match=f"{said}.*ask to overwrite it"):
        stream_parquet(small(), path)
    stream_parquet(small(), path, overwrite=True)
    assert_table(path, small())


@pytest.mark.parametrize("name", ["out.parquet", "out"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_keeps_finished_parts(tmp_path, monkeypatch, name, code):
    path = tmp_path / name
    written = []
    write = pq.ParquetWriter.write_table

    def failing(self, table, *args, **kwargs):
        written.append(1)
        if len(written) > 4:
            Path(self.where).write_bytes(b"half a part")
            raise OSError(code, "boom")
        return write(self, table, *args, **kwargs)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", failing)
    with pytest.raises(InputError, match="4 of 12 blocks are finished and kept.*resumes") as caught:
        stream_parquet(small(), path)
    assert ("No space" if code == errno.ENOSPC else "Input/output") in str(caught.value)
    assert "\n" not in str(caught.value)
    parts = tmp_path / (name + ".parts" * name.endswith("parquet"))
    assert not list(parts.glob(".tmp*")) and len(list(parts.glob("part-*"))) == 4
    monkeypatch.undo()
    assert stream_parquet(small(), path).resumed_points == 36
    assert_table(path, small())


def test_a_full_disk_while_joining_keeps_every_part(tmp_path, monkeypatch):
    path = tmp_path / "out.parquet"
    write = pq.ParquetWriter.write_table

    def failing(self, table, *args, **kwargs):
        if table.num_rows > 9:
            raise OSError(errno.ENOSPC, "boom")
        return write(self, table, *args, **kwargs)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", failing)
    with pytest.raises(InputError, match="12 of 12 blocks are finished"):
        stream_parquet(small(), path)
    assert not path.exists()
    monkeypatch.undo()
    assert stream_parquet(small(), path).resumed_points == 108
    assert files(tmp_path) == ["out.parquet"]


def test_places_that_cannot_be_written_are_refused_before_computing(tmp_path, monkeypatch):
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "foreign.parquet").write_text("x")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "mine.parquet").write_text("x")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "_manifest.json").write_text("{")
    sweep = small()
    sweep._evaluate = _computes
    cases = {
        "missing/out.parquet": "does not exist",
        "folder.parquet": "is a folder",
        "file": "is a file",
        "file/out.parquet": "does not exist",
        "foreign.parquet": "not the result of a sweep",
        "foreign": "something else",
        "damaged": "damaged",
        "n" * 300: "File name too long",
    }
    for name, message in cases.items():
        with pytest.raises(InputError, match=message):
            stream_parquet(sweep, tmp_path / name)
    monkeypatch.setattr(Path, "write_text", lambda *args, **kwargs: (_ for _ in ()).throw(PermissionError(13, "no")))
    with pytest.raises(InputError, match="Permission denied"):
        stream_parquet(sweep, tmp_path / "out.parquet")
    assert (tmp_path / "foreign" / "mine.parquet").read_text() == "x"


def test_foreign_files_are_never_removed(tmp_path):
    path = tmp_path / "out"
    path.mkdir()
    (path / "picture.png").write_text("x")
    stream_parquet(small(), path)
    stream_parquet(small(tiles=(32, 48)), path, overwrite=True)
    assert (path / "picture.png").exists()


def test_half_precision_metrics_are_widened(tmp_path):
    sweep = Sweep(lambda x: {"y": x.astype("bfloat16"), "z": x.astype("float16")}, [axis("x", [1.0, 2.5])])
    stream_parquet(sweep, tmp_path / "out.parquet", reducers=[TopK("z", 1)])
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["y"].to_pylist() == [1.0, 2.5] and table.schema.field("z").type == pa.float32()


def test_a_selection_is_written_with_its_labels(tmp_path):
    sweep = small()
    (best,) = reduce_sweep(sweep, [TopK("time", 4, largest=False)])
    write_selection(sweep, best, tmp_path / "best.parquet", units={"time": "s"}, metadata={"kept": "top"})
    table = pq.read_table(tmp_path / "best.parquet")
    rows = sweep.rows(best)
    assert table.column_names == list(rows) and table.num_rows == 4
    assert table["machine"].to_pylist() == rows["machine"].tolist()
    assert files(tmp_path) == ["best.parquet"]
    with pytest.raises(InputError, match="does not exist"):
        write_selection(sweep, best, tmp_path / "missing" / "best.parquet")


def test_the_manifest_is_readable(tmp_path):
    stream_parquet(small(), tmp_path / "out", metadata={"model": "toy"})
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert manifest["setting 'model'"] == "toy" and manifest["points per block"] == "9"
