"""Keys and values by schemas of a registry or a file, and MessagePack: values, reasons of failures, cost."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

fastavro = pytest.importorskip("fastavro", reason="needs the extra `search`")
msgpack = pytest.importorskip("msgpack", reason="needs the extra `search`")
pytest.importorskip("google.protobuf", reason="needs the extra `search`")

from google.protobuf import descriptor_pb2  # noqa: E402
from google.protobuf.descriptor_pool import DescriptorPool  # noqa: E402
from google.protobuf.message_factory import GetMessageClass  # noqa: E402

from ottla.common.errors import OperatorError  # noqa: E402
from ottla.schemas import registry as registries  # noqa: E402
from ottla.schemas.registry import SchemaRegistry  # noqa: E402
from ottla.schemas.settings import SchemaFile, SchemaSettings  # noqa: E402
from ottla.search.decoder_factory import open_decoder  # noqa: E402
from ottla.search.evaluation import compile_filter  # noqa: E402
from ottla.search.parser import parse_query  # noqa: E402
from ottla.search.schema_decoders import MAX_FAILURES  # noqa: E402
from ottla.search.subject import Decoders  # noqa: E402

from ..pipeline.transform.registry_server import RegistryServer, guid, registry_server  # noqa: E402
from .records import decode, subject  # noqa: E402

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["open", "late"]}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "weight", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "note", "type": ["null", "string"]},
    ],
}
ORDER_VALUE = {
    "id": 2**53 + 1,
    "state": "late",
    "price": Decimal("12.30"),
    "at": 1_767_225_600_000,
    "weight": 0.1,
    "raw": b"\x00\xff",
    "tags": ["a", "b"],
    "note": None,
}
ORDER_DECODED = {
    "id": 2**53 + 1,
    "state": "late",
    "price": Decimal("12.30"),
    "at": "2026-01-01T00:00:00+00:00",
    "weight": Decimal("0.1"),
    "raw": "00ff",
    "tags": ["a", "b"],
    "note": None,
}


def avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def framed(number: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + body


def view_file() -> Any:
    """A file with `View {int64 id; float part; bytes raw; repeated string tags; map<string, int32> counts; View next;
    Kind kind}`."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="view.proto", package="p", syntax="proto3")
    view = file.message_type.add(name="View")
    for number, (name, type_) in enumerate(
        (("id", kinds.TYPE_INT64), ("part", kinds.TYPE_FLOAT), ("raw", kinds.TYPE_BYTES)), 1
    ):
        view.field.add(name=name, number=number, type=type_, label=kinds.LABEL_OPTIONAL)
    view.field.add(name="tags", number=4, type=kinds.TYPE_STRING, label=kinds.LABEL_REPEATED)
    entry = view.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    repeated = {"type": kinds.TYPE_MESSAGE, "label": kinds.LABEL_REPEATED}
    view.field.add(name="counts", number=5, type_name=".p.View.CountsEntry", **repeated)
    view.field.add(name="next", number=6, type=kinds.TYPE_MESSAGE, type_name=".p.View", label=kinds.LABEL_OPTIONAL)
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="LAST", number=1)
    view.field.add(name="kind", number=7, type=kinds.TYPE_ENUM, type_name=".p.Kind", label=kinds.LABEL_OPTIONAL)
    return file


def view_message() -> bytes:
    pool = DescriptorPool()
    pool.AddSerializedFile(view_file().SerializeToString())
    make = GetMessageClass(pool.FindMessageTypeByName("p.View"))
    return bytes(
        make(id=7, part=0.1, raw=b"\1", tags=["x"], counts={"a": 2}, next=make(id=8, kind=1)).SerializeToString()
    )


LEAF = {"part": Decimal(0), "raw": "", "tags": [], "counts": {}}
VIEW_DECODED = {
    "id": 7,
    "part": Decimal("0.1"),
    "raw": "01",
    "tags": ["x"],
    "counts": {"a": 2},
    "next": {"id": 8, **LEAF, "kind": "LAST"},
    "kind": "NONE",
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(registries, "PAUSE_S", 0.0)
    with registry_server() as started:
        yield started


def settings_of(server: RegistryServer) -> SchemaSettings:
    return SchemaSettings(SchemaRegistry(server.url))


def test_avro_by_registry_is_decoded_exactly(server):
    number = server.register("t-value", json.dumps(ORDER))
    value = framed(number, avro(ORDER, ORDER_VALUE))
    for name in ("auto", "registry", "avro"):
        assert decode(name, value, b"k", settings=settings_of(server)) == (ORDER_DECODED, "avro", None, number)


def test_schema_id_in_header_takes_precedence(server):
    number = server.register("t-value", json.dumps(ORDER))
    headers = [("__value_schema_id", b"\1" + guid(number).bytes)]
    decoded = decode("auto", avro(ORDER, ORDER_VALUE), b"k", headers, settings_of(server))
    assert decoded == (ORDER_DECODED, "avro", None, str(guid(number)))
    key = decode("auto", avro("string", "a"), None, [("__key_schema_id", framed(2, b""))], settings_of(server))
    assert key.failure is not None
    server.register("t-key", '"string"')
    key = decode("auto", avro("string", "a"), None, [("__key_schema_id", framed(2, b""))], settings_of(server))
    assert key == ("a", "avro", None, 2)


def test_protobuf_by_registry_has_names_and_defaults(server):
    import base64

    number = server.register("t-value", base64.b64encode(view_file().SerializeToString()).decode(), "PROTOBUF")
    value = framed(number, b"\0" + view_message())
    decoded = decode("auto", value, b"k", settings=settings_of(server))
    assert decoded == (VIEW_DECODED, "protobuf", None, number)
    wrong = decode("avro", value, b"k", settings=settings_of(server))
    assert (wrong.value, wrong.failure) == (value, f"schema {number} in the registry is of type protobuf, not avro")


def test_json_schema_by_registry_is_decoded(server):
    number = server.register("t-value", "{}", "JSON")
    decoded = decode("registry", framed(number, b'{"a": 1}'), b"k", settings=settings_of(server))
    assert decoded == ({"a": 1}, "json", None, number)


def test_schema_files_decode_without_registry():
    avro_file = SchemaSettings(value=SchemaFile(json.dumps(ORDER).encode()))
    assert decode("avro", avro(ORDER, ORDER_VALUE), b"k", settings=avro_file).value == ORDER_DECODED
    descriptors = descriptor_pb2.FileDescriptorSet(file=[view_file()]).SerializeToString()
    protobuf_file = SchemaSettings(key=SchemaFile(descriptors, "p.View"))
    assert decode("protobuf", view_message(), settings=protobuf_file).value == VIEW_DECODED
    failed = decode("protobuf", b"\xff\xff", settings=protobuf_file)
    assert failed.value == b"\xff\xff"
    assert str(failed.failure).startswith("the value is not a message of p.View: ")


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("avro", None, "the decoder avro needs the schema of values: add --schema FILE, or --schema-registry URL"),
        ("registry", None, "the decoder registry needs the schema of values: add --schema-registry URL"),
        (
            "avro",
            SchemaSettings(value=SchemaFile(b"{")),
            "the schema of --schema can't be used: it is not a valid Avro",
        ),
        (
            "protobuf",
            SchemaSettings(value=SchemaFile(b"x")),
            "the schema of --schema can't be used: it is not a set of",
        ),
    ],
)
def test_decoder_without_usable_schema_is_refused(name, settings, reason):
    with pytest.raises(OperatorError, match=reason):
        open_decoder(name, settings)


def test_registry_that_is_down_is_asked_once_and_named(server):
    server.fails_with = 503
    decoder = open_decoder("auto", settings_of(server))
    for number in range(50):
        data = framed(number, b"\2a")
        found = decoder.decode(data, subject(data, b"k"))
        assert found.value == data
        reason = f"the schema registry at {server.url} can't be reached: it answers with status 503"
        assert found.failure == reason
    assert len(server.requests) == registries.ATTEMPTS
    text = decoder.decode(b"text", subject(b"text", b"k"))
    assert text == ("text", "text", None, None)


def test_words_find_records_of_a_registry_that_is_down(server):
    server.fails_with = 503
    record = subject(framed(1, b"needle"), b"k", decoders=Decoders(), settings=settings_of(server))
    assert compile_filter(parse_query("needle", 0).filter)(record)
    assert record.decoded_value.failure is not None
    assert record.batch.tally.undecodable == 1


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ('{"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}', "contains itself"),
        ('{"type": "array", "items": "null"}', "array of items without bytes"),
        ("{", "it is not a valid Avro schema"),
    ],
)
def test_hostile_avro_schema_leaves_records_raw(server, schema, reason):
    number = server.register("t-value", schema)
    data = framed(number, b"\xff" * 9)
    decoded = decode("auto", data, b"k", settings=settings_of(server))
    assert decoded.value == data
    assert reason in str(decoded.failure)


def test_cut_and_surplus_avro_values_have_a_reason(server):
    number = server.register("t-value", json.dumps(ORDER))
    whole = framed(number, avro(ORDER, ORDER_VALUE))
    decoder = open_decoder("avro", settings_of(server))
    for data in (*(whole[:length] for length in range(len(whole))), whole + b"x"):
        found = decoder.decode(data, subject(data, b"k"))
        assert (found.value, bool(found.failure)) == (data, True)


def test_unknown_schema_has_a_reason_and_is_asked_once(server):
    decoder = open_decoder("auto", settings_of(server))
    for _ in range(3):
        found = decoder.decode(framed(9, b"x"), subject(None))
        assert "does not know schema 9" in str(found.failure)
    assert len(server.requests) == 1


def test_ever_new_ids_are_not_all_requested(server):
    decoder = open_decoder("auto", settings_of(server))
    for number in range(3 * MAX_FAILURES):
        found = decoder.decode(framed(number, b"x"), subject(None))
        assert found.failure is not None
    assert len(server.requests) == MAX_FAILURES
    assert "no more schemas are requested" in str(found.failure)


@pytest.mark.parametrize(
    ("value", "decoded"),
    [
        ({"a": [1, 2.5, None, True, "x"]}, {"a": [1, Decimal("2.5"), None, True, "x"]}),
        ({1: b"\xff", b"\1": 3}, {"1": "ff", "01": 3}),
        (2**63, 2**63),
        (msgpack.Timestamp(1_767_225_600, 0), "2026-01-01T00:00:00+00:00"),
        (msgpack.ExtType(5, b"\1"), {"type": 5, "data": "01"}),
    ],
)
def test_msgpack_is_decoded(value, decoded):
    found = decode("msgpack", msgpack.packb(value))
    assert (found.failure, found.decoder) == (None, "msgpack")
    assert found.value == decoded


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 100_000,
        b"\x01\x01",
        b"\xa1\xff",
        b"\x81\x90\x01",
    ],
)
def test_hostile_msgpack_has_a_reason(data):
    found = decode("msgpack", data)
    assert found.value == data
    assert found.failure
