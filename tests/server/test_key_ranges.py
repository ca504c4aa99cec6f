"""Ranges of offsets without a key, by Ottla's tagged field of ListOffsets."""

from __future__ import annotations

import itertools

import pytest

from ottla.app.disk import RealDisk
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.list_offsets import (
    KeySearch,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.server.handlers.data.key_ranges import MAX_KEYS
from ottla.storage.compaction.key_filter_builder import ensure_key_filters
from ottla.storage.compaction.sources import Source
from ottla.storage.files.descriptors import Descriptors, Folder

from .harness import Connection, Server
from .test_apis import Allowing


def ask(client: Connection, *keys: bytes, end: int = 100, version: int = 11) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=0, timestamp=-2)
    if keys:
        asked.key_search = KeySearch(start_offset=0, end_offset=end, keys=list(keys))
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    found: ListOffsetsPartitionResponse = client.ask(request, version).topics[0].partitions[0]
    assert (found.error_code, found.offset) == (0, 0)
    return found


def ranges(found: ListOffsetsPartitionResponse) -> list[tuple[int, int]] | None:
    return None if found.key_search is None else [(e.start_offset, e.end_offset) for e in found.key_search.ranges]


@pytest.fixture
def indexed(server: Server, client: Connection) -> Connection:
    """Closed segments with the keys a and b, c and d, and an active one."""
    client.create_topic("t", ottla_search_index="key")
    log = server.broker.parts.replicas.find("t", 0).log
    for keys in ("ab", "cd", "e"):
        for key in keys:
            client.produce("t", b"v", key=key.encode())
        if keys != "e":
            log.roll()
    folder = Folder(Descriptors(RealDisk(), 4), log.directory)
    for segment, later in itertools.pairwise(log.segments):
        data = segment.data
        source = Source(segment.base_offset, later.base_offset, data.size_bytes, 0, data.mtime_ms())
        ensure_key_filters(folder, source, 1 << 20, 1 << 20, lambda size: None)
    return client


def test_ranges_are_those_of_closed_segments(indexed: Connection) -> None:
    found = ask(indexed, b"c")
    assert ranges(found) == [(0, 2)]
    assert found.key_search is not None
    assert found.key_search.searched_end_offset == 100
    assert ranges(ask(indexed, b"x")) == [(0, 4)]
    assert ranges(ask(indexed, b"x", end=3)) == [(0, 2)]
    assert ranges(ask(indexed, b"a", b"c")) == []


def test_field_is_only_sent_to_clients_that_ask(indexed: Connection) -> None:
    assert ask(indexed).key_search is None
    assert ask(indexed, b"x", version=5).key_search is None
    assert ask(indexed, *(b"%d" % number for number in range(MAX_KEYS + 1))).key_search is None


def test_ranges_need_the_permission_to_read(server: Server, indexed: Connection) -> None:
    describe, read = ((each, ResourceType.TOPIC, "t") for each in (AclOperation.DESCRIBE, AclOperation.READ))
    server.broker.dispatcher.authorizer = Allowing(describe)
    assert ask(indexed, b"x").key_search is None
    server.broker.dispatcher.authorizer = Allowing(describe, read)
    assert ranges(ask(indexed, b"x")) == [(0, 4)]


def test_topic_without_the_setting_has_no_ranges(client: Connection) -> None:
    client.create_topic("t")
    client.produce("t", b"v")
    assert ask(client, b"x").key_search is None
