"""Ids of schemas in front of values and in headers: all forms of the wire format give the same rows."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.common.errors import OperatorError

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pytest.importorskip("fastavro", reason="needs the extra `pipeline`")

from ottla.pipeline.model.decode import HEADERS_TYPE  # noqa: E402
from ottla.pipeline.transform.decode_options import DecodeOptions  # noqa: E402
from ottla.pipeline.transform.open_format import open_format  # noqa: E402
from ottla.pipeline.transform.schema_ids import (  # noqa: E402
    encoded_values,
    schema_ids,
    without_ids,
)
from ottla.schemas.ids import VALUE_HEADER, id_length, schema_id  # noqa: E402
from ottla.schemas.registry import SchemaRegistry  # noqa: E402

from .conftest import Lake  # noqa: E402
from .registry_server import RegistryServer, guid, registry_server  # noqa: E402
from .test_avro_decoder import record, written  # noqa: E402
from .test_protobuf_decoder import View, described  # noqa: E402

GUID = UUID("89791762-2336-4186-9674-299b90a802e2")
"""From Confluent's documentation of the format."""
IN_HEADER = b"\1" + GUID.bytes
ID_SCHEMA = record(("id", "int"))

Headers = list[tuple[str, bytes | None]]


def encoded(*records: tuple[bytes | None, Headers]) -> list[bytes | None]:
    values = pa.array([value for value, _ in records], pa.binary())
    headers = pa.array([[{"key": k, "value": v} for k, v in pairs] for _, pairs in records], HEADERS_TYPE)
    batch = pa.record_batch({"value": values, "headers": headers})
    found: list[bytes | None] = encoded_values(batch.slice(1), id_length).to_pylist()
    return found


def test_an_id_in_a_header_goes_in_front_of_its_value() -> None:
    assert encoded(
        (b"left out", [(VALUE_HEADER, b"\1" + b"x" * 16)]),
        (b"plain", []),
        (b"value", [("a", b"b"), (VALUE_HEADER, IN_HEADER), ("c", None)]),
        (b"twice", [(VALUE_HEADER, b"\1" + b"x" * 16), (VALUE_HEADER, IN_HEADER)]),
        (None, [(VALUE_HEADER, IN_HEADER)]),
        (b"no", [(VALUE_HEADER, None), ("__key_schema_id", IN_HEADER)]),
        (b"number", [(VALUE_HEADER, b"\0\0\0\0\7")]),
        (b"more", [(VALUE_HEADER, IN_HEADER + b"rest")]),
        (b"short", [(VALUE_HEADER, IN_HEADER[:-1])]),
        (b"empty", [(VALUE_HEADER, b"")]),
    ) == [
        b"plain", IN_HEADER + b"value", IN_HEADER + b"twice", None, b"no", b"\0\0\0\0\7number", IN_HEADER + b"more",
        b"\xffshort", b"\xffempty",
    ]  # fmt: skip


def test_ids_of_both_kinds() -> None:
    values = [b"\0\0\0\1\2a", IN_HEADER + b"b", b"\0\0\0\1\2c", IN_HEADER]
    assert [schema_id(value) for value in values] == [258, GUID, 258, GUID]
    assert schema_ids(pa.array([*values, None, b"", b"\0\0\0\0", IN_HEADER[:-1], b"\2" * 20])) == [258, GUID]
    assert without_ids(pa.array(values)).to_pylist() == [b"a", b"b", b"c", b""]
    for bad in (b"", b"\0\0\0\0", IN_HEADER[:-1], b"\2" * 20):
        with pytest.raises(ValueError, match="begins with the id of a schema"):
            schema_id(bad)
        with pytest.raises(ValueError, match="begins with the id of a schema"):
            without_ids(pa.array([*values, bad]))


def test_avro(lake: Lake, registry: RegistryServer) -> None:
    """The same schema by id and by GUID, and an unknown GUID."""
    number = registry.register("clicks-value", json.dumps(ID_SCHEMA))
    header = [(VALUE_HEADER, b"\1" + guid(number).bytes)]
    lake.produce_with(
        (written(ID_SCHEMA, {"id": 1}, number), []),
        (written(ID_SCHEMA, {"id": 2}), header),
        (b"\1" + guid(number).bytes + written(ID_SCHEMA, {"id": 3}), []),
        (written(ID_SCHEMA, {"id": 4}), [(VALUE_HEADER, IN_HEADER)]),
        (written(ID_SCHEMA, {"id": 5}), []),
        (written(ID_SCHEMA, {"id": 6}), [(VALUE_HEADER, b"\1")]),
        (None, header),
    )
    lake.load(open_format(DecodeOptions("avro", schema_registry=registry.url)))
    assert [(row["offset"], row["id"]) for row in lake.rows()] == [(0, 1), (1, 2), (2, 3), (6, None)]
    letters = lake.letters()
    assert list(letters) == [3, 4, 5]
    assert f"does not know schema {GUID}" in letters[3]
    assert registry.requests.count(f"/schemas/guids/{guid(number)}") == 1


def test_columns_from_guid_only(lake: Lake, registry: RegistryServer) -> None:
    """The schema of another subject, so that only the sample contains its id."""
    number = registry.register("elsewhere", json.dumps(ID_SCHEMA))
    lake.produce_with((written(ID_SCHEMA, {"id": 2}), [(VALUE_HEADER, b"\1" + guid(number).bytes)]))
    lake.load(open_format(DecodeOptions("avro", schema_registry=registry.url)))
    assert lake.rows() == [{"offset": 0, "id": 2}]


def test_json(lake: Lake, registry: RegistryServer) -> None:
    lake.produce_with((b'{"id":1}', [(VALUE_HEADER, IN_HEADER)]), (b'\0\0\0\0\7{"id":2}', []), (b'{"id":3}', []))
    lake.load(open_format(DecodeOptions("json", schema_registry=registry.url)))
    assert lake.rows() == [{"offset": 0, "id": 1}, {"offset": 1, "id": 2}]
    assert list(lake.letters()) == [2]


def test_protobuf(lake: Lake, registry: RegistryServer) -> None:
    """The message indexes follow the GUID, in the header; a header without them takes no bytes of the value."""
    text = base64.b64encode(described().SerializeToString()).decode()
    start = b"\1" + guid(registry.register("clicks-value", text, "PROTOBUF")).bytes
    lake.produce_with(
        (View(i64=1).SerializeToString(), [(VALUE_HEADER, start + b"\x02\x02")]),
        (b"\x0a\x01y", [(VALUE_HEADER, start + b"\x04\x00\x00")]),
        (b"\0" + View(i64=3).SerializeToString(), [(VALUE_HEADER, start)]),
    )
    lake.load(open_format(DecodeOptions("protobuf", schema_registry=registry.url)))
    assert [(row["offset"], row["i64"], row["y"]) for row in lake.rows()] == [(0, 1, None), (1, None, "y")]
    assert list(lake.letters()) == [2]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    path = tmp_path / "registry.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=registry"
    address = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path), "-out", f"{path}.crt"]
    subprocess.run([*command.split(), *address], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.fixture
def secure_registry(certificate: Path) -> Iterator[RegistryServer]:
    with registry_server(certificate) as server:
        yield server


def test_registry_with_private_authority(secure_registry: RegistryServer, certificate: Path, tmp_path: Path) -> None:
    number = secure_registry.register("s", json.dumps(ID_SCHEMA))
    with pytest.raises(OperatorError, match=r"CERTIFICATE_VERIFY_FAILED.*; --schema-registry-ca FILE"):
        SchemaRegistry(secure_registry.url).schema(number)
    authority = Path(f"{certificate}.crt")
    options: dict[str, Any] = {"schema_registry": secure_registry.url, "schema_registry_ca": authority}
    value_format: Any = open_format(DecodeOptions("avro", **options))
    assert value_format.registry.schema(number).kind == "AVRO"
    authority.write_text("no certificate")
    with pytest.raises(OperatorError, match="takes a file of certificates in PEM"):
        open_format(DecodeOptions("avro", **options))
    with pytest.raises(OperatorError, match="add --schema-registry URL"):
        open_format(DecodeOptions("avro", Path(__file__), schema_registry_ca=authority))


def test_password_is_not_sent_to_redirect_host(registry: RegistryServer) -> None:
    number = registry.register("s", json.dumps(ID_SCHEMA))
    known = SchemaRegistry(registry.url.replace("//", "//reader:secret@") + "/elsewhere").schema(number)
    assert known.kind == "AVRO"
    assert registry.logins[0] is not None
    assert registry.logins[1:] == [None]
