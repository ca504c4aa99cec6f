"""Redrive of dead letters (`ottla share redrive`): each one is produced once as the record that failed.

A transaction has the records of up to CHUNK dead letters and the offsets after these, as committed offsets of a group
without members. All redrives of a dead-letter topic share a transactional id, so a new one fences and aborts an
interrupted one, and then reads the offsets.

A redrive of one share group commits offsets of its own. A dead letter is redriven if it is neither below the offset of
redrives of all groups, nor below that of its own group. So redrives of one group and of all groups may alternate.

Dead letters that cannot be redriven are counted and passed: their records do not exist any more, and they have no copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain, islice

from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka.consumer import ConsumedRecord
from ottla.client.librdkafka.dead_letters import ShareDeadLetter, failed_records, parse_dead_letter, redriven_record
from ottla.client.librdkafka.producer import UNASSIGNED
from ottla.client.librdkafka.transactional_producer import TransactionalProducer
from ottla.client.wire.failure import TopicNotFound
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, CommittedOffset
from ottla.common.errors import KafkaError
from ottla.common.kafka.topic_partition import TopicPartition

CHUNK = 100
"""Dead letters of a transaction."""


def redrive_id(topic: str, group: str | None = None) -> str:
    """Return the group of the offsets of a redrive of all share groups or of one.

    The first is also the transactional id of all redrives of the topic.
    """
    return f"ottla-redrive-{topic}" + ("" if group is None else f":{group}")


@dataclass
class LetterCount:
    """Dead letters of one share group, topic and reason."""

    redrivable: int = 0
    not_redrivable: int = 0


@dataclass
class RedriveCounts:
    """Outcome of a redrive; `letters` by share group, topic and reason."""

    letters: dict[tuple[str, str, str], LetterCount] = field(default_factory=dict)
    other_records: int = 0
    """Records that are not dead letters."""
    redriven: int = 0
    """Records of committed transactions."""


class RedriveOffsets:
    """Offsets of the dead letters that are not redriven yet, in all partitions of a dead-letter topic."""

    def __init__(self, cluster: Cluster, topic: str, group: str | None) -> None:
        """`group`: redrive this share group only. Waits for pending transactions. Raises KafkaError, TopicNotFound."""
        self._cluster = cluster
        self._topic = topic
        keys = [(topic, each.index) for each in cluster.topics.get(topic).partitions]
        self._all = self._committed(None)
        self._of_groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self.ends = cluster.records.offsets_at(keys, LATEST_TIMESTAMP, isolation="read_committed")
        firsts = cluster.records.offsets_at(keys, EARLIEST_TIMESTAMP)
        self.starts = {key: max(firsts[key], self.first(key, group)) for key in keys}

    def _committed(self, group: str | None) -> dict[TopicPartition, CommittedOffset]:
        return self._cluster.groups.offsets(redrive_id(self._topic, group), stable=True)

    def first(self, key: TopicPartition, group: str | None) -> int:
        """Return the first offset that is not redriven: of a share group, or at least of all of them."""
        found = [self._all.get(key)]
        if group is not None:
            if group not in self._of_groups:
                self._of_groups[group] = self._committed(group)
            found.append(self._of_groups[group].get(key))
        return max((each.offset for each in found if each is not None), default=0)

    @property
    def record_count(self) -> int:
        """Number of offsets from the starts to the ends."""
        return sum(max(0, end - self.starts[key]) for key, end in self.ends.items())


class Redrive:
    """One redrive of a dead-letter topic."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        offsets: RedriveOffsets,
        *,
        group: str | None,
        target: str | None,
        producer: TransactionalProducer | None,
    ) -> None:
        """`target` None: the topic and partition of each failed record. Without `producer` letters are counted only."""
        self._cluster = cluster
        self._offsets = offsets
        self._group = group
        self._target = target
        self._producer = producer
        self._id = redrive_id(topic, group)
        self._partition_counts: dict[str, int] = {}
        self.counts = RedriveCounts()

    def run(self, batches: Iterable[list[ConsumedRecord]], rate: int | None, progress: Callable[[int], None]) -> None:
        """Redrive the dead letters among records, from the starts of the offsets on.

        `rate` is the maximum of dead letters per second; `progress` gets the number of records so far. Raises
        KafkaError, ProducerFenced.
        """
        records = chain.from_iterable(batches)
        size = CHUNK if rate is None else min(CHUNK, rate)
        done = 0
        while chunk := list(islice(records, size)):
            started_s = time.monotonic()
            letters = [letter for record in chunk if (letter := self._due(record)) is not None]
            self._redrive(chunk, letters)
            done += len(chunk)
            progress(done)
            if rate is not None:
                time.sleep(max(0.0, started_s + len(letters) / rate - time.monotonic()))

    def _due(self, record: ConsumedRecord) -> ShareDeadLetter | None:
        """Return the dead letter in a record, if it belongs to this redrive and is not redriven yet."""
        letter = parse_dead_letter(record)
        if letter is None:
            self.counts.other_records += 1
            return None
        if self._group is not None and letter.group != self._group:
            return None
        first = self._offsets.first((record.topic, record.partition), letter.group)
        return letter if record.offset >= first else None

    def _redrive(self, chunk: list[ConsumedRecord], letters: list[ShareDeadLetter]) -> None:
        """Produce the records of a chunk and commit them with the offsets behind it; count them."""
        sources = failed_records(self._cluster, letters)
        produced = 0
        for letter in letters:
            count = self.counts.letters.setdefault((letter.group, letter.topic, letter.reason), LetterCount())
            record = redriven_record(letter, sources.get((letter.topic, letter.partition, letter.offset)))
            if record is None:
                count.not_redrivable += 1
                continue
            count.redrivable += 1
            if self._producer is not None:
                topic, partition = self._place(letter)
                self._producer.queue(topic, record.value, record.key, record.headers, partition)
                produced += 1
        if self._producer is not None:
            ends = {(record.topic, record.partition): CommittedOffset(record.offset + 1, -1, "") for record in chunk}
            self._producer.send_offsets(self._id, ends)
            self._producer.commit()
            self.counts.redriven += produced

    def _place(self, letter: ShareDeadLetter) -> tuple[str, int]:
        """Return topic and partition of a redriven record: the source's, or chosen by key in another topic."""
        if self._target is not None:
            return self._target, UNASSIGNED
        count = self._partition_counts.get(letter.topic)
        if count is None:
            try:
                count = len(self._cluster.topics.get(letter.topic).partitions)
            except TopicNotFound as error:
                raise KafkaError(
                    error.code,
                    f"topic {letter.topic!r}, which dead letter {letter} names, does not exist: create it, redrive "
                    "into another topic (--to), or redrive the dead letters of another group (--group)",
                ) from error
            self._partition_counts[letter.topic] = count
        return letter.topic, letter.partition if letter.partition < count else UNASSIGNED
