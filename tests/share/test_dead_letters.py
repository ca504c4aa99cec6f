"""Records that wait for their dead letters in a share partition, and the content and producers of dead letters."""

from __future__ import annotations

from ottla.common.kafka.share_state import RecordState, SharePartitionKey
from ottla.record.batch import BatchView
from ottla.share.acknowledgements import AcknowledgeType
from ottla.share.dead_letters import (
    LIMIT_TEXT,
    REJECTED_TEXT,
    SLOTS,
    SourceRecord,
    batch_of,
    dead_letter,
    producer_of,
)
from ottla.share.settings import ShareSettings
from ottla.share.share_partition import DueDeadLetter

from .builders import Member, log_of

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
LIMIT = 2
KEY = SharePartitionKey("group", b"t" * 16, 3)


def member() -> Member:
    """Holds the records 0 to 9, in a group with a dead-letter topic."""
    found = Member(settings=ShareSettings(LIMIT, dead_letters=True))
    found.acquire(log_of((0, 9)))
    return found


def test_failed_records_hold_the_start_until_archived() -> None:
    found = member()
    found.acknowledge(0, 1, REJECT)
    found.acknowledge(2, 9, ACCEPT)
    assert not found.partition.due_dead_letters(10), "ARCHIVING is stored first"
    found.store_all()
    assert found.partition.due_dead_letters(10) == [DueDeadLetter(0, 1, True), DueDeadLetter(1, 1, True)]
    assert found.partition.due_dead_letters(1) == [DueDeadLetter(0, 1, True)]
    assert (found.partition.start_offset, found.store.complete_count) == (0, 8)
    found.partition.archive([0])
    assert found.partition.start_offset == 0, "ARCHIVED is stored first"
    found.store_all()
    assert (found.partition.start_offset, found.store.start_offset) == (1, 1)


def test_delivery_limit_makes_records_archiving() -> None:
    found = member()
    found.acknowledge(0, 9, RELEASE)
    found.store_all()
    found.acquire(log_of((0, 9)))
    found.acknowledge(0, 0, RELEASE)
    found.store_all()
    found.partition.release_member("m", 0)
    found.store_all()
    assert {each.rejected for each in found.partition.due_dead_letters(10)} == {False}


def test_failed_write_of_archived_is_repeated() -> None:
    found = member()
    found.acknowledge(0, 9, REJECT)
    found.store_all()
    found.partition.archive(range(10))
    found.store_all(stored=False)
    assert not found.partition.due_dead_letters(10)
    found.store_all()
    assert found.partition.start_offset == 10


def test_failed_write_of_a_rejection_reverts_it() -> None:
    found = member()
    found.acknowledge(0, 9, REJECT)
    found.store_all(stored=False)
    assert found.states()[0] == (RecordState.ACQUIRED, 1)
    assert found.partition.archiving_count == 0


def test_new_leader_writes_the_dead_letters() -> None:
    found = member()
    found.acknowledge(0, 4, REJECT)
    found.store_all()
    found.change_leader()
    assert [each.offset for each in found.partition.due_dead_letters(10)] == [0, 1, 2, 3, 4]
    assert {each.rejected for each in found.partition.due_dead_letters(10)} == {True}
    found.acquire(log_of((5, 9)))
    assert found.partition.archiving_count == 5


# --- content ----------------------------------------------------------------------------------------------------------


def test_dead_letter_names_the_record_behind_copied_headers() -> None:
    source = SourceRecord(7, b"k", b"v", [("h", None), ("__dlq.errors.group", b"first")])
    letter = dead_letter(KEY, "topic", DueDeadLetter(41, 5, False), source, 99)
    (record,) = BatchView(batch_of(letter, producer_of(KEY, 0, 41))).records()
    assert (record.timestamp, record.key, record.value) == (99, b"k", b"v")
    assert record.headers[:2] == (("h", None), ("__dlq.errors.group", b"first"))
    assert dict(record.headers) == {
        "h": None,
        "__dlq.errors.topic": b"topic",
        "__dlq.errors.partition": b"3",
        "__dlq.errors.offset": b"41",
        "__dlq.errors.group": b"group",
        "__dlq.errors.delivery.count": b"5",
        "__dlq.errors.message": LIMIT_TEXT.encode(),
        "__dlq.errors.timestamp": b"7",
    }


def test_dead_letter_without_copies_has_the_headers_of_kafka() -> None:
    letter = dead_letter(KEY, "topic", DueDeadLetter(41, 1, True), None, 99)
    assert (letter.key, letter.value, len(letter.headers)) == (None, None, 6)
    assert dict(letter.headers)["__dlq.errors.message"] == REJECTED_TEXT.encode()


def test_producers_differ_within_a_window_and_epochs_rise() -> None:
    ids = {producer_of(KEY, 0, offset).id for offset in range(12_345, 12_345 + SLOTS)}
    assert len(ids) == SLOTS
    assert min(ids) >= 1 << 62
    assert max(ids) < 1 << 63
    first, later = producer_of(KEY, 0, 5), producer_of(KEY, 0, 5 + 3 * SLOTS)
    assert (later.id, later.epoch) == (first.id, first.epoch + 3)
    far = producer_of(KEY, 0, 5 + SLOTS * (1 << 15))
    assert (far.epoch, far.id == first.id) == (0, False), "a producer epoch has 16 bits"
    assert producer_of(KEY, 1, 5).id != first.id
