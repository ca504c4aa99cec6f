"""Small values that would become large columns: memory is bounded, and a single value that is too large is bad."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
fastavro = pytest.importorskip("fastavro", reason="needs the extra `pipeline`")
pytest.importorskip("google.protobuf", reason="needs the extra `pipeline`")

from google.protobuf import descriptor_pb2  # noqa: E402

from ottla.pipeline.model.decode import SCHEMA  # noqa: E402
from ottla.pipeline.stream.letters import DecodingTask  # noqa: E402
from ottla.pipeline.transform import json_decoder, protobuf_decoder, record_decoder  # noqa: E402
from ottla.pipeline.transform.avro_decoder import AvroDecoder  # noqa: E402
from ottla.pipeline.transform.avro_schema import parse_avro  # noqa: E402
from ottla.pipeline.transform.decoder import cell_count, item_cells  # noqa: E402
from ottla.pipeline.transform.json_decoder import JsonDecoder  # noqa: E402
from ottla.pipeline.transform.protobuf_decoder import ProtobufDecoder, message_fields  # noqa: E402
from ottla.pipeline.transform.record_decoder import RecordDecoder  # noqa: E402
from ottla.schemas.avro import AvroSchemaError  # noqa: E402
from ottla.schemas.protobuf import message_of_file  # noqa: E402

CELLS = 100
ITEM = pa.struct([(f"f{number}", pa.int64()) for number in range(10)])
NESTED = pa.schema([("id", pa.int64()), ("l", pa.list_(ITEM)), ("s", pa.string())])


@pytest.fixture(autouse=True)
def few_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (json_decoder, protobuf_decoder, record_decoder):
        monkeypatch.setattr(module, "MAX_CELLS", CELLS)


def records(*values: bytes | None) -> Any:
    rows = [
        {"topic": "t" * 249, "partition": 0, "offset": offset, "value": value} for offset, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def with_items(count: int, **fields: Any) -> bytes:
    return json.dumps({"id": count, "l": [{}] * count, **fields}).encode()


def test_cell_counts_of_types() -> None:
    deep = pa.list_(pa.struct([("x", pa.list_(ITEM)), ("y", pa.map_(pa.string(), pa.int64()))]))
    assert (cell_count(ITEM), cell_count(pa.struct(list(NESTED))), cell_count(deep)) == (10, 3, 1)
    assert [item_cells(type_) for type_ in (ITEM, pa.list_(pa.int64()), pa.list_(ITEM), deep)] == [0, 0, 10, 10]


def test_json_of_many_empty_objects() -> None:
    """Alone and among others; braces in text and in ignored fields are not objects of the list."""
    good = [with_items(9), with_items(1, s="{" * 50), with_items(2, other=[{}] * 50)]
    values = [good[0], with_items(10), good[1], with_items(1_000), good[2], b'{"l":' + b"[{}," * 1_000, None]
    found = JsonDecoder(NESTED).decode(pa.array(values, pa.binary()))
    assert found.columns.column("id").to_pylist() == [9, None, 1, None, 2, None, None]
    assert found.bad == [1, 3, 5]
    assert "more than 100 fields, absent ones too" in found.reasons[0] == found.reasons[1]
    assert "can't be inspected" in found.reasons[2]
    alone = JsonDecoder(NESTED).decode(pa.array(values[3:4], pa.binary()))
    assert alone.reasons == found.reasons[1:2]


def test_messages_of_many_empty_messages() -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="x.proto", syntax="proto3")
    many, item = file.message_type.add(name="Many"), file.message_type.add(name="Item")
    many.field.add(name="l", number=1, type=kinds.TYPE_MESSAGE, type_name=".Item", label=kinds.LABEL_REPEATED)
    many.field.add(name="id", number=2, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    for number in range(1, 11):
        item.field.add(name=f"f{number}", number=number, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    text = files.SerializeToString()
    decoder = ProtobufDecoder(message_fields(message_of_file(text, "Many")), text, "Many")
    found = decoder.decode(pa.array([b"\x0a\0" * 9 + b"\x10\x01", b"\x0a\0" * 10, b"\x0a\0" * 9 + b"\x10\x02"]))
    assert found.columns.column("id").to_pylist() == [1, None, 2]
    assert "more than 100 fields" in found.reasons[0]
    assert decoder.most_cells(pa.array([b"\x0a\0" * 9])) >= 90


def test_avro_of_items_without_bytes() -> None:
    def schema(empty: int) -> str:
        fields = [
            {"name": "b", "type": "boolean"},
            *({"name": f"n{number}", "type": "null"} for number in range(empty)),
        ]
        item = [{"type": "record", "name": "Item", "fields": fields}, "string"]
        many = {"name": "l", "type": {"type": "map", "values": {"type": "array", "items": item}}}
        return json.dumps({"type": "record", "name": "Many", "fields": [many]})

    file = io.BytesIO()
    fastavro.schemaless_writer(file, json.loads(schema(16)), {"l": {"x": ["text"]}})
    assert not AvroDecoder(parse_avro(schema(16)).fields, schema(16)).decode(pa.array([file.getvalue()])).bad
    with pytest.raises(AvroSchemaError, match="more than 16 fields without bytes"):
        parse_avro(schema(17))


def test_a_batch_is_decoded_in_pieces() -> None:
    """Each piece within the cell limit, or of one row."""
    wide = pa.schema([(f"c{number}", pa.int64()) for number in range(30)])
    for schema, values, expected in [
        (wide, [b"{}"] * 8, [2, 2, 2, 2]),
        (NESTED, [with_items(1), with_items(1_000), *[with_items(0)] * 8], [1, 1, 3, 5]),
    ]:
        decoder = RecordDecoder(JsonDecoder(schema), pa.schema([*SCHEMA, *schema]))
        pieces = list(decoder.pieces(records(*values)))
        assert pa.Table.from_batches(pieces).column("value").to_pylist() == values
        assert [piece.num_rows for piece in pieces] == expected


def test_letters_of_a_stream_from_a_topic_with_a_long_name(tmp_path: Path) -> None:
    """In pieces as well, and all attempts at a task leave one file."""
    decoder = RecordDecoder(JsonDecoder(NESTED), pa.schema([*SCHEMA, *NESTED]))
    batch = records(with_items(1), with_items(1_000), b"no JSON", *[with_items(2)] * 9)
    source = batch.rename_columns(["timestampType" if n == "timestamp_type" else n for n in batch.schema.names])
    for _ in range(2):
        rows = list(DecodingTask(decoder, tmp_path, "view")(iter([source])))
        assert sum(part.num_rows for part in rows) == 10
        (file,) = tmp_path.iterdir()
        assert file.match("letters-*.parquet")
        assert pa.parquet.read_table(file).column("offset").to_pylist() == [1, 2]
