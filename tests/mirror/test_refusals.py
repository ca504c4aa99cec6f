"""Settings with which the target accepts records, and the setting in a rejection message."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.admin.configs import ConfigService
from ottla.client.librdkafka.batch_producer import BatchProducer, BatchRefused
from ottla.client.wire.model import ConfigEntry
from ottla.common.errors import ErrorCode, KafkaError
from ottla.mirror.copying import PartitionCopy, Step, Write, size_of
from ottla.mirror.option_values import SKIP
from ottla.mirror.progress import Run
from ottla.mirror.refusals import BURST, WINDOW_S, Refusals, explained, remedy_for, require_readable
from ottla.mirror.routes import MAX_LONG, Route, TargetSettings, admitting_settings
from ottla.mirror.translation import RouteMap
from ottla.record.batch import HEADER_SIZE, BatchView, Record
from ottla.record.builder import RecordData, build_batch

AFTER, BEFORE = "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"
DIFFERENCE = "message.timestamp.difference.max.ms"
POLICY = "cleanup.policy"
HOUR = "3600000"
ANY = str(MAX_LONG)
ROUTE = Route("A", "t", 1, "eu.t")


@pytest.mark.parametrize(
    ("source", "defaults", "wanted"),
    [
        pytest.param({AFTER: ANY, BEFORE: ANY}, {AFTER: HOUR, BEFORE: ANY}, {AFTER: ANY}, id="3.9 to 4.0"),
        pytest.param({DIFFERENCE: ANY}, {AFTER: HOUR, BEFORE: ANY}, {AFTER: ANY}, id="2.8 to 4.0"),
        pytest.param({DIFFERENCE: "7200000"}, {AFTER: HOUR, BEFORE: ANY}, {AFTER: "7200000"}, id="2.8 limits both"),
        pytest.param(
            {AFTER: ANY, BEFORE: ANY, DIFFERENCE: "7200000"},
            {AFTER: HOUR, BEFORE: ANY},
            {AFTER: "7200000"},
            id="3.9 with the older setting",
        ),
        pytest.param({AFTER: HOUR}, {DIFFERENCE: HOUR}, {DIFFERENCE: ANY}, id="4.0 to 2.8 that limits age"),
        pytest.param({AFTER: HOUR}, {AFTER: HOUR, BEFORE: HOUR}, {BEFORE: ANY}, id="age is not limited"),
        pytest.param({AFTER: HOUR}, {AFTER: ANY, BEFORE: ANY}, {}, id="wider already"),
        pytest.param({"max.message.bytes": "9"}, {"max.message.bytes": "8"}, {"max.message.bytes": "9"}, id="size"),
        pytest.param({"max.message.bytes": "9"}, {"max.message.bytes": "10"}, {}, id="size, wider already"),
        pytest.param(
            {"cleanup.policy": "delete"}, {"cleanup.policy": "delete,compact"}, {"cleanup.policy": "delete"}, id="keys"
        ),
        pytest.param({POLICY: "compact"}, {POLICY: "compact"}, {}, id="keys on both sides"),
        pytest.param(
            {"compression.type": "producer"}, {"compression.type": "gzip"}, {"compression.type": "producer"}, id="codec"
        ),
    ],
)
def test_new_topic_accepts_all_records_of_its_source(
    source: dict[str, str], defaults: dict[str, str], wanted: dict[str, str]
) -> None:
    names = frozenset(defaults)
    assert admitting_settings(source, TargetSettings(names, defaults)) == wanted


def test_defaults_that_the_target_does_not_show_are_set() -> None:
    names = frozenset({"max.message.bytes", "cleanup.policy"})
    source = {"max.message.bytes": "9", "cleanup.policy": "delete"}
    assert admitting_settings(source, TargetSettings(names, {})) == source


NOW_S = 1_700_000_000.0
RECORD = Record(7, int(NOW_S * 1000) - 5, None, b"v" * 100, (), 0)
LATER = Record(7, int(NOW_S * 1000) + 5, b"k", b"v", (), 0)
COMPACTED = {"cleanup.policy": "compact,delete"}


@pytest.mark.parametrize(
    ("code", "record", "settings", "wanted"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, RECORD, {}, "raise max.message.bytes of T"),
        (ErrorCode.RECORD_LIST_TOO_LARGE, RECORD, {"segment.bytes": "5"}, "raise segment.bytes of T (now 5)"),
        (ErrorCode.INVALID_TIMESTAMP, RECORD, {BEFORE: HOUR}, f"raise {BEFORE} of T (now {HOUR})"),
        (ErrorCode.INVALID_TIMESTAMP, LATER, {AFTER: HOUR}, f"raise {AFTER} of T (now {HOUR})"),
        (ErrorCode.INVALID_TIMESTAMP, LATER, {DIFFERENCE: HOUR}, f"raise {DIFFERENCE} of T (now {HOUR})"),
        (ErrorCode.INVALID_TIMESTAMP, LATER, {AFTER: "9", DIFFERENCE: HOUR}, f"raise {AFTER} of T (now 9)"),
        (ErrorCode.INVALID_RECORD, RECORD, COMPACTED, "remove compact from cleanup.policy of T (now compact,delete)"),
        (ErrorCode.INVALID_RECORD, LATER, COMPACTED, "change the limits of T"),
        (
            ErrorCode.INVALID_RECORD,
            RECORD,
            {"max.decompressed.message.bytes": str(size_of(RECORD) - 1)},
            f"raise max.decompressed.message.bytes of T (now {size_of(RECORD) - 1})",
        ),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, RECORD, {}, "upgrade the target's brokers"),
    ],
)
def test_refusal_names_the_setting_that_decides(
    code: ErrorCode, record: Record, settings: dict[str, str], wanted: str
) -> None:
    assert remedy_for(code, record, settings, "T", NOW_S) == wanted


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, "min.insync.replicas"),
        (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "message.format.version"),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "allow WRITE on transactional ids with the prefix"),
    ],
)
def test_error_of_a_whole_topic_names_its_setting(code: ErrorCode, words: str) -> None:
    found = explained(KafkaError(code, "no"), ROUTE, 17)
    assert found.code == code
    assert "topic 'eu.t' of the target rejects records of t-1 of the source from offset 17: no; " in found.message
    assert words in found.message


def test_unreadable_batch_is_reported_with_its_offsets() -> None:
    """Apache Kafka responds with UNKNOWN_SERVER_ERROR and no reason."""
    damaged = build_batch([RecordData(5, b"k", b"v")] * 3, compression="gzip")
    damaged[HEADER_SIZE:] = bytes(len(damaged) - HEADER_SIZE)
    step = Step(5, 12, (_write(5, [b"a"]), Write(1, BatchView(damaged), (), range(7, 10))))
    with pytest.raises(KafkaError, match="offsets 7 to 9 of t-1 of the source is damaged"):
        require_readable(ROUTE, step)


def _write(first: int, values: list[bytes]) -> Write:
    built = BatchView(build_batch([RecordData(5, b"k", value) for value in values]))
    return Write(1, built, (), range(first, first + len(values)))


class RefusingProducer(BatchProducer):
    """Rejects every batch, without a broker."""

    def __init__(self) -> None:
        pass

    def send(self, position: object, batches: Sequence[BatchView]) -> list[int]:
        raise BatchRefused(KafkaError(ErrorCode.POLICY_VIOLATION, "no"), 0, {})


class NamingProducer(RefusingProducer):
    """Rejects records 1 and 3 of the first batch by their numbers."""

    def send(self, position: object, batches: Sequence[BatchView]) -> list[int]:
        if batches[0].records_count == 5:
            raise BatchRefused(KafkaError(ErrorCode.INVALID_RECORD, "no"), 0, {1: "because", 3: None, 17: "?"})
        return [100]


def test_records_that_the_broker_names_are_left_out_at_once() -> None:
    lines: list[str] = []
    refusals = Refusals(SilentCluster(), SKIP, lines.append, monotonic=lambda: 0.0, time_s=lambda: NOW_S)
    copy = PartitionCopy(ROUTE, 30, 1, in_step=True)
    written = refusals.write(NamingProducer(), copy, Step(30, 35, (_write(30, [b"0", b"1", b"2", b"3", b"4"]),)))
    assert [record.value for write in written.step.writes for record in write.batch.records()] == [b"0", b"2", b"4"]
    assert written.step.runs(written.base_offsets) == (
        Run(1, 30, 31, 100, 1),
        Run(1, 32, 33, 101, 1),
        Run(1, 34, 35, 102, 1),
    )
    assert (written.skipped, len(lines)) == (2, 2)
    assert "target rejects: because; " in lines[0]


class SilentConfigs(ConfigService):
    """Shows no settings."""

    def __init__(self) -> None:
        pass

    def describe(self, *_: object) -> list[ConfigEntry]:
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")


class SilentCluster(Cluster):
    """Shows no settings."""

    def __init__(self) -> None:
        self.configs = SilentConfigs()


def test_log_of_skipped_records_is_bounded() -> None:
    lines: list[str] = []
    now_s = [0.0]
    refusals = Refusals(SilentCluster(), SKIP, lines.append, monotonic=lambda: now_s[0], time_s=lambda: NOW_S)
    count = 2 * BURST
    step = Step(30, 30 + count, (_write(30, [b"v"] * count),))
    copy = PartitionCopy(ROUTE, 30, 1, in_step=True)
    written = refusals.write(RefusingProducer(), copy, step)
    assert (written.step.writes, written.base_offsets, written.skipped) == ((), [], count)
    assert [line.split(" of t-1")[0] for line in lines] == [
        f"ERROR skipped the record at offset {offset}" for offset in range(30, 30 + BURST)
    ]
    now_s[0] = WINDOW_S
    refusals.write(RefusingProducer(), copy, step)
    refusals.log_rest()
    refusals.log_rest()
    assert [line for line in lines if "more records" in line] == [
        f"ERROR skipped {BURST} more records that the target rejects; not listed"
    ] * 2
    assert len(lines) == 2 * (BURST + 1)


def test_offsets_of_skipped_runs_translate_after_forgetting() -> None:
    """Transactions of which nothing was copied have no runs, and a group may be in the midst of one."""
    kept = RouteMap(0, 4, in_step=True)
    for number in range(300):
        first = number * 10
        kept.add(first, [] if number % 3 else [Run(1, first, first + 9, number // 3 * 9, 9)])
    assert kept.forget(1015)
    assert kept.complete_from <= 1015
    assert kept.translated(1015, 1) == 34 * 9
