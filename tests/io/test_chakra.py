"""Chakra traces: round trips, the official schema as a second opinion, both JSON forms, and damaged files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.io.chakra.json_form import decode_json
from jaxperf.io.chakra.messages import NODE_TYPES, NodeMessage, decode, encode
from jaxperf.io.chakra.traces import read_chakra, read_groups, read_traces, trace_of, write_chakra
from jaxperf.io.chakra.wire import unzigzag, write_varint
from jaxperf.training.replay.trace import COLLECTIVES, Operation, Trace

SMALL = Trace(
    0,
    (
        Operation(7, "forward", "compute", (), 12e-6, 1e9, 4096.0),
        Operation(3, "wait", "none", (7,)),
        Operation(9, "gradients", "collective", (7, 3), 0.0, collective="all_reduce", size=2.0**20, group="3"),
        Operation(11, "spread", "collective", (9,), collective="all_gather", size=64.0, dimensions=(True, False)),
        Operation(12, "on", "send", (9,), size=100.0, peer=1, tag=5),
        Operation(13, "back", "receive", (9,), size=100.0, peer=1, tag=6),
        Operation(14, "python", "host", (13,), 3e-6),
        Operation(15, "fetch", "load", (13,), bytes_moved=2.0**33),
    ),
)
IDS = st.integers(0, 2**64 - 1)
SIZES = st.integers(0, 2**62).map(float)


@st.composite
def operations(draw: st.DrawFn) -> tuple[Operation, ...]:
    ids = draw(st.lists(IDS, min_size=1, max_size=6, unique=True))
    found = []
    for index, each in enumerate(ids):
        after = tuple(draw(st.lists(st.sampled_from(ids[:index]), unique=True))) if index else ()
        common = {"id": each, "name": draw(st.text(max_size=5)), "after": after}
        common["duration"] = draw(st.integers(0, 2**20)) * 1e-6
        kind = draw(st.sampled_from(["compute", "host", "load", "store", "send", "receive", "collective"]))
        if kind in ("send", "receive"):
            extra: dict[str, Any] = {
                "size": draw(SIZES),
                "peer": draw(st.integers(0, 99)),
                "tag": draw(st.integers(0, 9)),
            }
        elif kind == "collective":
            extra = {
                "size": draw(SIZES),
                "collective": draw(st.sampled_from(COLLECTIVES)),
                "group": draw(st.sampled_from(["", "12"])),
            }
            extra["dimensions"] = tuple(draw(st.lists(st.booleans(), max_size=3)))
        else:
            extra = {"flops": draw(SIZES), "bytes_moved": draw(SIZES)}
        found.append(Operation(kind=kind, **common, **extra))
    return tuple(found)


@settings(max_examples=60, deadline=None)
@given(found=operations())
def test_what_is_written_is_read_again(found: tuple[Operation, ...], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("traces") / "run.5.et"
    write_chakra(Trace(5, found), path)
    read = read_chakra(path)
    assert read.rank == 5
    assert read.operations == found


def test_gzipped_traces_are_read(tmp_path: Path) -> None:
    write_chakra(SMALL, tmp_path / "plain.0.et")
    (tmp_path / "zipped.0.et.gz").write_bytes(gzip.compress((tmp_path / "plain.0.et").read_bytes()))
    assert read_chakra(tmp_path / "zipped.0.et.gz").operations == SMALL.operations


def official() -> Any:
    """Message classes of `et_def.proto`, built by the protobuf package from the schema."""
    pb = pytest.importorskip("google.protobuf.descriptor_pb2")
    from google.protobuf import descriptor_pool, message_factory

    file = pb.FileDescriptorProto(name="et.proto", package="C", syntax="proto3")
    kinds = "double float int32 int64 uint32 uint64 sint32 sint64 fixed32 fixed64 sfixed32 sfixed64 bool string bytes"
    field = pb.FieldDescriptorProto

    def add(message: Any, name: str, number: int, kind: str, repeated: bool = False, oneof: int | None = None) -> None:
        made = message.field.add(name=name, number=number, label=3 if repeated else 1)
        if kind[0].isupper():
            made.type, made.type_name = field.TYPE_MESSAGE, f".C.{kind}"
        else:
            made.type = getattr(field, f"TYPE_{kind.upper()}")
        if oneof is not None:
            made.oneof_index = oneof

    attribute = file.message_type.add(name="Attr")
    attribute.oneof_decl.add(name="value")
    add(attribute, "name", 1, "string")
    for index, kind in enumerate(kinds.split()):
        add(file.message_type.add(name=f"{kind.title()}List"), "values", 1, kind, repeated=True)
        add(attribute, f"{kind}_val", 3 + 2 * index, kind, oneof=0)
        add(attribute, f"{kind}_list", 4 + 2 * index, f"{kind.title()}List", oneof=0)
    metadata = file.message_type.add(name="Meta")
    add(metadata, "version", 1, "string")
    inputs = file.message_type.add(name="Info")
    add(inputs, "values", 1, "string")
    node = file.message_type.add(name="Node")
    for name, number, kind, repeated in (
        ("id", 1, "uint64", False),
        ("name", 2, "string", False),
        ("type", 3, "int32", False),
        ("ctrl_deps", 4, "uint64", True),
        ("data_deps", 5, "uint64", True),
        ("start_time_micros", 6, "uint64", False),
        ("duration_micros", 7, "uint64", False),
        ("inputs", 8, "Info", False),
        ("attr", 10, "Attr", True),
    ):
        add(node, name, number, kind, repeated)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"C.{name}")) for name in ("Meta", "Node")}


def delimited(messages: Iterable[Any]) -> bytes:
    bodies = [message.SerializeToString() for message in messages]
    return b"".join(write_varint(len(body)) + body for body in bodies)


def test_the_protobuf_package_reads_the_same_and_writes_what_is_read() -> None:
    made = official()
    node = made["Node"](id=2**63 + 5, name="all", type=7, ctrl_deps=[1, 300], data_deps=[2], duration_micros=12)
    node.inputs.values = "in"
    single = {"double": 1.25, "float": 0.5, "int32": -7, "int64": -(2**40), "uint32": 9, "uint64": 2**63, "sint32": -3}
    single |= {"sint64": -(2**50), "fixed32": 8, "fixed64": 2**60, "sfixed32": -8, "sfixed64": -(2**60)}
    single |= {"bool": True, "string": "text", "bytes": b"\x00\xff"}
    for kind, value in single.items():
        node.attr.add(name=kind, **{f"{kind}_val": value})
        listed = node.attr.add(name=f"{kind}s")
        getattr(listed, f"{kind}_list").values.extend([value, value])
    (read,) = decode(delimited([made["Meta"](version="1"), node]), "file")
    assert (read.id, read.name, read.type, read.inputs) == (2**63 + 5, "all", "COMM_COLL_NODE", "in")
    assert (read.ctrl_deps, read.data_deps, read.duration_micros) == ([1, 300], [2], 12)
    assert read.attr == single | {f"{kind}s": [value, value] for kind, value in single.items()}
    written = encode([NodeMessage(id=4, name="n", type="COMP_NODE", data_deps=[1, 2], attr={"a": -5, "b": False})])
    length = written[0]
    again = made["Node"]()
    again.ParseFromString(written[length + 2 :])
    assert (again.id, again.name, again.type, list(again.data_deps)) == (4, "n", 4, [1, 2])
    assert [(each.name, each.WhichOneof("value")) for each in again.attr] == [("a", "int64_val"), ("b", "bool_val")]


@given(st.integers(-(2**63), 2**63 - 1))
def test_zigzag_is_undone(value: int) -> None:
    assert unzigzag((value << 1) ^ (value >> 63) if value >= 0 else ((-value) << 1) - 1) == value


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_files_are_refused_or_read_never_worse(data: st.DataObject) -> None:
    body = bytearray(
        encode(
            NodeMessage(
                id=k,
                name=f"n{k}",
                type="COMP_NODE",
                data_deps=[k - 1] * (k > 0),
                attr={"num_ops": 3 << 40, "is_cpu_op": True},
            )
            for k in range(4)
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))])
    try:
        trace_of(decode(cut, "file"), 0, "file")
    except InputError as error:
        assert str(error).startswith("file")


def test_every_truncation_inside_a_message_names_the_byte() -> None:
    body = encode([NodeMessage(id=1, name="abc", type="COMP_NODE")])
    for end in range(len(body) - 8, len(body)):
        with pytest.raises(InputError, match=r"byte \d+.*truncated"):
            decode(body[:end], "file")


BASE = [
    {"version": "0.0.4"},
    {
        "id": "1",
        "name": "a",
        "type": "COMP_NODE",
        "durationMicros": "7",
        "attr": [{"name": "num_ops", "int64Val": "123"}],
    },
]


def test_both_json_forms_mean_the_same(tmp_path: Path) -> None:
    collective = {
        "id": "2",
        "type": "COMM_COLL_NODE",
        "dataDeps": ["1"],
        "attr": [
            {"name": "comm_type", "int64Val": "2"},
            {"name": "comm_size", "uint64Val": "64"},
            {"name": "involved_dim", "boolList": {"values": [True, False]}},
        ],
    }
    feeder = {
        "workload_graph": [
            {"Id": 1, "Name": "a", "NodeType": 4, "runtime": 7, "data_deps": [], "num_ops": 123},
            {"Id": 2, "NodeType": 7, "data_deps": [1], "comm_type": 2, "comm_size": 64, "involved_dim": [True, False]},
        ]
    }
    (tmp_path / "one.0.json").write_text("".join(json.dumps(each, indent=1) for each in (*BASE, collective)))
    (tmp_path / "two.0.json").write_text(json.dumps(feeder))
    one, two = read_chakra(tmp_path / "one.0.json"), read_chakra(tmp_path / "two.0.json")
    assert one.operations == two.operations
    assert one.operations[1] == Operation(
        2, "", "collective", (1,), collective="all_gather", size=64.0, dimensions=(True, False)
    )
    assert one.operations[0].duration == pytest.approx(7e-6)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"version": "1"}{"id": ', "line 1: not valid JSON"),
        ("{}\n[1]", "line 2: a list of 1 where an object belongs"),
        ('{}{"id": "x", "type": "COMP_NODE"}', "node 1: id is"),
        ('{}{"id": 1, "type": "COMP"}', "node type"),
        ('{}{"id": 1, "type": "COMP_NODE", "data_deps": 3}', "data_deps is 3"),
        ('{}{"id": 1, "type": "COMP_NODE", "attr": [3]}', "an attribute is 3"),
        ('{"id": 1, "type": 4}', "does not start with GlobalMetadata"),
        ('{"workload_graph": 3}', "workload_graph is 3"),
        ('{"workload_graph": [3]}', "node 1 is 3"),
        ('{}{"id": ' + "9" * 5000, "line 1: not valid JSON"),
        ('{}{"id": "' + "9" * 21 + '", "type": "COMP_NODE"}', "node 1: id is"),
        ('{}{"id": 1, "type": "COMP_NODE", "duration_micros": ' + "9" * 400 + "}", "duration_micros is"),
    ],
)
def test_json_that_is_no_trace_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        decode_json(text, "file")
    assert says in str(error.value) and str(error.value).startswith("file")


def node(**fields: Any) -> NodeMessage:
    return NodeMessage(**({"id": 1, "name": "n", "type": "COMP_NODE"} | fields))


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([], "holds no nodes"),
        ([node(), node()], "two nodes have the id 1"),
        ([node(data_deps=[8])], "node 1 'n' waits for node 8, which is not in the trace"),
        (
            [node(data_deps=[2]), node(id=2, name="", ctrl_deps=[3]), node(id=3, data_deps=[1]), node(id=4)],
            "node 1 'n', which waits for node 2, which waits for node 3 'n', which waits for node 1 'n'",
        ),
        ([node(type="COMM_COLL_NODE")], "comm_type is null"),
        ([node(type="COMM_COLL_NODE", attr={"comm_type": 10})], "comm_type is 10"),
        (
            [node(type="COMM_COLL_NODE", attr={"comm_type": 0, "com_size": 8})],
            "node 1 'n' has no comm_size, the bytes of the message. Did you mean com_size",
        ),
        ([node(type="COMM_SEND_NODE", attr={"comm_dst": 1})], "has no comm_size"),
        ([node(type="COMM_SEND_NODE")], "has no comm_dst"),
        ([node(attr={"num_ops": -1})], "num_ops is -1"),
        ([node(type="METADATA_NODE", inputs="pg_name [{}, 5, {}]")], "must be a list of objects"),
        ([node(type="STORAGE_NODE")], "STORAGE_NODE"),
        ([node(type="METADATA_NODE", inputs="['[{\"pg_name\": oops}]']")], "not valid JSON"),
    ],
)
def test_what_means_nothing_is_refused_with_the_node(nodes: list[NodeMessage], says: str) -> None:
    with pytest.raises(InputError) as error:
        trace_of(nodes, 0, "file")
    assert says in str(error.value) and str(error.value).startswith("file")


def test_a_barrier_has_no_size() -> None:
    (found,) = trace_of([node(type="COMM_COLL_NODE", attr={"comm_type": "BARRIER"})], 0, "file").operations
    assert (found.collective, found.size) == ("barrier", 0.0)


def test_binary_faults_name_byte_and_node() -> None:
    body = encode([node()])
    with pytest.raises(InputError, match="does not start with GlobalMetadata"):
        decode(body[body[0] + 1 :], "file")
    with pytest.raises(InputError, match=r"node 1, byte \d+: node type 99 is unknown"):
        decode(body.replace(bytes([3 << 3, NODE_TYPES.index("COMP_NODE")]), bytes([3 << 3, 99])), "file")


def test_process_groups_of_pytorch_are_read() -> None:
    groups = [
        {"pg_name": "0", "pg_desc": "default_pg", "ranks": []},
        {"pg_name": "4", "pg_desc": "dp", "ranks": [0, 2]},
    ]
    text = f"['{json.dumps(groups)}']"
    found = trace_of([node(type="METADATA_NODE", inputs=text)], 0, "file")
    assert found.groups == {"4": (0, 2)}
    assert found.descriptions["4"] == "dp"


def test_group_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "groups.json").write_text('{"1": [0, 1], "0": [0, 1, 2, 3]}')
    assert read_groups(tmp_path / "groups.json") == {"1": (0, 1), "": (0, 1, 2, 3)}
    for bad in ('{"1": [0, 0]}', '{"1": [-1]}', '{"1": []}', "[1]", "{"):
        (tmp_path / "bad.json").write_text(bad)
        with pytest.raises(InputError, match=r"bad\.json"):
            read_groups(tmp_path / "bad.json")
    folder = tmp_path / "run"
    folder.mkdir()
    with pytest.raises(InputError, match="holds no trace"):
        read_traces([folder])
    for rank in (10, 2):
        write_chakra(SMALL, folder / (f"t.{rank}.et" if rank == 2 else f"T.{rank}.ET"))
    assert [trace.rank for trace in read_traces([folder])] == [2, 10]
    write_chakra(SMALL, tmp_path / "noname.et")
    with pytest.raises(InputError, match="rank is not told"):
        read_traces([folder, tmp_path / "noname.et"])
    with pytest.raises(InputError, match="both of rank 2"):
        read_traces([folder, folder / "t.2.et"])
