"""The plan of a search: filter, order and fixed ranges of offsets; and its resume token.

Ends are fixed before the first fetch, so the matches are a function of the query and the ranges. A token contains all
of a plan, with the ranges that are left.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.search.decoder_names import DECODERS
from ottla.search.scopes import ISOLATIONS
from ottla.search.source import TopicSource
from ottla.search.subject import Decoders
from ottla.search.syntax import Bound, OffsetBound, Scopes

TOKEN_VERSION = 1
MAX_TOKEN_BYTES = 16 * 1024 * 1024
"""Bound of an unpacked token."""
NO_TIMESTAMP_YET = -(2**63)
"""Below the timestamp of every record."""

Order = tuple[int, int, int]
"""Place of a match: timestamp in milliseconds, partition, offset; see `search.walks`."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of a partition that are left to search; `reached` is the largest timestamp before `start` in it."""

    start: int
    end: int
    reached: int = NO_TIMESTAMP_YET


@dataclass(frozen=True, slots=True)
class Plan:
    """A search. `before`: matches from this place on were already returned, newest first."""

    topic: str
    query: str
    ranges: Mapping[int, OffsetRange]
    newest_first: bool = False
    isolation: str = "uncommitted"
    decoders: Decoders = field(default_factory=Decoders)
    topic_id: str | None = None
    before: Order | None = None


def fix_ranges(source: TopicSource, scopes: Scopes) -> dict[int, OffsetRange]:
    """The offsets to search now, by partition. Raises KafkaError for a partition that the topic lacks.

    A time is the first offset with a timestamp at or after it, by the time index.
    """
    existing = source.partitions()
    wanted = existing if scopes.partitions is None else scopes.partitions
    unknown = sorted(set(wanted) - set(existing))
    if unknown:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic has partitions 0 to {len(existing) - 1}, not {unknown[0]}"
        )
    log_ends = source.end_offsets(wanted)
    starts = source.start_offsets(wanted)
    firsts = starts if scopes.start is None else _offsets(source, scopes.start, log_ends)
    ends = log_ends if scopes.until is None else _offsets(source, scopes.until, log_ends)
    ranges = {}
    for partition in sorted(wanted):
        start = max(starts[partition], firsts[partition])
        end = min(log_ends[partition], ends[partition])
        ranges[partition] = OffsetRange(min(start, end), end)
    return ranges


def _offsets(source: TopicSource, bound: Bound, log_ends: Mapping[int, int]) -> Mapping[int, int]:
    if isinstance(bound, OffsetBound):
        return dict.fromkeys(log_ends, bound.offset)
    return source.offsets_since(bound.timestamp_ms, log_ends)


def write_token(plan: Plan) -> str:
    """A plan as text for a command line."""
    document = {
        "version": TOKEN_VERSION,
        "topic": plan.topic,
        "topic_id": plan.topic_id,
        "query": plan.query,
        "newest_first": plan.newest_first,
        "isolation": plan.isolation,
        "decoders": list(plan.decoders),
        "ranges": [[partition, each.start, each.end, each.reached] for partition, each in plan.ranges.items()],
        "before": plan.before,
    }
    packed = zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 9)
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def read_token(token: str) -> Plan:
    """The plan of a token. Raises OperatorError."""
    try:
        packed = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        unpacker = zlib.decompressobj()
        document = json.loads(unpacker.decompress(packed, MAX_TOKEN_BYTES))
        if not unpacker.eof:
            raise ValueError("cut")
        if document["version"] != TOKEN_VERSION:
            raise ValueError("version")
        ranges = {int(partition): OffsetRange(int(start), int(end), int(reached))
                  for partition, start, end, reached in document["ranges"]}  # fmt: skip
        before = document["before"]
        plan = Plan(
            str(document["topic"]),
            str(document["query"]),
            ranges,
            bool(document["newest_first"]),
            str(document["isolation"]),
            Decoders(*map(str, document["decoders"])),
            document["topic_id"],
            None if before is None else (int(before[0]), int(before[1]), int(before[2])),
        )
    except (ValueError, KeyError, TypeError, IndexError, RecursionError, zlib.error):
        raise OperatorError("the resume token is not one of this version: copy it whole, or search again") from None
    if plan.isolation not in ISOLATIONS or not set(plan.decoders) <= set(DECODERS):
        raise OperatorError("the resume token names an unknown decoder or isolation level: search again")
    return plan
