"""Change events of databases: rows of a history by the formats of their values. `snapshot/test_change_events.py`
applies them."""

from __future__ import annotations

import io
import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from ottla.common.errors import OperatorError

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
fastavro = pytest.importorskip("fastavro", reason="needs the extra `pipeline`")
pytest.importorskip("google.protobuf", reason="needs the extra `pipeline`")

from google.protobuf import descriptor_pb2  # noqa: E402
from google.protobuf.message_factory import GetMessageClass  # noqa: E402

from ottla.pipeline.transform.connect_types import base64_bytes  # noqa: E402
from ottla.pipeline.transform.decode_options import DecodeOptions  # noqa: E402
from ottla.pipeline.transform.open_format import open_format  # noqa: E402
from ottla.schemas.protobuf import message_of_file  # noqa: E402

from ..change_events import COLUMNS, SourceTable, base64_decimal  # noqa: E402
from .conftest import Lake  # noqa: E402
from .registry_server import RegistryServer  # noqa: E402

JSON = open_format(DecodeOptions("json", envelope="debezium"))
ROW = {
    "price": Decimal("-1234.50"),
    "born": date(1999, 12, 31),
    "changed": datetime(2026, 3, 2, 10, 20, 30, 123000),
    "seen": datetime(1969, 3, 2, 10, 20, 30, 123456),
    "paid": datetime(2026, 3, 2, 10, 20, 30, 5, tzinfo=UTC),
}


def test_load_keeps_events_with_kind_and_deleted_rows(lake: Lake) -> None:
    table = SourceTable(list(ROW))
    events = [table.put(1, dict(ROW)), table.put(1, ROW | {"price": None}), *table.delete(1)]
    lake.produce(*(value for _, value in events), b'{"op":"t"}', b'{"op":"x"}')
    lake.load(JSON)
    rows = [{"offset": offset, "id": 1, **ROW, "__op": kind} for offset, kind in enumerate("cud")]
    rows[1]["price"] = rows[2]["price"] = None
    empty = dict.fromkeys(rows[0])
    rows += [empty | {"offset": 3}, empty | {"offset": 4, "__op": "t"}]
    assert lake.rows() == rows
    assert list(lake.letters()) == [5]
    lake.produce(b'{"op":"c","after":{"id":7,"__op":5}}')  # the converter's setting was changed
    lake.load(JSON)
    assert lake.rows()[-1] == empty | {"offset": 6, "id": 7, "__op": "c"}


def test_row_depends_on_its_value_alone() -> None:
    """Values with several schemas, with none, and bad ones side by side give the rows that each gives alone."""
    first, second, bare = SourceTable(list(ROW)), SourceTable(["name", "price"]), SourceTable(["name"], False)
    values = [first.put(1, ROW)[1], second.put(2, {"name": "a", "price": Decimal(5)})[1], bare.put(3, {"name": "b"})[1]]
    values += [None, b"broken", b'{"schema":{},"payload":{}}', b'{"schema":{"type":"struct"', *values[:2]]
    whole = first.put(1, ROW, "r")[1] or b""
    values += [whole.replace(b'"after":{"id":1', b'"after":{"id":"x"'), whole + b" \n"]
    values += [whole.replace(base64_decimal(Decimal("-1234.50")).encode(), b"****"), whole + b"}"]
    fields = JSON.fields(pa.schema([]), {"t": pa.array(values, pa.binary())})
    decoder = JSON.decoder(fields)
    alone = [decoder.decode(pa.array([value], pa.binary())) for value in values]
    decoder = pickle.loads(pickle.dumps(decoder))
    found = decoder.decode(pa.array([None, *values], pa.binary()).slice(1))
    assert found.bad == [number for number, one in enumerate(alone) if one.bad] == [4, 5, 6, 9, 11, 12]
    good = [number for number in range(len(values)) if number not in found.bad]
    rows = found.columns.to_pylist()
    assert [rows[number] for number in good] == [alone[number].columns.to_pylist()[0] for number in good]
    assert rows[0] == rows[7] == {"id": 1, **ROW, "name": None, "__op": "c"}
    assert rows[10] == rows[0] | {"__op": "r"}


def test_decimals_of_both_formats_are_decimals(lake: Lake) -> None:
    """With `decimal.format=NUMERIC` of the converter, and with its default."""
    table = SourceTable(["price"])
    [_, as_bytes] = table.put(1, {"price": Decimal("12.34")})
    assert as_bytes is not None
    as_number = as_bytes.replace(b'"BNI="', b"12.34")
    assert as_number != as_bytes
    lake.produce(as_bytes, as_number, as_bytes.replace(b'"BNI="', b'"%s"' % (b"/" * 40)))
    lake.load(JSON)
    assert [row["price"] for row in lake.rows()] == [Decimal("12.34")] * 2
    assert "'price' has a value that its column" in lake.letters()[2]


def test_text_that_is_not_base64_is_found() -> None:
    texts = ["AA==", "", "AAE=", "AAEC", "A", "AB=C", "====", "A===", "=", "ä", "A-_A", None]
    found, bad = base64_bytes(pa.array([None, *texts]).slice(1))
    assert found.to_pylist() == [b"\0", b"", b"\0\1", b"\0\1\2"] + [None] * 8
    assert bad.tolist() == [False] * 4 + [True] * 7 + [False]


def connect(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "connect.name": name}


def test_avro_events_have_the_types_of_debezium(lake: Lake, registry: RegistryServer) -> None:
    fields = [
        {"name": "id", "type": "int"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "born", "type": ["null", connect("int", "io.debezium.time.Date")]},
        {"name": "changed", "type": connect("long", "io.debezium.time.Timestamp")},
        {"name": "seen", "type": connect("long", "io.debezium.time.MicroTimestamp")},
        {"name": "paid", "type": ["null", connect("string", "io.debezium.time.ZonedTimestamp")]},
    ]
    row = {"type": "record", "name": "Value", "fields": fields}
    envelope = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", row]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
        ],
    }
    number = registry.register("clicks-value", json.dumps(envelope))
    stored = {name: COLUMNS[name].stored(value) for name, value in ROW.items() if name != "price"}
    stored |= {"id": 1, "price": ROW["price"]}

    def written(event: dict[str, Any]) -> bytes:
        file = io.BytesIO()
        fastavro.schemaless_writer(file, fastavro.parse_schema(envelope), event)
        return b"\0" + number.to_bytes(4, "big") + file.getvalue()

    later = {"before": None, "after": stored | {"paid": "+10000-01-01T00:00:00Z"}, "op": "u"}
    lake.produce(
        written({"before": None, "after": stored, "op": "c"}),
        written({"before": stored, "after": None, "op": "d"}),
        written(later),
    )
    lake.load(open_format(DecodeOptions("avro", schema_registry=registry.url, envelope="debezium")))
    assert lake.rows() == [{"offset": offset, "id": 1, **ROW, "__op": kind} for offset, kind in enumerate("cd")]
    assert "'after.paid' is '+10000" in lake.letters()[2]


def test_protobuf_events_have_rows(lake: Lake, tmp_path: Any) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="e.proto", package="shop", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    row, event = file.message_type.add(name="Value"), file.message_type.add(name="Envelope")
    row.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    for number, name in enumerate(("before", "after"), 1):
        part = event.field.add(name=name, number=number, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_OPTIONAL)
        part.type_name = ".shop.Value"
    event.field.add(name="op", number=3, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    path = tmp_path / "e.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    options = DecodeOptions("protobuf", schema=path, message="shop.Envelope", envelope="debezium")
    made = GetMessageClass(message_of_file(path.read_bytes(), "shop.Envelope"))
    lake.produce(
        made(after={"id": 5}, op="c").SerializeToString(),
        made(before={"id": 5}, op="d").SerializeToString(),
        made(after={"id": 5}).SerializeToString(),
    )
    lake.load(open_format(options))
    assert lake.rows() == [{"offset": 0, "id": 5, "__op": "c"}, {"offset": 1, "id": 5, "__op": "d"}]
    assert list(lake.letters()) == [2]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (DecodeOptions("raw", envelope="debezium"), "use it with --decode json or avro or protobuf"),
        (DecodeOptions("csv", envelope="maxwell"), "use it with --decode json$"),
        (DecodeOptions("json", envelope="debezium", map_keys=5), "--map-keys and maps of --type do not apply"),
    ],
)
def test_options_without_events_are_refused(options: DecodeOptions, reason: str) -> None:
    with pytest.raises(OperatorError, match=reason):
        open_format(options)
