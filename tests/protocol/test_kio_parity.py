"""Every API and version that `kio` also supports, byte for byte in both directions.

kio is generated independently from Apache Kafka's schemas: it must read our bytes and write them again unchanged, and
we must read its bytes as the same message.
"""

from __future__ import annotations

import importlib
import io
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from tests.scale import size

from ottla.protocol.codec import MAX_REQUEST_ELEMENTS, read_in_place, read_message, write_message
from ottla.protocol.messages import consumer_protocol, control_records, fetch_snapshot
from ottla.protocol.messages.default_principal import DefaultPrincipalData
from ottla.protocol.registry import API
from ottla.protocol.schema import schema_of

CONTROL_RECORDS = {
    "leader_change_message": control_records.LeaderChangeMessage,
    "snapshot_header_record": control_records.SnapshotHeaderRecord,
    "snapshot_footer_record": control_records.SnapshotFooterRecord,
    "k_raft_version_record": control_records.KRaftVersionRecord,
    "voters_record": control_records.VotersRecord,
}
EMBEDDED = {
    "consumer_protocol_subscription": consumer_protocol.ConsumerProtocolSubscription,
    "consumer_protocol_assignment": consumer_protocol.ConsumerProtocolAssignment,
    "default_principal_data": DefaultPrincipalData,
}
OLDER = {"produce": 3, "fetch": 4, "list_offsets": 1, "offset_commit": 2, "offset_fetch": 1}
"""First version that Apache Kafka 4 and kio support; older ones exist only here (`test_old_wire`)."""
NEWER = frozenset({("api_versions", 5), ("delete_groups", 3), ("txn_offset_commit", 6), ("unregister_controller", 0)})
"""Versions of Apache Kafka 4.4 that kio doesn't support yet; their bytes are in `test_codec`."""


def _kio_class(package: str, version: int, module: str, name: str) -> type:
    found: type = getattr(importlib.import_module(f"kio.schema.{package}.v{version}.{module}"), name)
    return found


def _cases() -> list[Any]:
    cases = []
    for spec in API.values():
        package = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", spec.name).lower()
        for cls, module in ((spec.request, "request"), (spec.response, "response")):
            versions = schema_of(cls).versions
            for version in range(versions.low, versions.high + 1):
                if (package, version) in NEWER or version < OLDER.get(package, 0):
                    continue
                kio_class = _kio_class(package, version, module, cls.__name__)
                cases.append(pytest.param(cls, version, kio_class, id=f"{cls.__name__}-{version}"))
    for package, cls in (CONTROL_RECORDS | EMBEDDED).items():
        versions = schema_of(cls).versions
        for version in range(versions.low, versions.high + 1):
            kio_class = _kio_class(package, version, "data", cls.__name__)
            cases.append(pytest.param(cls, version, kio_class, id=f"{cls.__name__}-{version}"))
    return cases


@pytest.mark.parametrize(("cls", "version", "kio_class"), _cases())
def test_both_directions(cls, version, kio_class, message_of):
    kio_read, kio_write = entity_reader(kio_class), entity_writer(kio_class)

    @settings(max_examples=size(2, 15), deadline=None)
    @given(message_of(cls, version), st.binary(max_size=3))
    def check(message, around):
        out = bytearray()
        write_message(message, version, out)
        entity, size = kio_read(bytes(out), 0)
        assert size == len(out)
        with io.BytesIO() as written:
            kio_write(written, entity)
            assert written.getvalue() == out
        framed = around + out + around
        again, position = read_message(cls, version, framed, len(around), len(around) + len(out))
        assert position == len(around) + len(out)
        assert again == message
        assert read_in_place(cls, version, memoryview(out), MAX_REQUEST_ELEMENTS) == message

    check()


def test_kio_knows_no_version_that_is_missing_here():
    """A new version in kio requires a decision: serve it, or document in the registry why not."""
    for spec in API.values():
        package = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", spec.name).lower()
        high = schema_of(spec.request).versions.high
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"kio.schema.{package}.v{high + 1}.request")
    for package, version in NEWER:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"kio.schema.{package}.v{version}.request")


def test_missing_leader_in_fetch_snapshot_is_node_0():
    """Most optional structs default to -1; in FetchSnapshot the omitted default is node 0 in epoch 0."""
    kio_write = entity_writer(_kio_class("fetch_snapshot", 1, "response", "FetchSnapshotResponse"))
    kio_read = entity_reader(_kio_class("fetch_snapshot", 1, "response", "FetchSnapshotResponse"))
    partition = fetch_snapshot.FetchSnapshotPartitionResponse(
        current_leader=fetch_snapshot.SnapshotLeaderIdAndEpoch(leader_id=0, leader_epoch=0)
    )
    topic = fetch_snapshot.FetchSnapshotTopicResponse(name="__cluster_metadata", partitions=[partition])
    out = bytearray()
    write_message(fetch_snapshot.FetchSnapshotResponse(topics=[topic]), 1, out)
    with io.BytesIO() as written:
        kio_write(written, kio_read(bytes(out), 0)[0])
        assert written.getvalue() == out
    read, _ = read_message(fetch_snapshot.FetchSnapshotResponse, 1, out, 0, len(out))
    assert read.topics == [topic]
