"""Avro: columns equal the values that fastavro wrote, by a schema in a file or by those of a registry."""

from __future__ import annotations

import io
import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.errors import OperatorError

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
fastavro = pytest.importorskip("fastavro", reason="needs the extra `pipeline`")

from ottla.pipeline.transform.avro_decoder import AvroDecoder  # noqa: E402
from ottla.pipeline.transform.avro_format import AvroFormat  # noqa: E402
from ottla.pipeline.transform.avro_schema import parse_avro  # noqa: E402
from ottla.pipeline.transform.decode_options import DecodeOptions  # noqa: E402
from ottla.pipeline.transform.open_format import open_format  # noqa: E402
from ottla.schemas import registry as registries  # noqa: E402
from ottla.schemas.registry import SchemaRegistry  # noqa: E402

from .conftest import Lake  # noqa: E402
from .registry_server import RegistryServer  # noqa: E402


def record(*fields: tuple[str, Any], name: str = "Value") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": type_} for field, type_ in fields]}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def written(schema: Any, value: Any, number: int | None = None) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return (b"" if number is None else b"\0" + number.to_bytes(4, "big")) + file.getvalue()


def decode(schema: Any, *values: bytes | None) -> tuple[list[dict[str, Any]], dict[int, str]]:
    text = json.dumps(schema)
    decoder = pickle.loads(pickle.dumps(AvroDecoder(parse_avro(text).fields, text)))
    result = decoder.decode(pa.array(values, pa.binary()))
    assert result.columns.num_rows == len(values)
    return result.columns.to_pylist(), dict(zip(result.bad, result.reasons, strict=True))


EVERY_TYPE = record(
    ("b", "boolean"),
    ("i", "int"),
    ("l", ["null", "long"]),
    ("f", "float"),
    ("d", "double"),
    ("s", ["string", "null"]),
    ("raw", "bytes"),
    ("e", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    ("again", "Kind"),
    ("fix", {"type": "fixed", "name": "Two", "size": 2}),
    ("list", {"type": "array", "items": ["null", "int"]}),
    ("map", {"type": "map", "values": record(("x", "long"), name="Inner")}),
    ("nested", ["null", "Inner"]),
    ("day", logical("int", "date")),
    ("ms", logical("long", "timestamp-millis")),
    ("us", ["null", logical("long", "timestamp-micros")]),
    ("local", logical("long", "local-timestamp-millis")),
    ("price", logical("bytes", "decimal", precision=10, scale=2)),
    ("clock", logical("int", "time-millis")),
    ("id", logical("string", "uuid")),
    ("either", ["int", "string"]),
    ("number", ["null", "int", "long"]),
)


def test_every_type_arrives() -> None:
    value = {
        "b": True, "i": -5, "l": 2**62, "f": 0.5, "d": 0.1, "s": None, "raw": b"\0\xff", "e": "B", "again": "A",
        "fix": b"ab", "list": [1, None], "map": {"k": {"x": 1}}, "nested": {"x": 2}, "day": date(2024, 2, 29),
        "ms": datetime(2026, 3, 2, 10, 5, 3, 7_000, UTC), "us": datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        "local": datetime(2026, 3, 2, 10, 5), "price": Decimal("-12.34"), "clock": 1_000,
        "id": "0c9f1d2e-0000-4000-8000-000000000001", "either": "x", "number": 2**40,
    }  # fmt: skip
    stored = {**value, "clock": __import__("datetime").time(0, 0, 1), "id": UUID(str(value["id"]))}
    [row], bad = decode(EVERY_TYPE, written(EVERY_TYPE, stored))
    assert not bad
    assert "either" not in row
    assert {**row, "map": dict(row["map"])} == {name: one for name, one in value.items() if name != "either"}


@pytest.mark.parametrize(
    ("precision", "scale", "is_decimal"),
    [(38, 0, True), (38, 38, True), (1, 1, True), (39, 0, False), (4, 5, False), (4, -1, False), (0, 0, False)],
)
def test_decimal_outside_of_its_bounds_stays_bytes(precision: int, scale: int, is_decimal: bool) -> None:
    """Avro: a logical type that is invalid is ignored, and the underlying type is used."""
    schema = record(("x", logical("bytes", "decimal", precision=precision, scale=scale)))
    plain = record(("x", "bytes"))
    [row], bad = decode(schema, written(plain, {"x": b"\x01"}))
    assert not bad
    assert row["x"] == (Decimal(1).scaleb(-scale) if is_decimal else b"\x01")


SMALL = record(("id", "long"), ("name", ["null", "string"]), ("tags", {"type": "array", "items": "string"}))
GOOD = written(SMALL, {"id": 1, "name": "a", "tags": ["x"]})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "too early"),
        (GOOD[:-1], "its schema"),
        (GOOD + b"x", "has 1 bytes after"),
        (b"\x02\x08", "its schema"),
        (b"\x02\x02\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", "its schema"),
        (b"\x02\x02\x04\xff\xff\0", "its schema"),
        (b"\xff" * 30, "its schema"),
    ],
)
def test_a_bad_value_has_its_reason_and_spoils_no_other(value: bytes, reason: str) -> None:
    rows, bad = decode(SMALL, GOOD, value, None, GOOD)
    assert list(bad) == [1]
    assert reason in bad[1]
    assert [row["id"] for row in rows] == [1, None, None, 1]


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "id": st.integers(-(2**63), 2**63 - 1),
                "name": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
            }
        ).map(lambda found: {**found, "tags": ["t"] * (found["id"] % 3)})
    )
)
def test_decoded_records_equal_written_ones(values: list[dict[str, Any]]) -> None:
    assert decode(SMALL, *(written(SMALL, value) for value in values)) == (values, {})


def grown(width: int, levels: int, leaf: str) -> dict[str, Any]:
    """A record of that many levels of records, each `width` times in the one above it, by its name."""
    fields = [("r0", record(("x", leaf), name="R0"))]
    for level in range(1, levels):
        parts = [(f"f{number}", f"R{level - 1}") for number in range(width)]
        fields.append((f"r{level}", record(*parts, name=f"R{level}")))
    return record(*fields)


MALFORMED = (
    "null",
    "7",
    "[]",
    "{}",
    '{"type": "record"}',
    '{"type": "record", "name": 5, "fields": []}',
    '{"type": "record", "name": "a", "fields": 5}',
    '{"type": "record", "name": "a", "fields": [5]}',
    '{"type": "record", "name": "a", "fields": [{}]}',
    '{"type": "record", "name": "a", "fields": {"b": "long"}}',
    '{"type": "record", "name": "a", "fields": [{"name": "b", "type": 7}]}',
    '{"type": "record", "name": "a", "fields": [{"name": 7, "type": "long"}]}',
    '{"type": "record", "name": "a", "fields": [{"name": "b", "type": null}]}',
    '{"type": "record", "name": "a", "fields": [{"name": "b", "type": {"type": "array"}}]}',
    '{"type": "record", "name": "a", "fields": [{"name": "b", "type": {"type": "enum", "name": "e", "symbols": 5}}]}',
    '{"type": "record", "name": "a", "fields": [{"name": "b", "type": {"type": "fixed", "name": "e"}}]}',
    '{"type": "record", "name": "a", "fields": [{"name": "b", "type": {"type": {"type": {}}}}]}',
    '{"type": "record", "name": "a", "aliases": 5, "fields": [{"name": "b", "aliases": 5, "type": []}, 5]}',
    '{"type": "record", "name": "a", "namespace": 5, "fields": [{"name": "b", "type": "c.d"}]}',
)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("", "not a valid Avro schema"),
        ("{", "not a valid Avro schema"),
        ('"long"', "not the schema of a record"),
        (json.dumps(record(("a", "Unknown"))), "not a valid Avro schema"),
        (json.dumps(record(("next", ["null", "Value"]))), "contains itself"),
        (json.dumps(record(("a", {"type": "array", "items": "null"}))), "without bytes"),
        (json.dumps(record(("a", {"type": "array", "items": record(name="Nothing")}))), "without bytes"),
        ('{"type":' * 3_000 + '"long"' + "}" * 3_000, "Avro schema|deep"),
        (
            json.dumps(record(("a", {"type": "array", "items": record(("b", "Inner"), name="Inner")}))),
            "contains itself",
        ),
        (json.dumps(grown(2, 40, "long")), "more than 10,000 fields"),
        (json.dumps(grown(2, 40, "null")), "more than 10,000 fields"),
        (json.dumps(grown(1, 2_000, "long")), "nested more than 64 deep"),
        (json.dumps([record(("a", "long")), "string"]), "union of records and other types"),
        (json.dumps(["null", {"type": "map", "values": "long"}]), "not the schema of a record"),
        (json.dumps(["null", record(("next", ["null", "Value"]))]), "contains itself"),
        ("[]", "not the schema of a record"),
        *((text, "not a valid Avro schema|not the schema of a record|not a string") for text in MALFORMED),
    ],
    ids=lambda text: text[:60],
)
def test_unusable_avro_schemas_are_refused(tmp_path: Path, schema: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_avro(schema)
    path = tmp_path / "schema.avsc"
    path.write_text(schema)
    with pytest.raises(
        OperatorError, match=f"can't be used as an .avsc file: .*{message}" if "|" not in message else "used"
    ):
        open_format(DecodeOptions("avro", path))


def test_a_schema_or_a_registry_is_needed() -> None:
    with pytest.raises(OperatorError, match="--schema-registry URL"):
        open_format(DecodeOptions("avro"))
    with pytest.raises(OperatorError, match="takes the URL of a schema registry"):
        open_format(DecodeOptions("avro", schema_registry="registry:8081"))


def test_schemas_of_a_registry_make_the_columns(lake: Lake, registry: RegistryServer) -> None:
    old, new = record(("id", "int")), record(("id", "long"), ("name", ["null", "string"]))
    one, two = registry.register("clicks-value", json.dumps(old)), registry.register("clicks-value", json.dumps(new))
    other = registry.register("other", json.dumps(record(("id", "string"))))
    by_registry = open_format(DecodeOptions("avro", schema_registry=registry.url))
    lake.produce(
        written(old, {"id": 1}, one), written(new, {"id": 2**40, "name": "b"}, two), None, b"\0\0\0\0\x63", b"{}"
    )
    lake.produce(written(record(("id", "string")), {"id": "text"}, other))
    lake.load(by_registry)
    assert [tuple(row.values()) for row in lake.rows()] == [(0, 1, None), (1, 2**40, "b"), (2, None, None)]
    assert lake.letters().keys() == {3, 4, 5}
    assert "does not know schema 99" in lake.letters()[3]
    assert "neither the value nor a header of its record begins with the id" in lake.letters()[4]
    assert registry.requests.count("/schemas/ids/1") == 1
    newest = record(("id", "long"), ("more", "double"))
    three = registry.register("clicks-value", json.dumps(newest))
    lake.produce(written(newest, {"id": 3, "more": 0.5}, three))
    lake.load(by_registry)
    assert lake.rows()[-1] == {"offset": 6, "id": 3, "name": None, "more": 0.5}


def test_references(lake: Lake, registry: RegistryServer) -> None:
    inner = record(("x", "long"), name="Inner")
    registry.register("inner", json.dumps(inner))
    outer = record(("id", "int"), ("inner", "Inner"))
    number = registry.register("clicks-value", json.dumps(outer), references=(("Inner", "inner"),))
    lake.produce(written(record(("id", "int"), ("inner", inner)), {"id": 1, "inner": {"x": 2}}, number))
    lake.load(AvroFormat(registry=SchemaRegistry(registry.url)))
    assert lake.rows() == [{"offset": 0, "id": 1, "inner": {"x": 2}}]


def test_null_joined_with_a_record(lake: Lake, registry: RegistryServer) -> None:
    union = ["null", record(("id", "int"), ("tags", {"type": "array", "items": "string"}))]
    number = registry.register("clicks-value", json.dumps(union))
    lake.produce(written(union, {"id": 1, "tags": ["a"]}, number), written(union, None, number), b"\0\0\0\0\x01\x04")
    lake.load(AvroFormat(registry=SchemaRegistry(registry.url)))
    rows = [{"offset": 0, "id": 1, "tags": ["a"]}, {"offset": 1, "id": None, "tags": None}]
    assert (lake.rows(), list(lake.letters())) == (rows, [2])


def test_a_union_of_records_of_other_subjects(lake: Lake, registry: RegistryServer) -> None:
    """As registered for several types of events in one topic; the second refers to the first."""
    made = {**record(("id", "int"), ("at", "long")), "name": "shop.Made"}
    paid = {**record(("id", "long"), ("first", "shop.Made"), ("at", "string")), "name": "shop.Paid"}
    registry.register("made", json.dumps(made))
    registry.register("paid", json.dumps(paid), references=(("shop.Made", "made"),))
    references = (("shop.Made", "made"), ("shop.Paid", "paid"))
    number = registry.register("clicks-value", json.dumps(["shop.Made", "shop.Paid"]), references=references)
    union = [made, paid]
    event = {"id": 2**40, "first": {"id": 1, "at": 5}, "at": "later"}
    lake.produce(
        written(union, ("shop.Made", {"id": 1, "at": 5}), number), written(union, ("shop.Paid", event), number)
    )
    lake.load(AvroFormat(registry=SchemaRegistry(registry.url)))
    assert lake.rows() == [{"offset": 0, "id": 1, "at": 5, "first": None}]
    assert "later" in lake.letters()[1]


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "PAUSE_S", 0.0)


def test_unreachable_registry_changes_nothing(lake: Lake, no_pause: None) -> None:
    lake.produce(GOOD)
    with pytest.raises(OperatorError, match=r"registry at http://127.0.0.1:1 can't be reached: .*refused"):
        lake.load(AvroFormat(registry=SchemaRegistry("http://reader:secret@127.0.0.1:1")))
    assert not lake.table.exists()


def test_registry_failure_in_task_creates_no_dead_letter(lake: Lake, registry: RegistryServer, no_pause: None) -> None:
    """The driver's sample has one id, the task reads another one when the registry is gone."""
    schema = record(("id", "int"))
    one, two = (registry.register("clicks-value", json.dumps(schema)) for _ in range(2))
    for number in range(2_500):
        lake.produce(written(schema, {"id": number}, two if number == 1_200 else one))
    seen = []

    class Failing(AvroFormat):
        def decoder(self, fields: Any) -> AvroDecoder:
            seen.append(fields.names)
            registry.fails_with = 503
            return AvroDecoder(
                fields, None, SchemaRegistry(registry.url, _known=dict(list(self.registry._known.items())[:1]))
            )

    [row] = lake.load(Failing(registry=SchemaRegistry(registry.url)))
    assert (row.error_kind, seen) == ("operator", [["id"]])
    assert "status 503" in row.error
    assert (lake.rows(), lake.letters()) == ([], {})
    registry.fails_with = 0
    lake.load(AvroFormat(registry=SchemaRegistry(registry.url)))
    assert (len(lake.rows()), lake.letters()) == (2_500, {})


def test_logging_in(registry: RegistryServer) -> None:
    registry.password = "a@b:c"
    number = registry.register("s", json.dumps(SMALL))
    with pytest.raises(OperatorError, match="status 401; user and password") as refused:
        SchemaRegistry(registry.url.replace("//", "//reader:wrong@")).schema(number)
    assert "wrong" not in str(refused.value)
    assert len(registry.requests) == 1
    assert SchemaRegistry(registry.url.replace("//", "//reader:a%40b%3Ac@")).schema(number).kind == "AVRO"
