"""The log of a controller term and its server: stored data, responses to followers, and the end of the log."""

from __future__ import annotations

from typing import Any

import pytest
from simulation.loop import SimClock, SimLoop

from ottla.common.errors import ErrorCode, KafkaError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.log import LeaderAndEpoch
from ottla.metadata.records import ApiMessageAndVersion, encode_record, versioned
from ottla.protocol.messages.metadata_records import ConfigRecord
from ottla.quorum.raft_types import FetchVerdict, OffsetAndEpoch, ReplicaKey
from ottla.quorum.replay import batch_content
from ottla.quorum.rpc import fetch_request, snapshot_request
from ottla.quorum.snapshot_file import SnapshotId, batches_of
from ottla.quorum.snapshot_image import load_snapshot
from ottla.record.batch import iter_batches
from ottla.zookeeper import term_log
from ottla.zookeeper.log import first_offset
from ottla.zookeeper.term_log import ControllerTermLog
from ottla.zookeeper.term_server import TermLogServer

EPOCH = 3
CLUSTER = "c" * 22
START = first_offset(EPOCH) + 1


class Reign:
    """A log that grows, its service, and what that answered."""

    def __init__(self, settings: int = 1, *, followed: bool = True) -> None:
        self.loop = SimLoop()
        self.image = image_with(EMPTY_IMAGE, [setting(number) for number in range(settings)], first_offset(EPOCH))
        self.log = ControllerTermLog(self.image, SimClock(self.loop), self.loop)
        self.leader = LeaderAndEpoch(1, EPOCH)
        self.service = TermLogServer(CLUSTER, lambda: self.leader, self.loop)
        self.service.begin(self.log)
        self.answers: list[Any] = []
        if followed:
            self.fetch(0, last=0)
            self.answers.clear()

    def write(self, *records: ApiMessageAndVersion) -> None:
        self.image = image_with(self.image, records, self.image.offset + len(records))
        self.log.append([encode_record(record) for record in records], self.image)
        self.service.grown()

    def fetch(self, offset: int, epoch: int = EPOCH, last: int = EPOCH, wait_ms: int = 500, **more: Any) -> Any:
        """The part of the answer about the log; None while there is none."""
        request = fetch_request(
            more.get("cluster_id", CLUSTER),
            ReplicaKey(2),
            epoch,
            OffsetAndEpoch(offset, last),
            -1,
            max_wait_ms=wait_ms,
            max_bytes=more.get("max_bytes", 1 << 20),
        )
        self.answers.clear()
        self.service.fetch(request, self.answers.append)
        return self.answered

    @property
    def answered(self) -> Any:
        assert len(self.answers) < 2
        return self.answers[0].responses[0].partitions[0] if self.answers else None

    def snapshot(self, place: OffsetAndEpoch, position: int = 0, epoch: int = EPOCH, max_bytes: int = 1 << 20) -> Any:
        request = snapshot_request(CLUSTER, ReplicaKey(2), epoch, place, position, max_bytes)
        self.answers.clear()
        self.service.fetch_snapshot(request, self.answers.append)
        self.loop.run_until(self.loop.time() + 1)
        assert len(self.answers) == 1
        return self.answers[0].topics[0].partitions[0]


def setting(number: int, value: str = "v") -> ApiMessageAndVersion:
    return versioned(ConfigRecord(resource_type=2, resource_name=f"t{number}", name="n", value=value))


def image_with(before: MetadataImage, records: Any, offset: int) -> MetadataImage:
    delta = MetadataDelta(before)
    for record in records:
        delta.replay(record.message)
    return delta.apply(offset, EPOCH)[0]


def test_follower_at_its_position_gets_the_next_batches() -> None:
    reign = Reign()
    reign.write(setting(1), setting(2))
    reign.write(setting(3))
    responses = reign.fetch(START)
    found = [(batch.base_offset, len(batch_content(batch)[0])) for batch in iter_batches(responses.records)]
    assert found == [(START, 2), (START + 2, 1)]
    assert (responses.high_watermark, responses.log_start_offset) == (START + 3, START)
    assert responses.current_leader.leader_id == 1
    second = reign.fetch(START + 2)
    assert [batch.base_offset for batch in iter_batches(second.records)] == [START + 2]


def test_a_batch_comes_whole_and_no_more_than_was_asked_for() -> None:
    reign = Reign()
    for number in range(3):
        reign.write(setting(number))
    assert [batch.base_offset for batch in iter_batches(reign.fetch(START, max_bytes=1).records)] == [START]
    size = len(reign.fetch(START, max_bytes=1).records)
    assert len(reign.fetch(START, max_bytes=2 * size + 1).records) == 2 * size


def test_fetch_at_the_end_waits_up_to_its_max_wait() -> None:
    reign = Reign()
    assert reign.fetch(START) is None
    reign.write(setting(1))
    assert reign.answered.records
    assert reign.fetch(START + 1) is None
    reign.loop.run_until(reign.loop.time() + 0.6)
    assert (reign.answered.records, reign.answered.high_watermark) == (b"", START + 1)
    assert not reign.fetch(START + 1, wait_ms=0).records


def test_end_of_a_term_answers_waiting_fetches() -> None:
    reign = Reign()
    assert reign.fetch(START) is None
    reign.leader = LeaderAndEpoch(-1, EPOCH)
    reign.service.end()
    assert reign.answered.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert reign.fetch(START).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH), (EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_follower_of_another_term_gets_an_error(epoch: int, error: ErrorCode) -> None:
    reign = Reign()
    assert reign.fetch(START, epoch=epoch).error_code == error
    assert reign.snapshot(OffsetAndEpoch(START, EPOCH), epoch=epoch).error_code == error


def test_another_cluster_and_another_topic_are_refused() -> None:
    reign = Reign()
    with pytest.raises(KafkaError) as refused:
        reign.fetch(START, cluster_id="other")
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    request = snapshot_request(CLUSTER, ReplicaKey(2), EPOCH, OffsetAndEpoch(START, EPOCH), 0, 1)
    request.topics[0].name = "t"
    with pytest.raises(KafkaError):
        reign.service.fetch_snapshot(request, reign.answers.append)


@pytest.mark.parametrize("place", [(0, 0), (START - 1, EPOCH), (START, EPOCH - 1), (first_offset(EPOCH - 1) + 9, 2)])
def test_follower_with_a_log_of_another_term_gets_the_snapshot(place: tuple[int, int]) -> None:
    reign = Reign()
    responses = reign.fetch(place[0], last=place[1])
    assert (responses.snapshot_id.end_offset, responses.snapshot_id.epoch) == (START, EPOCH)
    assert not responses.records


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ((START + 1, EPOCH), ErrorCode.OFFSET_OUT_OF_RANGE),
        ((-1, EPOCH), ErrorCode.INVALID_REQUEST),
        ((START, -1), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_place_that_can_t_be(place: tuple[int, int], error: ErrorCode) -> None:
    assert Reign().fetch(place[0], last=place[1]).error_code == error


def test_a_snapshot_is_the_image_piece_by_piece() -> None:
    reign = Reign(settings=1000)
    place, data = OffsetAndEpoch(START, EPOCH), bytearray()
    while True:
        responses = reign.snapshot(place, len(data), max_bytes=5_000)
        assert (responses.error_code, responses.position) == (0, len(data))
        assert len(responses.unaligned_records) <= 5_000
        data += responses.unaligned_records
        if len(data) == responses.size:
            break
    assert load_snapshot(SnapshotId(*place), batches_of(data)).image == reign.image
    for position in (len(data), -1):
        assert reign.snapshot(place, position).error_code == ErrorCode.POSITION_OUT_OF_RANGE


def test_a_snapshot_that_there_is_not() -> None:
    reign = Reign()
    for place in (OffsetAndEpoch(START + 1, EPOCH), OffsetAndEpoch(START, EPOCH - 1)):
        assert reign.snapshot(place).error_code == ErrorCode.SNAPSHOT_NOT_FOUND


def test_large_snapshot_is_encoded_once_and_yields() -> None:
    reign = Reign(settings=2_000)
    request = snapshot_request(CLUSTER, ReplicaKey(2), EPOCH, OffsetAndEpoch(START, EPOCH), 0, 1 << 20)
    for _ in range(2):
        reign.service.fetch_snapshot(request, reign.answers.append)
    assert not reign.answers
    reign.service.end()
    assert [each.topics[0].partitions[0].error_code for each in reign.answers] == [ErrorCode.SNAPSHOT_NOT_FOUND] * 2
    reign.loop.run_until(reign.loop.time() + 1)
    assert len(reign.answers) == 2


class TestGrowth:
    def test_no_batch_is_stored_before_the_first_request(self) -> None:
        reign = Reign(followed=False)
        for number in range(3):
            reign.write(setting(number))
        assert not reign.log._batches
        place = OffsetAndEpoch(START + 3, EPOCH)
        assert reign.fetch(0, last=0).snapshot_id.end_offset == place.end_offset
        data = bytes(reign.snapshot(place).unaligned_records)
        assert load_snapshot(SnapshotId(*place), batches_of(data)).image == reign.image
        reign.write(setting(4))
        assert reign.fetch(place.end_offset).records

    def test_stored_bytes_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(term_log, "MAX_BYTES", 1_000)
        reign = Reign()
        for number in range(200):
            reign.write(setting(number % 7, str(number)))
            assert sum(map(len, reign.log._batches)) < 2_200
            assert len(reign.log._offsets) == len(reign.log._batches)
        assert reign.log.start_offset > START
        responses = reign.fetch(START)
        place = OffsetAndEpoch(responses.snapshot_id.end_offset, responses.snapshot_id.epoch)
        data = bytes(reign.snapshot(place).unaligned_records)
        image = load_snapshot(SnapshotId(*place), batches_of(data)).image
        offset = place.end_offset
        while offset < reign.log.end_offset:
            for batch in iter_batches(reign.fetch(offset).records):
                assert batch.base_offset == offset
                image = image_with(image, [versioned(each) for each in batch_content(batch)[0]], batch.next_offset - 1)
                offset = batch.next_offset
        assert image == reign.image

    def test_previous_snapshot_remains_for_its_fetchers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reign = Reign()
        first = OffsetAndEpoch(START, EPOCH)
        monkeypatch.setattr(term_log, "MAX_BYTES", 1)
        reign.write(setting(1))
        assert reign.fetch(0, last=0).snapshot_id.end_offset == START + 1
        assert reign.snapshot(first).error_code == 0
        assert reign.fetch(START).records, "what follows it is there, too"
        reign.write(setting(2))
        assert reign.snapshot(first).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
        assert reign.log.check_log_end(first) == FetchVerdict(snapshot=OffsetAndEpoch(START + 2, EPOCH))
