"""Scrubber of a node's logs: every complete segment is read in turn, damage is logged once, changes are ignored."""

from __future__ import annotations

import errno
import logging

import pytest

from ottla.metrics.registry import Counter
from ottla.record.batch import BatchView
from ottla.record.control import end_transaction_marker
from ottla.storage.compaction.retention import empty_batch
from ottla.storage.files.checkpoints import read_offsets
from ottla.storage.files.damage import Damage
from ottla.storage.files.log_config import LogConfig
from ottla.storage.repair.log_scrubber import LEAST_ROUND_S, STEP_MS, LogScrubber
from ottla.storage.segment.transaction_index import ENTRY

from .maintenance import run_retention

SEGMENT_BYTES = 2000
BATCHES = 40
BATCH = 3
"""Records."""


class Site:
    """A node with logs `a-0`, `a-1` and `b-0`, of several segments each."""

    def __init__(self, fakes, clock, disk, opened: list[str], *, batches: int = BATCHES) -> None:
        """`opened` are the files opened read-only; each log gets `batches` more."""
        self.opened = opened
        self.fakes = fakes
        self.clock = clock
        self.disk = disk
        config = LogConfig(segment_bytes=SEGMENT_BYTES, index_interval_bytes=200, retention_ms=-1)
        self.manager = fakes.open_manager(disk, clock, config=config)
        self.pool = fakes.Pool()
        self.found: list[Damage] = []
        self.read = Counter()
        self.scrubber = LogScrubber(self.manager, self.found.append, pool=self.pool, clock=clock, bytes_read=self.read)
        self.scrubber.max_bytes_per_second = 1 << 20
        for key in (("b", 0), ("a", 0), ("a", 1)):
            log = self.manager.create_log(*key)
            for _ in range(batches):
                self.append(log)
        opened.clear()

    def append(self, log) -> None:
        batch = self.fakes.make_batch(self.clock.now_ms + log.log_end_offset, BATCH)
        log.append_as_leader(batch, 0, len(batch), 1)

    def log(self, topic: str = "a", partition: int = 0):
        return self.manager.get_log(topic, partition)

    def step(self) -> None:
        self.clock.now_ms += STEP_MS
        self.scrubber.run_due()

    def run_round(self) -> None:
        """Start a new reading, and read to its end."""
        self.clock.now_ms += int(LEAST_ROUND_S * 1000)
        for _ in range(1000):
            self.step()
            self.pool.run_all()

    @property
    def complete(self) -> list:
        return [segment for log in self.manager.logs() for segment in log.segments[:-1]]

    def spoil(self, path: str, position: int) -> None:
        data = bytearray(self.disk.read_bytes(path))
        data[position] ^= 1
        self.disk.write_bytes(path, bytes(data))


@pytest.fixture
def site(fakes, clock, disk, monkeypatch):
    opened: list[str] = []
    open_file = disk.open

    def opening(path: str, *, create: bool = False, read_only: bool = False):
        if read_only:
            opened.append(path)
        return open_file(path, create=create, read_only=read_only)

    monkeypatch.setattr(disk, "open", opening)
    return Site(fakes, clock, disk, opened)


@pytest.mark.promise("D12")
def test_every_complete_segment_is_read_once_a_round_in_turn(site):
    everything = [segment for log in site.manager.logs() for segment in log.segments]
    site.run_round()
    read = [path for path in site.opened if path.endswith(".log")]
    assert read == sorted(segment.data.path for segment in everything), "active ones too, which no start has read"
    assert site.read.value == sum(segment.data.size_bytes for segment in everything)
    assert site.found == []
    assert site.scrubber.damaged == {}
    site.opened.clear()
    before = site.read.value
    site.run_round()
    read = [path for path in site.opened if path.endswith(".log")]
    assert read == sorted(segment.data.path for segment in site.complete)
    assert len(read) == 9
    assert site.read.value - before == sum(segment.data.size_bytes for segment in site.complete)


def test_a_round_does_not_begin_before_its_time(site):
    site.run_round()
    before = site.read.value
    site.clock.now_ms -= 1000 * STEP_MS
    site.step()
    assert not site.pool.queue
    assert site.read.value == before


def test_rate_bounds_bytes_read_in_a_step(site):
    site.scrubber.max_bytes_per_second = 4000
    for _ in range(12):
        site.step()
        site.pool.run_all()
    elapsed_s = 12 * STEP_MS / 1000
    assert 0 < site.read.value <= 4000 * elapsed_s


def test_one_piece_is_in_the_pool_at_most_and_none_at_rate_0(site):
    for _ in range(5):
        site.step()
    assert len(site.pool.queue) == 1
    site.pool.run_all()
    site.scrubber.max_bytes_per_second = 0
    site.step()
    assert not site.pool.queue


def test_damage_is_logged_once_and_reported_each_round(site, caplog):
    segment = site.log().segments[1]
    site.spoil(segment.data.path, 70)
    with caplog.at_level(logging.WARNING):
        site.run_round()
        (damage,) = site.found
        assert (damage.partition, damage.segment) == (("a", 0), segment.base_offset)
        assert (damage.first_offset, damage.last_offset) == (segment.base_offset, segment.base_offset + BATCH - 1)
        site.run_round()
    assert site.found == [damage, damage]
    assert [*site.scrubber.damaged] == [("a", 0)]
    logged = [record.message for record in caplog.records]
    assert len(logged) == 1
    assert segment.data.path in logged[0]
    site.spoil(segment.data.path, 70)  # repaired
    site.run_round()
    assert site.scrubber.damaged == {}


def test_unreadable_range_is_damaged_to_the_end(site):
    segment = site.log().segments[1]
    in_order = site.log().segments.in_order

    def fault(action: str, path: str) -> OSError | None:
        return OSError(errno.EIO, "bad sector") if action == "read" and path == segment.data.path else None

    site.disk.fault = fault
    site.run_round()
    (damage,) = site.found
    assert (damage.first_offset, damage.last_offset) == (segment.base_offset, in_order[2].base_offset - 1)
    assert damage.reason == "bad sector"


def test_missing_file_is_damage_and_open_file_limit_is_not(site):
    first, second, third, *_ = site.log().segments.in_order
    site.disk.unlink(second.data.path)

    def fault(action: str, path: str) -> OSError | None:
        return OSError(errno.EMFILE, "too many") if action == "read" and path == first.data.path else None

    site.disk.fault = fault
    site.run_round()
    assert [(damage.first_offset, damage.last_offset) for damage in site.found] == [
        (second.base_offset, third.base_offset - 1)
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda site: site.manager.delete_log("a", 0),
        lambda site: site.log().truncate_to(5),
        lambda site: site.log().truncate_fully_and_start_at(1000),
        lambda site: (
            site.log().maybe_increment_log_start_offset(site.log().log_end_offset),
            run_retention(site.manager),
        ),
        lambda site: site.log().begin_cleaning(),
    ],
    ids=["deletion", "truncation", "restart", "retention", "cleaning"],
)
@pytest.mark.parametrize("in_pool", [False, True], ids=["between pieces", "under a piece"])
def test_concurrent_change_is_not_damage(site, change, in_pool):
    """The segment is damaged, so that it would be reported if it counted."""
    site.scrubber.max_bytes_per_second = 2000
    first = site.log().segments[0]
    site.spoil(first.data.path, 70)
    while not any(path.endswith(".log") for path in site.opened):
        site.step()
        if site.pool.queue and not in_pool:
            site.pool.run_all()
        elif site.pool.queue:
            break
    assert site.scrubber.damaged == {}
    change(site)
    for _ in range(200):  # the rest of the round
        site.step()
        site.pool.run_all()
    assert site.read.value
    assert site.found == []
    assert site.scrubber.damaged == {}


def test_damaged_index_is_logged_once_and_is_not_damage(site, caplog):
    segment = site.log().segments[1]
    site.spoil(segment.data.path.replace(".log", ".index"), 3)
    with caplog.at_level(logging.WARNING):
        site.run_round()
        site.run_round()
    assert site.found == []
    (logged,) = [record.message for record in caplog.records]
    assert "index" in logged
    assert segment.data.path in logged
    assert [*site.scrubber.damaged] == [("a", 0)]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("how", ["cut", "removed"])
def test_cut_or_missing_index_is_reported(site, suffix, how):
    segment = site.log().segments[1]
    path = segment.data.path.replace(".log", suffix)
    if how == "cut":
        site.disk.write_bytes(path, site.disk.read_bytes(path)[:-1])
    else:
        site.disk.unlink(path)
    site.run_round()
    (finding,) = site.scrubber.damaged["a", 0].values()
    assert suffix in finding.index_problem


def write_transactions(site) -> list[str]:
    """Two interleaved producers over several segments; returns the indexes of the complete segments."""
    log = site.log()
    for number in range(24):
        for producer_id in (7, 8):
            batch = site.fakes.make_batch(
                site.clock.now_ms,
                BATCH,
                base_offset=log.log_end_offset,
                leader_epoch=1,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=BATCH * number,
                is_transactional=True,
            )
            log.append_as_follower(batch, 0, len(batch))
            if (number + producer_id) % 3 == 0:
                end_transaction(site, log, producer_id, commit=number % 2 == 0)
    for producer_id in (7, 8):
        end_transaction(site, log, producer_id, commit=False)
    log.roll()
    log.flush()
    paths = [segment.data.path.replace(".log", ".txnindex") for segment in log.segments[:-1]]
    return [path for path in paths if site.disk.exists(path)]


def end_transaction(site, log, producer_id: int, *, commit: bool) -> None:
    marker = end_transaction_marker(
        commit=commit,
        timestamp_ms=site.clock.now_ms,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        base_offset=log.log_end_offset,
        leader_epoch=1,
    )
    log.append_as_follower(marker, 0, len(marker))


def test_transaction_index_with_flipped_bit_is_rebuilt(site):
    paths = write_transactions(site)
    assert len(paths) > 1
    site.run_round()
    assert site.scrubber.damaged == {}
    for path in paths:
        whole = site.disk.read_bytes(path)
        for position in range(len(whole)):
            site.spoil(path, position)
            site.run_round()
            assert site.disk.read_bytes(path) == whole, (path, position)
    assert site.found == []
    assert site.scrubber.damaged == {}


def abort_one(site, log, *, rolls: int) -> str:
    """Abort a transaction with records `rolls` segments before its marker; returns the path of its index."""
    batch = site.fakes.make_batch(
        site.clock.now_ms,
        BATCH,
        base_offset=log.log_end_offset,
        leader_epoch=1,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    log.append_as_follower(batch, 0, len(batch))
    for _ in range(rolls):
        log.roll()
        site.append(log)
    end_transaction(site, log, 7, commit=False)
    return log.active_segment.data.path.replace(".log", ".txnindex")


def stop_as_apache_kafka(site) -> None:
    """Stop without the entry counts of transaction indexes, so that the start detects no missing entries."""
    site.manager.shutdown()
    path = "/data/recovery-point-offset-checkpoint"
    points = read_offsets(site.disk, path)
    own = {key for key in points if key[0].startswith(":ottla:")}
    assert own
    lines = [f"{topic} {index} {offset}" for (topic, index), offset in points.items() if (topic, index) not in own]
    site.disk.write_bytes(path, "\n".join(["0", str(len(lines)), *lines, ""]).encode())


@pytest.mark.parametrize("is_active", [False, True])
@pytest.mark.parametrize("snapshots", ["kept", "lost", "cleaned"])
@pytest.mark.parametrize("rolls", [0, 1, 2])
def test_removed_transaction_index_is_rebuilt(site, rolls, snapshots, is_active):
    """Also for a transaction from a segment before, in a log that was cleaned, and in the active segment."""
    path = abort_one(site, site.log(), rolls=rolls)
    if not is_active:
        site.log().roll()
    whole = site.disk.read_bytes(path)
    if snapshots == "cleaned":
        site.manager.cleaner_checkpoint.put(("a", 0), site.log().log_end_offset)
    stop_as_apache_kafka(site)
    site.disk.unlink(path)
    for name in site.disk.listdir("/data/a-0"):
        if name.endswith(".snapshot") and snapshots == "lost":
            site.disk.unlink(f"/data/a-0/{name}")
    again = Site(site.fakes, site.clock, site.disk, site.opened, batches=0)
    assert again.manager.had_clean_shutdown
    end_transaction(again, again.log(), 8, commit=False)  # after the start, and of no transaction
    again.run_round()
    assert again.disk.read_bytes(path) == whole
    assert again.log().segments.with_aborted, "readers look into it"
    assert again.found == []
    assert path.startswith(again.log().active_segment.data.path[:-4]) == is_active


def test_concurrent_appends_to_active_segment_are_ignored(fakes, clock, disk, caplog):
    site = Site(fakes, clock, disk, [], batches=0)
    path = abort_one(site, site.log(), rolls=0)
    while not site.pool.queue:
        site.step()
    site.append(site.log())
    abort_one(site, site.log(), rolls=0)
    site.pool.run_all()
    assert site.scrubber.damaged == {}
    assert not caplog.records
    assert len(disk.read_bytes(path)) == 2 * ENTRY.size


def test_records_dropped_by_cleaner_are_not_missed(site, caplog):
    """The marker and an empty batch of the producer are retained for a time: no records are visible."""
    log = site.log()
    for sequence in (0, BATCH):
        batch = site.fakes.make_batch(
            site.clock.now_ms,
            BATCH,
            base_offset=log.log_end_offset,
            leader_epoch=1,
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        kept = batch if sequence else empty_batch(BatchView(batch))
        log.append_as_follower(kept, 0, len(kept))
        end_transaction(site, log, 7, commit=bool(sequence))
    path = log.active_segment.data.path.replace(".log", ".txnindex")
    log.roll()
    site.manager.cleaner_checkpoint.put(("a", 0), log.log_end_offset)
    stop_as_apache_kafka(site)
    site.disk.unlink(path)
    again = Site(site.fakes, site.clock, site.disk, site.opened)
    again.run_round()
    assert not again.disk.exists(path)
    assert not caplog.records


@pytest.mark.parametrize("how", ["removed", "cut"])
def test_transaction_index_short_since_clean_stop_is_rebuilt(site, how):
    paths = write_transactions(site)
    whole = [site.disk.read_bytes(path) for path in paths]
    stop_as_apache_kafka(site)
    for path, data in zip(paths, whole, strict=True):
        if how == "removed":
            site.disk.unlink(path)
        else:
            site.disk.write_bytes(path, data[: -ENTRY.size])
    again = Site(site.fakes, site.clock, site.disk, site.opened)
    assert again.manager.had_clean_shutdown
    again.run_round()
    assert [site.disk.read_bytes(path) for path in paths] == whole
    assert again.log().segments.with_aborted, "readers look into them"


def test_stop_closes_open_files(site):
    site.scrubber.max_bytes_per_second = 2000
    before = site.disk.open_count
    site.step()
    site.step()
    site.pool.run_all()
    assert site.disk.open_count > before
    site.scrubber.stop()
    assert site.disk.open_count == before
    site.step()
    assert not site.pool.queue


def test_damage_of_deleted_log_is_forgotten(site):
    site.spoil(site.log().segments[1].data.path, 70)
    site.run_round()
    assert ("a", 0) in site.scrubber.damaged
    site.manager.delete_log("a", 0)
    site.run_round()
    assert site.scrubber.damaged == {}
