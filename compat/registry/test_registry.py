"""Records from Confluent's serializers, decoded by the schemas of a real registry into table columns."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pytest.importorskip("deltalake", reason="needs the extra `pipeline`")
pytest.importorskip("fastavro", reason="needs the extra `pipeline`")
pytest.importorskip("google.protobuf", reason="needs the extra `pipeline`")

from google.protobuf import descriptor_pb2
from registry_process import RegistryProcess

from ottla.common.errors import OperatorError
from ottla.pipeline.transform.avro_format import AvroFormat
from ottla.pipeline.transform.protobuf_format import ProtobufFormat
from ottla.pipeline.transform.value_format import JsonFormat
from ottla.schemas.registry import SchemaRegistry

if TYPE_CHECKING:
    from tests.pipeline.transform.topic_table import TopicTable

    from ottla.testing import Broker

Produce = Callable[..., None]
COMMAND_S = 240

pytestmark = pytest.mark.timeout(600)  # a load starts a Spark session, which is slow on a loaded machine


def fields(table: TopicTable) -> list[dict[str, Any]]:
    """Returns the fields of the values."""
    return [{name: value for name, value in row.items() if name != "offset"} for row in table.rows()]


@pytest.fixture
def mortal_registry(registry_jar: Path, registry: RegistryProcess, tmp_path: Path) -> Iterator[RegistryProcess]:
    """A registry that one test may kill; `registry` has already checked for a suitable Java."""
    process = RegistryProcess(registry_jar, tmp_path)
    yield process
    process.stop()


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_avro_with_references_evolves(
    open_table: Callable[..., TopicTable], produce: Produce, registry: RegistryProcess, table_format: str
) -> None:
    """Iceberg's columns are widened; Delta's types stay, so values that do not fit become dead letters."""
    if table_format == "iceberg":
        pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
    table = open_table(table_format)
    produce("avro")
    table.load(AvroFormat(registry=SchemaRegistry(registry.url)))
    first = [
        {"id": n, "amount": n / 2, "customer": {"name": f"c{n}", "since": date(2024, 10, 4 + n)}} for n in range(3)
    ]
    assert fields(table) == first
    produce("avro_evolved")
    table.load(AvroFormat(registry=SchemaRegistry(registry.url)))
    small = {"id": 9, "amount": 0.5, "customer": {"name": "late", "since": date(1970, 1, 1)}, "note": "new"}
    large = small | {"id": 1 << 40, "amount": 0.1}
    is_widened = table_format == "iceberg"
    assert fields(table) == [*({**row, "note": None} for row in first), small, *([large] if is_widened else [])]
    assert list(table.letters()) == ([] if is_widened else [4])


def test_protobuf_with_references_and_nested_messages(
    table: TopicTable, produce: Produce, registry: RegistryProcess
) -> None:
    """Uses the file descriptors that the serializer registers, which this registry returns unchanged."""
    produce("protobuf")
    table.load(ProtobufFormat(registry=SchemaRegistry(registry.url)))
    found = [(row["id"], row["at"], row["sku"], row["price"]) for row in table.rows()]
    assert found == [
        (1, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), None, None),
        (None, None, "tea", {"units": 1 << 40}),
        (None, None, "gift", None),
    ]
    assert table.letters() == {}


def test_protobuf_schemas_as_text(table: TopicTable, produce: Produce, registry: RegistryProcess) -> None:
    """This registry returns the schema text as registered, regardless of `format`."""
    produce("protobuf_text")
    with pytest.raises(OperatorError, match=r"as text only.*add a descriptor set of protoc with --schema"):
        table.load(ProtobufFormat(registry=SchemaRegistry(registry.url)))
    assert not table.table.exists()
    file = descriptor_pb2.FileDescriptorProto(name="line.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Line").field.add(name="sku", number=1, type=9, label=1)
    described = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    table.load(ProtobufFormat(described, "shop.Line", SchemaRegistry(registry.url)))
    assert (fields(table), table.letters()) == ([{"sku": "tea"}], {})


def test_json_schema(table: TopicTable, produce: Produce) -> None:
    produce("json_schema")
    table.load(JsonFormat(has_ids=True))
    assert fields(table) == [{"id": number, "customer": {"name": f"c{number}"}} for number in range(3)]
    assert table.letters() == {}


def test_ids_in_headers(table: TopicTable, produce: Produce, registry: RegistryProcess) -> None:
    """This registry has no GUIDs: a record with one is a dead letter, and the neighboring records are loaded."""
    produce("avro_headers")
    table.load(AvroFormat(registry=SchemaRegistry(registry.url)))
    assert [(row["offset"], row["id"]) for row in table.rows()] == [(0, 0), (2, 2)]
    [(offset, reason)] = table.letters().items()
    assert offset == 1
    assert "does not know schema 00000000-0000-0000-0000-000000000007" in reason


def test_unknown_schema_id_is_dead_letter(table: TopicTable, produce: Produce, registry: RegistryProcess) -> None:
    produce("avro_unknown")
    table.load(AvroFormat(registry=SchemaRegistry(registry.url)))
    assert [(row["offset"], row["id"]) for row in table.rows()] == [(1, 1)]
    reasons = table.letters()
    assert list(reasons) == [0, 2, 3, 4]
    assert reasons[0].endswith("does not know schema 999999")
    assert "begins with the id of a schema" in reasons[2]
    assert "schema id 4294967295 is above the maximum" in reasons[3]


def test_topic_without_a_subject(table: TopicTable, produce: Produce, registry: RegistryProcess) -> None:
    produce("avro_by_record_name")
    assert SchemaRegistry(registry.url).latest(f"{table.topic}-value") is None
    table.load(AvroFormat(registry=SchemaRegistry(registry.url)))
    assert (fields(table), table.letters()) == ([{"id": 5}], {})


def test_schemas_of_another_format(table: TopicTable, produce: Produce, registry: RegistryProcess) -> None:
    produce("protobuf")
    table.load(AvroFormat(registry=SchemaRegistry(registry.url)))
    reasons = table.letters()
    assert list(reasons) == [0, 1, 2]
    assert all("it is a schema of type PROTOBUF, not AVRO" in reason for reason in reasons.values())


@pytest.mark.parametrize("path", ["", "/apis", "/apis/ccompat", "/apis/registry/v3", "/apis/ccompat/v7/subjects"])
def test_other_api_path_creates_no_dead_letters(
    table: TopicTable, produce: Produce, registry: RegistryProcess, path: str
) -> None:
    produce("avro")
    with pytest.raises(OperatorError, match=re.escape(registry.root)) as caught:
        table.load(AvroFormat(registry=SchemaRegistry(registry.root + path)))
    assert "\n" not in str(caught.value)
    assert not table.table.exists()


def test_registry_is_killed_during_a_task(
    table: TopicTable, produce: Produce, mortal_registry: RegistryProcess
) -> None:
    produce("avro_late_schema", registry=mortal_registry.url)
    registry = SchemaRegistry(mortal_registry.url)

    def stop() -> None:
        mortal_registry.stop()
        registry._known.clear()  # as in a worker process, which has not seen the schemas of the sample

    [row] = table.load(AvroFormat(registry=registry), stop)
    assert row.error_kind == "operator"
    assert "can't be reached: Connection refused" in row.error.replace("[Errno 111] ", "")
    assert "\n" not in row.error
    assert (table.rows(), table.letters()) == ([], {})
    mortal_registry.start()
    table.load(AvroFormat(registry=SchemaRegistry(mortal_registry.url)))
    assert [row["id"] for row in table.rows()] == list(range(2_500))
    assert table.letters() == {}


@pytest.mark.usefixtures("light_java")
@pytest.mark.parametrize(("decode", "scenario"), [("avro", "avro"), ("json", "json_schema"), ("protobuf", "protobuf")])
def test_by_command(
    broker: Broker, table: TopicTable, produce: Produce, registry: RegistryProcess, decode: str, scenario: str
) -> None:
    pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
    produce(scenario)
    arguments = ["-t", table.topic, "--table", table.table.location, "--decode", decode, "--master", "local[1]"]
    places = ["--schema-registry", registry.url, "--bootstrap-server", broker.bootstrap_servers]
    command = [sys.executable, "-m", "ottla", "pipeline", "load", *arguments, *places, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["rows"], summary["dead_letters"]) == (3, 0)
    assert {row.get("id") for row in table.rows()} == ({1, None} if decode == "protobuf" else {0, 1, 2})


@pytest.mark.usefixtures("light_java")
def test_command_with_unavailable_registry(broker: Broker, table: TopicTable, produce: Produce) -> None:
    pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
    produce("avro")
    arguments = ["-t", table.topic, "--table", table.table.location, "--bootstrap-server", broker.bootstrap_servers]
    registry = ["--decode", "avro", "--schema-registry", "http://127.0.0.1:1"]
    command = [sys.executable, "-m", "ottla", "pipeline", "load", *arguments, *registry]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert done.returncode == 2, done.stderr
    [line] = done.stderr.splitlines()
    assert "the schema registry at http://127.0.0.1:1 can't be reached" in line
    assert not table.table.exists()
