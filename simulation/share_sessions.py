"""Share session of a simulated member with one broker: its fetches, its records and their acknowledgements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from ottla.common.errors import ErrorCode
from ottla.protocol.messages import share_acknowledge, share_fetch
from ottla.protocol.registry import ApiKey
from ottla.record.batch import iter_batches
from ottla.share.acknowledgements import AcknowledgeType
from simulation.checkers import Violation
from simulation.client import Client, RequestLost
from simulation.history.shares import Acknowledgement, SharePlace
from simulation.log_clients import RETRIABLE
from simulation.rng import SimRng
from simulation.share_world import ShareWorld

VERSION = 2
FINAL_EPOCH = -1
WAIT_MS = 200
MAX_BYTES = 1 << 20
MAX_RECORDS = (1, 3, 10, 50)
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
LATE_CHANCE = 0.05
"""Chance of acknowledgements whose locks may have ended."""
TIMEOUT_S = 25.0
"""Above the time that a broker tries to store acknowledgements."""

SESSION_ERRORS = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
FETCH_ERRORS = RETRIABLE | {
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_SERVER_ERROR,  # as in Apache Kafka, the share coordinator did not answer, or has no state yet
    ErrorCode.OFFSET_NOT_AVAILABLE,
}
"""The same errors of acknowledgements do not say whether these are stored."""
REFUSED = frozenset({ErrorCode.INVALID_RECORD_STATE})

Decisions = dict[int, AcknowledgeType]
"""Type of the acknowledgement of each offset."""


class SentDecisions(NamedTuple):
    """Acknowledgements of one request, by partition."""

    at_s: float
    by_place: dict[SharePlace, list[Acknowledgement]]


class ShareSession:
    """The client side of one session."""

    def __init__(self, share: ShareWorld, name: str, member_id: str, rng: SimRng) -> None:
        self._share = share
        self._name = name
        self._member_id = member_id
        self._rng = rng
        self._named: set[SharePlace] = set()
        """Partitions of the session."""
        self._records: dict[SharePlace, dict[int, float]] = {}
        """Acquired offsets without acknowledgement, and the end of their locks as the member may believe it."""
        self.epoch = 0

    @property
    def has_records(self) -> bool:
        """Whether records wait for an acknowledgement."""
        return any(self._records.values())

    def lost(self) -> None:
        """The connection is closed: the broker releases the records."""
        for place, offsets in self._records.items():
            self._share.history.released(self._member_id, place, offsets)
        self._begin()

    def _begin(self) -> None:
        self.epoch = 0
        self._named.clear()
        self._records.clear()

    # -- requests

    async def poll(self, client: Client, wanted: set[SharePlace]) -> bool:
        """Fetch and acknowledge, or only acknowledge; returns whether the leaders may be as believed.

        Raises RequestLost.
        """
        decisions = self._decide() if self.epoch else {}
        renews = any(AcknowledgeType.RENEW in each.values() for each in decisions.values())
        if decisions and (renews or self._rng.chance(0.3)):
            return await self._acknowledge(client, decisions, renews=renews)
        return await self._fetch(client, wanted, decisions)

    async def close(self, client: Client) -> None:
        """End the session, with acknowledgements of some records; the broker releases the others."""
        decisions = self._decide()
        self.epoch = FINAL_EPOCH
        renews = any(AcknowledgeType.RENEW in each.values() for each in decisions.values())
        await self._acknowledge(client, decisions, renews=renews)
        self.lost()

    async def _acknowledge(self, client: Client, decisions: Mapping[SharePlace, Decisions], *, renews: bool) -> bool:
        topics: dict[bytes, list[share_acknowledge.AcknowledgePartition]] = {}
        for (topic_id, partition), of_place in decisions.items():
            batches = [
                share_acknowledge.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in self._batches(of_place)
            ]
            row = share_acknowledge.AcknowledgePartition(partition_index=partition, acknowledgement_batches=batches)
            topics.setdefault(topic_id, []).append(row)
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=self._share.group_id,
            member_id=self._member_id,
            share_session_epoch=self.epoch,
            is_renew_ack=renews,
            topics=[
                share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=rows)
                for topic_id, rows in topics.items()
            ],
        )
        sent = self._send(decisions)
        response = await self._request(client, ApiKey.SHARE_ACKNOWLEDGE, request, sent)
        if response is None:
            return False
        return self._settle(
            sent,
            {
                (topic.topic_id, row.partition_index): row.error_code
                for topic in response.responses
                for row in topic.partitions
            },
        )

    async def _fetch(self, client: Client, wanted: set[SharePlace], decisions: Mapping[SharePlace, Decisions]) -> bool:
        forgotten = (self._named | decisions.keys()) - wanted if self.epoch else set()
        topics: dict[bytes, list[share_fetch.FetchPartition]] = {}
        for place in sorted((wanted - self._named) | decisions.keys()):
            batches = [
                share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in self._batches(decisions.get(place, {}))
            ]
            row = share_fetch.FetchPartition(partition_index=place[1], acknowledgement_batches=batches)
            topics.setdefault(place[0], []).append(row)
        gone: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(forgotten):
            gone.setdefault(topic_id, []).append(partition)
        max_records = self._rng.choice(MAX_RECORDS)
        request = share_fetch.ShareFetchRequest(
            group_id=self._share.group_id,
            member_id=self._member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            max_records=max_records,
            batch_size=max_records,
            share_acquire_mode=self._rng.choice((BATCH_OPTIMIZED, RECORD_LIMIT)),
            topics=[share_fetch.FetchTopic(topic_id=each, partitions=rows) for each, rows in topics.items()],
            forgotten_topics_data=[
                share_fetch.ForgottenTopic(topic_id=each, partitions=numbers) for each, numbers in gone.items()
            ],
        )
        sent = self._send(decisions)
        response = await self._request(client, ApiKey.SHARE_FETCH, request, sent)
        if response is None:
            return False
        self._named = set(wanted)
        rows = {(topic.topic_id, row.partition_index): row for topic in response.responses for row in topic.partitions}
        current = self._settle(sent, {place: row.acknowledge_error_code for place, row in rows.items()})
        for place, row in rows.items():
            current &= self._take(place, row, sent.at_s + self._share.lock_s)
        return current

    async def _request(self, client: Client, key: ApiKey, request: Any, sent: SentDecisions) -> Any:
        """Send a request; None if the session has to begin again. Raises RequestLost."""
        try:
            response = await client.request(key, VERSION, request, TIMEOUT_S)
        except RequestLost:
            self.lost()
            raise
        self._share.world.operations += 1
        code = response.error_code
        if not code:
            if self.epoch != FINAL_EPOCH:
                self.epoch += 1
            return response
        self._share.trace.note(self._name, f"{key.name}: {ErrorCode(code).name}")
        for place, each in sent.by_place.items():
            self._share.history.refused(self._member_id, place, each, invalid_state=False)
        self.lost()
        if code not in SESSION_ERRORS:
            raise Violation(f"{self._name}: {key.name} returned {ErrorCode(code).name}")
        return None

    # -- acknowledgements

    def _decide(self) -> dict[SharePlace, Decisions]:
        """Choose acknowledgements for some of the records; with RENEW for some and nothing else, if for any."""
        renews = self._share.faults.is_set() and self._rng.chance(0.08)
        chosen: dict[SharePlace, Decisions] = {}
        if not self._rng.chance(LATE_CHANCE):
            self._forget_expired()
        for place, offsets in sorted(self._records.items()):
            decisions = {}
            for offset in sorted(offsets):
                kind = AcknowledgeType.RENEW if renews else self._choose()
                if kind is not None and (not renews or self._rng.chance(0.5)):
                    decisions[offset] = kind
            if decisions:
                chosen[place] = decisions
        return chosen

    def _forget_expired(self) -> None:
        now_s = self._share.world.loop.time()
        for place, offsets in self._records.items():
            self._records[place] = {offset: until_s for offset, until_s in offsets.items() if until_s > now_s}

    def _choose(self) -> AcknowledgeType | None:
        """None: the record keeps its lock, perhaps to the end."""
        draw = self._rng.uniform(0, 1)
        if not self._share.faults.is_set() or draw < 0.55:
            return AcknowledgeType.ACCEPT
        if draw < 0.75:
            return AcknowledgeType.RELEASE
        return AcknowledgeType.REJECT if draw < 0.8 else None

    @staticmethod
    def _batches(decisions: Decisions) -> Iterable[tuple[int, int, list[int]]]:
        """(first offset, last offset, types) of consecutive offsets; one type if all are equal."""
        for _, run in groupby(enumerate(sorted(decisions)), key=lambda each: each[1] - each[0]):
            offsets = [offset for _, offset in run]
            types = [int(decisions[offset]) for offset in offsets]
            yield offsets[0], offsets[-1], types[:1] if len(set(types)) == 1 else types

    def _send(self, decisions: Mapping[SharePlace, Decisions]) -> SentDecisions:
        """The decisions are on their way: the records are not the member's any more, except for RENEW."""
        history = self._share.history
        by_place = {}
        for place, of_place in decisions.items():
            by_place[place] = history.acknowledging(self._member_id, place, of_place.items())
            for offset, kind in of_place.items():
                if kind is not AcknowledgeType.RENEW:
                    self._records[place].pop(offset, None)
        return SentDecisions(self._share.world.loop.time(), by_place)

    def _settle(self, sent: SentDecisions, codes: Mapping[SharePlace, int]) -> bool:
        history, current = self._share.history, True
        for place, each in sent.by_place.items():
            code = codes.get(place)
            if code is None:
                raise Violation(f"{self._name}: a response does not contain the acknowledged {place[1]}")
            if not code:
                for one in each:
                    if one.offset in self._records.get(place, ()):
                        self._records[place][one.offset] = sent.at_s + self._share.lock_s
                history.answered(self._member_id, place, each, sent.at_s)
                continue
            current = False
            self._share.trace.note(self._name, f"acknowledgement of {place[1]}: {ErrorCode(code).name}")
            if code in REFUSED:
                history.refused(self._member_id, place, each, invalid_state=True)
            elif code not in FETCH_ERRORS:
                raise Violation(f"{self._name}: acknowledgements got {ErrorCode(code).name}")
        return current

    # -- records

    def _take(self, place: SharePlace, row: Any, until_s: float) -> bool:
        """Take the records of a partition, with locks that end at `until_s` or later; returns whether it has no
        error."""
        if row.error_code:
            if row.error_code not in FETCH_ERRORS:
                raise Violation(f"{self._name}: ShareFetch got {ErrorCode(row.error_code).name}")
            return False
        share = self._share
        values = {
            record.offset: (record.value or b"").decode()
            for batch in iter_batches(row.records or b"")
            for record in batch.records()
        }
        for acquired in row.acquired_records:
            for offset in range(acquired.first_offset, acquired.last_offset + 1):
                value = values.get(offset)
                share.history.received(self._member_id, place, offset, value)
                if value is not None and place[0] == share.world.topic_id:
                    share.values.served(self._name, place[1], offset, value)
                self._records.setdefault(place, {})[offset] = until_s
        return True
