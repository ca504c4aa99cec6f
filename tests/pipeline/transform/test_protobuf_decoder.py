"""Protobuf: columns equal the fields of messages, by a descriptor set or by the schemas of a registry."""

from __future__ import annotations

import base64
import itertools
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import OperatorError

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pytest.importorskip("google.protobuf", reason="needs the extra `pipeline`")

from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2  # noqa: E402
from google.protobuf.message_factory import GetMessageClass  # noqa: E402

from ottla.pipeline.transform.columns import MAX_LEVELS  # noqa: E402
from ottla.pipeline.transform.decode_options import DecodeOptions  # noqa: E402
from ottla.pipeline.transform.open_format import open_format  # noqa: E402
from ottla.pipeline.transform.protobuf_decoder import ProtobufDecoder, message_fields  # noqa: E402
from ottla.pipeline.transform.protobuf_format import ProtobufFormat  # noqa: E402
from ottla.schemas.protobuf import (  # noqa: E402
    LargeMessageError,
    ProtobufSchemaError,
    message_indexes,
    message_of_file,
)
from ottla.schemas.registry import SchemaRegistry  # noqa: E402

from .conftest import Lake  # noqa: E402
from .registry_server import RegistryServer  # noqa: E402

F = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "i32": F.TYPE_SINT32, "i64": F.TYPE_INT64, "u32": F.TYPE_UINT32, "u64": F.TYPE_FIXED64, "f": F.TYPE_FLOAT,
    "d": F.TYPE_DOUBLE, "b": F.TYPE_BOOL, "s": F.TYPE_STRING, "raw": F.TYPE_BYTES,
}  # fmt: skip


def add_field(message: Any, name: str, kind: int, type_name: str | None = None, *, repeated: bool = False) -> Any:
    return message.field.add(
        name=name,
        number=len(message.field) + 1,
        type=kind,
        type_name=type_name,
        label=F.LABEL_REPEATED if repeated else F.LABEL_OPTIONAL,
    )


def described() -> Any:
    """A file with the messages `Other` and `View`, with every kind of field."""
    file = descriptor_pb2.FileDescriptorProto(name="view.proto", package="shop", syntax="proto3")
    file.dependency.extend([timestamp_pb2.DESCRIPTOR.name, wrappers_pb2.DESCRIPTOR.name])
    other = file.message_type.add(name="Other")
    add_field(other, "x", F.TYPE_INT64)
    add_field(other.nested_type.add(name="Deep"), "y", F.TYPE_STRING)
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="SOME", number=5)
    view = file.message_type.add(name="View")
    for name, type_ in SCALARS.items():
        add_field(view, name, type_)
    add_field(view, "kind", F.TYPE_ENUM, ".shop.Kind")
    add_field(view, "other", F.TYPE_MESSAGE, ".shop.Other")
    add_field(view, "others", F.TYPE_MESSAGE, ".shop.Other", repeated=True)
    add_field(view, "numbers", F.TYPE_INT32, repeated=True)
    add_field(view, "time", F.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    add_field(view, "wrapped", F.TYPE_MESSAGE, ".google.protobuf.Int64Value")
    add_field(view, "parent", F.TYPE_MESSAGE, ".shop.View")
    entry = view.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    add_field(entry, "key", F.TYPE_STRING)
    add_field(entry, "value", F.TYPE_INT64)
    add_field(view, "counts", F.TYPE_MESSAGE, ".shop.View.CountsEntry", repeated=True)
    maybe = add_field(view, "maybe", F.TYPE_INT32)
    maybe.proto3_optional, maybe.oneof_index = True, 0
    view.oneof_decl.add(name="_maybe")
    return file


SET = descriptor_pb2.FileDescriptorSet(file=[described()]).SerializeToString()
VIEW = message_of_file(SET, "shop.View")
View = GetMessageClass(VIEW)


def full() -> Any:
    view = View(
        i32=-1, i64=-(2**63), u32=2**32 - 1, u64=2**64 - 1, f=0.5, d=0.1, b=True, s="\u00e4", raw=b"\xff", kind=5,
        other={"x": 7}, others=[{"x": 1}, {}], numbers=[3, 4], wrapped={"value": 9}, parent={"s": "p"}, maybe=0,
        counts={"k": 2},
    )  # fmt: skip
    view.time.FromDatetime(datetime(2026, 3, 2, 10, 5, 3, 7, UTC))
    return view


def decode(*values: bytes | None) -> tuple[list[dict[str, Any]], dict[int, str]]:
    decoder = pickle.loads(pickle.dumps(ProtobufDecoder(message_fields(VIEW), SET, "shop.View")))
    result = decoder.decode(pa.array(values, pa.binary()))
    assert result.columns.num_rows == len(values)
    return result.columns.to_pylist(), dict(zip(result.bad, result.reasons, strict=True))


def test_every_kind_of_field_arrives() -> None:
    rows, bad = decode(full().SerializeToString(), b"", None)
    assert not bad
    assert rows[0] == {
        "i32": -1, "i64": -(2**63), "u32": 2**32 - 1, "u64": Decimal(2**64 - 1), "f": 0.5, "d": 0.1, "b": True,
        "s": "\u00e4", "raw": b"\xff", "kind": "SOME", "other": {"x": 7}, "others": [{"x": 1}, {"x": 0}],
        "numbers": [3, 4], "time": datetime(2026, 3, 2, 10, 5, 3, 7, UTC), "wrapped": 9, "counts": [("k", 2)],
        "maybe": 0,
    }  # fmt: skip
    absent = {name: rows[1][name] for name in ("other", "time", "wrapped", "maybe")}
    assert set(absent.values()) == {None}
    assert (rows[1]["i32"], rows[1]["s"], rows[1]["kind"], rows[1]["others"]) == (0, "", "NONE", [])
    assert set(rows[2].values()) == {None}


def nested(levels: int) -> bytes:
    data = b""
    for _ in range(levels):
        data = bytes([16 << 3 & 0x7F | 2 | 0x80, 16 >> 4]) + varint(len(data)) + data
    return data


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


@pytest.mark.parametrize("value", [b"\xff", b"\x08", b"\x42\x05ab", b"\x42\x01\xff", nested(50_000)])
def test_a_bad_value_has_its_reason_and_spoils_no_other(value: bytes) -> None:
    good = View(i64=5).SerializeToString()
    rows, bad = decode(good, value, good)
    assert list(bad) == [1]
    assert bad[1].startswith("the value is not a message of its type: ")
    assert [row["i64"] for row in rows] == [5, None, 5]


def test_unrepresentable_time_is_bad() -> None:
    view = View()
    view.time.seconds = 2**62
    assert list(decode(view.SerializeToString())[1]) == [0]


def test_unnamed_enum_number_is_kept_as_text() -> None:
    assert decode(View(kind=77).SerializeToString())[0][0]["kind"] == "77"


def test_schemas_in_files(tmp_path: Path) -> None:
    path = tmp_path / "view.desc"
    path.write_bytes(SET)
    assert open_format(DecodeOptions("protobuf", path, message="shop.View")) == ProtobufFormat(SET, "shop.View")
    for message, reason in ((None, "with --message: shop.Other"), ("x", "message 'x'")):
        with pytest.raises(OperatorError, match=reason):
            open_format(DecodeOptions("protobuf", path, message=message))
    path.write_bytes(b"\xff")
    with pytest.raises(OperatorError, match="not a set of file descriptors"):
        open_format(DecodeOptions("protobuf", path))
    with pytest.raises(ProtobufSchemaError, match="empty"):
        message_of_file(b"", None)
    lacking = described()
    lacking.dependency.append("missing.proto")
    with pytest.raises(ProtobufSchemaError, match="are inconsistent"):
        message_of_file(descriptor_pb2.FileDescriptorSet(file=[lacking]).SerializeToString(), None)
    with pytest.raises(OperatorError, match="--message names a message"):
        open_format(DecodeOptions("protobuf", message="x", schema_registry="http://x"))


def grown(width: int, levels: int) -> bytes:
    """A descriptor set of that many levels of messages, each `width` times in the one above it."""
    file = descriptor_pb2.FileDescriptorProto(name="grown.proto", syntax="proto3")
    add_field(file.message_type.add(name="M0"), "x", F.TYPE_INT64)
    for level in range(1, levels):
        message = file.message_type.add(name=f"M{level}")
        for number in range(width):
            add_field(message, f"f{number}", F.TYPE_MESSAGE, f".M{level - 1}")
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def test_messages_with_too_many_fields_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "grown.desc"
    path.write_bytes(grown(2, 40))
    with pytest.raises(OperatorError, match=r"can't be used as .*: its message M39 has more than 10,000 fields of all"):
        open_format(DecodeOptions("protobuf", path, message="M39"))


def test_too_deeply_nested_messages_are_bad() -> None:
    """As in a hostile schema of a registry: its values are bad, the load continues."""
    set_ = grown(1, 300)
    found = ProtobufDecoder(pa.schema([]), set_, "M299").decode(pa.array([b"", None], pa.binary()))
    assert found.bad == [0]
    assert found.reasons[0].startswith("its message M299 has more than 250 message types that each contain the next; ")
    with pytest.raises(LargeMessageError, match="M299"):
        message_fields(message_of_file(set_, "M299"))
    assert ProtobufDecoder(pa.schema([]), set_, "M240").decode(pa.array([b""], pa.binary())).reasons == []


def recursive(*names: str) -> bytes:
    """A descriptor set of messages that each contain the next one, once, in a list and in a map; the last contains the
    first."""
    file = descriptor_pb2.FileDescriptorProto(name="cycle.proto", syntax="proto3")
    for name, following in zip(names, (*names[1:], names[0]), strict=True):
        message = file.message_type.add(name=name)
        add_field(message, "x", F.TYPE_INT64)
        add_field(message, "one", F.TYPE_MESSAGE, f".{following}")
        add_field(message, "many", F.TYPE_MESSAGE, f".{following}", repeated=True)
        entry = message.nested_type.add(name="NamedEntry")
        entry.options.map_entry = True
        add_field(entry, "key", F.TYPE_STRING)
        add_field(entry, "value", F.TYPE_MESSAGE, f".{following}")
        add_field(message, "named", F.TYPE_MESSAGE, f".{name}.NamedEntry", repeated=True)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


@pytest.mark.parametrize("names", ["A", "AB", "ABC", "ABCD"])
def test_indirectly_recursive_messages(names: str) -> None:
    set_ = recursive(*names)
    message = message_of_file(set_, "A")
    value: Any = {"x": 0}
    for number in range(len(names) + 2, 0, -1):
        value = {"x": number, "one": value, "many": [value], "named": {"k": value}}
    data = GetMessageClass(message)(**value).SerializeToString()
    found = ProtobufDecoder(message_fields(message), set_, "A").decode(pa.array([data], pa.binary()))
    assert found.reasons == []
    row = found.columns.to_pylist()[0]
    for number in range(1, len(names)):
        assert row["x"] == number
        assert row["one"] == row["many"][0] == row["named"][0][1]
        row = row["one"]
    assert row == {"x": len(names)}


def test_a_value_of_any_json() -> None:
    """google.protobuf.Struct contains itself over Value and ListValue."""
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", syntax="proto3")
    file.dependency.append("google/protobuf/struct.proto")
    add_field(file.message_type.add(name="Event"), "payload", F.TYPE_MESSAGE, ".google.protobuf.Struct")
    set_ = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    message = message_of_file(set_, None)
    event = GetMessageClass(message)()
    event.payload.update({"a": {"b": [1, None]}, "n": 2})
    found = ProtobufDecoder(message_fields(message), set_).decode(pa.array([event.SerializeToString()], pa.binary()))
    assert found.reasons == []
    payload = dict(found.columns.to_pylist()[0]["payload"]["fields"])
    assert payload["n"]["number_value"] == 2


def graph(count: int, *kinds: str, is_mesh: bool) -> bytes:
    """A descriptor set of messages A0, A1, ...: each contains the next one of a ring, or all others.

    `kinds` are the ways to contain one: "one", "many", "named" (a map) and "either" (a oneof).
    """
    file = descriptor_pb2.FileDescriptorProto(name="graph.proto", syntax="proto3")
    for number in range(count):
        message = file.message_type.add(name=f"A{number}")
        add_field(message, "x", F.TYPE_INT64)
        others = [each for each in range(count) if each != number] if is_mesh else [(number + 1) % count]
        for kind, other in itertools.product(kinds, others):
            if kind == "named":
                entry = message.nested_type.add(name=f"Named{other}Entry")
                entry.options.map_entry = True
                add_field(entry, "key", F.TYPE_STRING)
                add_field(entry, "value", F.TYPE_MESSAGE, f".A{other}")
                type_name = f".A{number}.{entry.name}"
            else:
                type_name = f".A{other}"
            part = add_field(message, f"{kind}{other}", F.TYPE_MESSAGE, type_name, repeated=kind in ("many", "named"))
            if kind == "either":
                part.oneof_index = 0
        if "either" in kinds and others:
            message.oneof_decl.add(name="choice")
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def nested_value(set_: bytes, count: int, kind: str, levels: int) -> bytes:
    """A value of A0 with messages inside each other, along the ring."""
    value: dict[str, Any] = {"x": levels}
    for level in range(levels, 0, -1):
        inner = {"many": [value], "named": {"k": value}}.get(kind, value)
        value = {"x": level - 1, f"{kind}{level % count}": inner}
    return GetMessageClass(message_of_file(set_, "A0"))(**value).SerializeToString()


@pytest.mark.parametrize("kinds", [("one",), ("many",), ("named",), ("either",), ("one", "many", "named", "either")])
@pytest.mark.parametrize("is_mesh", [False, True])
def test_recursive_types_load_or_are_refused_once(tmp_path: Path, kinds: tuple[str, ...], is_mesh: bool) -> None:
    path = tmp_path / "graph.desc"
    refusals = []
    for count in range(1, 11):
        set_ = graph(count, *kinds, is_mesh=is_mesh)
        path.write_bytes(set_)
        try:
            open_format(DecodeOptions("protobuf", path, message="A0"))
        except OperatorError as error:
            refusals.append(str(error))
            continue
        assert not refusals, "larger ones are refused too"
        fields = message_fields(message_of_file(set_, "A0"))
        depths = (0,) if is_mesh and count == 1 else (1, count, 3 * count)
        values = [nested_value(set_, count, kind, levels) for kind in kinds for levels in depths]
        found = ProtobufDecoder(fields, set_, "A0").decode(pa.array(values, pa.binary()))
        assert found.reasons == []
        assert found.columns.column("x").to_pylist() == [0] * len(values)
    assert bool(refusals) == (is_mesh or len(kinds) > 1)
    for refusal in refusals:
        assert f"{path} can't be used" in refusal
        assert "its message A0 has more than 10,000 fields of all levels" in refusal
        assert "a descriptor set with --schema that lacks" in refusal


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@pytest.mark.parametrize("kind", ["one", "many", "named"])
def test_deep_types_have_columns_in_every_format(make_lake: Callable[..., Lake], kind: str, table_format: str) -> None:
    """Delta's reader refuses 43 structs in each other."""
    set_ = graph(60, kind, is_mesh=False)
    lake = make_lake(table_format=table_format)
    for _ in range(2):
        lake.produce(nested_value(set_, 60, kind, 50))
        lake.load(ProtobufFormat(set_, "A0"))
    assert lake.letters() == {}
    row = lake.rows()[1]
    levels = 0
    while (name := f"{kind}{levels + 1}") in row:
        found = row[name]
        row = found if kind == "one" else found[0] if kind == "many" else found[0][1]
        levels += 1
        assert row["x"] == levels
    assert levels == (MAX_LEVELS - 1 if kind == "one" else (MAX_LEVELS - 1) // 2)


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_map_columns_and_their_values_grow_in_every_format(make_lake: Callable[..., Lake], table_format: str) -> None:
    lake = make_lake(table_format=table_format)
    for count in (2, 3):
        set_ = graph(count, "named", is_mesh=False)
        lake.produce(nested_value(set_, count, "named", count - 1))
        lake.load(ProtobufFormat(set_, "A0"))
    assert lake.letters() == {}
    assert [row["named1"] for row in lake.rows()] == [
        [("k", {"x": 1, "named2": None})],
        [("k", {"x": 1, "named2": [("k", {"x": 2})]})],
    ]


def registered(registry: RegistryServer, subject: str, set_: bytes) -> int:
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(set_).file
    return registry.register(subject, base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")


def with_id(number: int, value: bytes) -> bytes:
    """A value of the first message of a schema."""
    return b"\0" + number.to_bytes(4, "big") + b"\0" + value


@pytest.mark.parametrize("subject", ["clicks-value", "of-a-record"])
def test_large_types_of_a_registry_are_refused_once(lake: Lake, registry: RegistryServer, subject: str) -> None:
    set_ = graph(10, "one", is_mesh=True)
    number = registered(registry, subject, set_)
    lake.produce(with_id(number, nested_value(set_, 10, "one", 5)))
    wanted = r"schema.* in the schema registry can't be used: its message A0 has more than 10,000 fields .*--schema"
    with pytest.raises(OperatorError, match=wanted):
        lake.load(ProtobufFormat(registry=SchemaRegistry(registry.url)))
    assert not lake.table.exists()
    without_a_mesh = graph(10, "one", is_mesh=False)
    lake.load(ProtobufFormat(without_a_mesh, "A0", SchemaRegistry(registry.url)))
    assert [row["one1"]["x"] for row in lake.rows()] == [1]


def test_records_of_a_large_type_fill_existing_columns(lake: Lake, registry: RegistryServer) -> None:
    """An older schema, or a record with the id of a foreign one: the content of a record can't stop a load."""
    large = graph(10, "one", is_mesh=True)
    first = registered(registry, "clicks-value", large)
    small = graph(3, "one", is_mesh=False)
    second = registered(registry, "clicks-value", small)
    for _ in range(2):
        lake.produce(
            with_id(first, nested_value(large, 10, "one", 4)), with_id(second, nested_value(small, 3, "one", 1))
        )
        lake.load(ProtobufFormat(registry=SchemaRegistry(registry.url)))
    assert lake.letters() == {}
    levels = {"x": 0, "one1": {"x": 1, "one2": {"x": 2}}}
    assert [{name: row[name] for name in levels} for row in lake.rows()] == [
        levels,
        {"x": 0, "one1": {"x": 1, "one2": None}},
    ] * 2


KNOWN = {
    "google/protobuf/descriptor.proto": None, "google/protobuf/api.proto": "google.protobuf.Api",
    "google/type/date.proto": "google.type.Date", "google/type/datetime.proto": "google.type.DateTime",
    "google/type/money.proto": "google.type.Money", "confluent/meta.proto": "confluent.Meta",
    "confluent/type/decimal.proto": "confluent.type.Decimal",
}  # fmt: skip


def test_imports_that_each_registry_knows(lake: Lake, registry: RegistryServer) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.extend(KNOWN)
    order = file.message_type.add(name="Order")
    for name, message in KNOWN.items():
        if message:
            add_field(order, name.rpartition("/")[2].removesuffix(".proto"), F.TYPE_MESSAGE, f".{message}")
    order.field[0].options.MergeFromString(b"\x82\x44\x05\x0a\x03doc")  # (confluent.field_meta).doc
    number = registry.register("clicks-value", base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")
    set_ = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    made = GetMessageClass(message_of_file(set_, None))(
        date={"year": 2026, "month": 3, "day": 2}, decimal={"value": b"\x01\x02", "precision": 9, "scale": 2}
    )
    lake.produce(b"\0" + number.to_bytes(4, "big") + b"\0" + made.SerializeToString())
    lake.load(ProtobufFormat(registry=SchemaRegistry(registry.url)))
    assert lake.letters() == {}
    [row] = lake.rows()
    assert row["value_date"] == {"year": 2026, "month": 3, "day": 2}
    assert row["decimal"] == {"value": b"\x01\x02", "precision": 9, "scale": 2}
    assert {"api", "datetime", "money", "meta"} <= row.keys()


def test_message_indexes() -> None:
    assert message_indexes(b"\0rest", 0) == ((0,), 1)
    assert message_indexes(b"\x04\x02\x06rest", 0) == ((1, 3), 3)
    for value in (b"", b"\x02", b"\x01", b"\x02\x01", b"\xff" * 9, b"\xfe\xff\xff\xff\x0f"):
        with pytest.raises(ValueError, match="value"):
            message_indexes(value, 0)


def test_schemas_of_a_registry_make_the_columns(lake: Lake, registry: RegistryServer) -> None:
    """A file that imports another one; values of its second message type and of one inside its first."""
    imported = descriptor_pb2.FileDescriptorProto(name="any name", package="common", syntax="proto3")
    add_field(imported.message_type.add(name="Money"), "cents", F.TYPE_INT64)
    file = described()
    file.dependency.append("common/money.proto")
    add_field(file.message_type[1], "price", F.TYPE_MESSAGE, ".common.Money")
    registry.register("money", base64.b64encode(imported.SerializeToString()).decode(), "PROTOBUF")
    number = registry.register(
        "views", base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF", (("common/money.proto", "money"),)
    )
    text = registry.register("text", 'syntax = "proto3";', "PROTOBUF")
    start = b"\0" + number.to_bytes(4, "big")
    price = b"\x9a\x01\x02\x08\x07"  # field 19, a message of two bytes
    lake.produce(
        start + b"\x02\x02" + View(i64=1).SerializeToString() + price,
        start + b"\x04\x00\x00" + b"\x0a\x01y",
        start + b"\x02\x0a",
        b"\0" + text.to_bytes(4, "big") + b"\0",
        b"\0\0\0\0\x63\0",
        b"x",
    )
    lake.load(ProtobufFormat(registry=SchemaRegistry(registry.url)))
    found = [(row["offset"], row["i64"], row["price"], row["y"]) for row in lake.rows()]
    assert found == [(0, 1, {"cents": 7}, None), (1, None, None, "y")]
    letters = lake.letters()
    assert list(letters) == [2, 3, 4, 5]
    assert "no message at [5]" in letters[2]
    assert "add a descriptor set" in letters[3]
    assert "does not know schema 99" in letters[4]


def test_a_descriptor_set_beside_a_registry_reads_behind_the_ids(lake: Lake) -> None:
    lake.produce(b"\0\0\0\0\x07\0" + View(i64=3).SerializeToString())
    lake.load(ProtobufFormat(SET, "shop.View", SchemaRegistry("http://127.0.0.1:1")))
    assert lake.rows()[0]["i64"] == 3


def test_topic_with_text_only_schema_is_refused(lake: Lake, registry: RegistryServer) -> None:
    """The registry returns text only, so all its values would be dead letters; a descriptor set is the remedy."""
    number = registry.register("clicks-value", 'syntax = "proto3"; message View { int64 i64 = 2; }', "PROTOBUF")
    lake.produce(b"\0" + number.to_bytes(4, "big") + b"\0" + View(i64=3).SerializeToString())
    with pytest.raises(
        OperatorError, match=r"'clicks' .* can't be used: .* add a descriptor set of protoc with --schema"
    ):
        lake.load(ProtobufFormat(registry=SchemaRegistry(registry.url)))
    lake.load(ProtobufFormat(SET, "shop.View", SchemaRegistry(registry.url)))
    assert [row["i64"] for row in lake.rows()] == [3]
    assert lake.letters() == {}
