"""Ranges of offsets without some keys, for `ottla search`: Ottla's tagged field of ListOffsets.

The ranges reveal which keys exist, so they require READ on the topic. Without it, or without key filters, the response
does not have the field, and the client reads all records.
"""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.list_offsets import KeyFreeOffsets, KeySearch, KeySearchResult
from ottla.replica.partition import READ_COMMITTED, Partition
from ottla.server.requests.request import Request
from ottla.storage.files.off_loop import Known
from ottla.storage.log.key_ranges import KeyQuery, find_key_free

MAX_KEYS = 64
"""A request with more gets no ranges."""


def key_ranges(
    request: Request, topic: str, partition: Partition, asked: KeySearch, isolation_level: int, known: Known
) -> KeySearchResult | None:
    """The ranges of a partition that this broker leads; None if it has no key filters. Raises WouldBlock."""
    log = partition.log
    if not log.config.indexes_keys or not 0 < len(asked.keys) <= MAX_KEYS:
        return None
    if not request.allowed(AclOperation.READ, ResourceType.TOPIC, topic):
        return None
    start = max(asked.start_offset, log.log_start_offset)
    end = min(asked.end_offset, partition.read_end(isolation_level))
    query = KeyQuery(asked.keys, start, end, with_transactions=isolation_level != READ_COMMITTED)
    found = find_key_free(log, query, known)
    return KeySearchResult(
        searched_end_offset=asked.end_offset if found.searched_end >= end else found.searched_end,
        ranges=[
            KeyFreeOffsets(
                start_offset=each.start,
                end_offset=each.end,
                records=each.records,
                oldest_ms=each.oldest_ms,
                newest_ms=each.newest_ms,
            )
            for each in found.ranges
        ],
    )
