"""The log compared with a list: random appends, truncations at both ends, stops, kills and power failures."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scale import size

from ottla.common.errors import ErrorCode, KafkaError
from ottla.storage.files.log_config import LogConfig

from .maintenance import run_retention, write_checkpoints

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=150, retention_bytes=6000, retention_ms=-1)

OPERATIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 8), st.integers(0, 200)),
    st.tuples(st.just("append"), st.integers(1, 3), st.integers(0, 60)),
    st.tuples(st.just("epoch"), st.just(0), st.just(0)),
    st.tuples(st.just("roll"), st.just(0), st.just(0)),
    st.tuples(st.just("flush"), st.just(0), st.just(0)),
    st.tuples(st.just("flush_on_a_full_disk"), st.just(0), st.just(0)),
    st.tuples(st.just("truncate"), st.integers(0, 1000), st.just(0)),
    st.tuples(st.just("truncate_on_a_full_disk"), st.integers(0, 1000), st.just(0)),
    st.tuples(st.just("delete_records"), st.integers(0, 1000), st.just(0)),
    st.tuples(st.just("retention"), st.just(0), st.just(0)),
    st.tuples(st.just("checkpoint"), st.just(0), st.just(0)),
    st.tuples(st.just("stop"), st.just(0), st.just(0)),
    st.tuples(st.just("kill"), st.just(0), st.just(0)),
    st.tuples(st.just("power_failure"), st.integers(1, 10_000), st.just(0)),
    st.tuples(st.just("read"), st.integers(0, 1000), st.integers(1, 3000)),
    st.tuples(st.just("find_time"), st.integers(0, 1000), st.just(0)),
)


class Machine:
    """One partition on a crash disk, and the list it must equal."""

    def __init__(self, fakes) -> None:
        self.fakes = fakes
        self.clock = fakes.Clock()
        self.disk = fakes.Disk(self.clock)
        self.manager = fakes.open_manager(self.disk, self.clock, config=CONFIG)
        self.log = self.manager.create_log("t", 0, bytes(range(16)))
        self.batches: list[tuple[int, int, bytes]] = []  # base offset, last offset, bytes behind the leader epoch
        self.times: list[int] = []
        self.start = 0
        self.epoch = 0
        self.sequence = 0
        self.durable_end = 0

    @property
    def end(self) -> int:
        return self.batches[-1][1] + 1 if self.batches else self.floor

    floor = 0

    def append(self, count: int, size: int) -> None:
        self.clock.now_ms += 10
        batch = self.fakes.make_batch(
            self.clock.now_ms,
            count,
            size,
            producer_id=5,
            producer_epoch=0,
            base_sequence=self.sequence,
        )
        end = self.end
        result = self.log.append_as_leader(batch, 0, len(batch), self.epoch)
        assert (result.base_offset, result.last_offset) == (end, end + count - 1)
        again = self.log.append_as_leader(batch, 0, len(batch), self.epoch)
        assert again.duplicate
        assert (again.base_offset, again.last_offset) == (result.base_offset, result.last_offset)
        self.sequence += count
        self.batches.append((end, end + count - 1, bytes(batch[16:])))
        self.times.append(self.clock.now_ms)

    def cut(self, end: int) -> None:
        """Return the model after a truncation at `end`."""
        while self.batches and self.batches[-1][1] >= end:
            self.batches.pop()
            self.times.pop()
        self.floor = end
        self.durable_end = min(self.durable_end, end)
        self.start = min(self.start, end)
        entry = self.log.producers.get(5)
        self.sequence = entry.last_sequence + 1 if entry is not None else self.sequence

    def truncate(self, choice: int, _: int) -> None:
        ends = [base for base, _, _ in self.batches if base >= self.start]
        if not ends:
            return
        end = ends[choice % len(ends)]
        self.log.truncate_to(end)
        self.cut(end)

    def full(self, action: str, path: str) -> OSError | None:
        return OSError(errno.ENOSPC, "full") if action == "append" else None

    def flush_on_a_full_disk(self, *_: int) -> None:
        self.disk.fault = self.full
        self.log.flush()
        self.disk.fault = lambda action, path: None
        assert self.log.flushed_offset == self.log.log_end_offset
        self.durable_end = self.end

    def truncate_on_a_full_disk(self, choice: int, _: int) -> None:
        ends = [base for base, _, _ in self.batches if base >= self.start]
        if not ends:
            return
        self.disk.fault = self.full
        with pytest.raises(KafkaError):
            self.log.truncate_to(ends[choice % len(ends)])
        self.disk.fault = lambda action, path: None
        assert not self.log.failed

    def delete_records(self, choice: int, _: int) -> None:
        if self.end > self.start:
            self.start += choice % (self.end - self.start + 1)
            self.log.delete_records(self.start)

    def retention(self, *_: int) -> None:
        run_retention(self.manager)
        assert self.log.log_start_offset >= self.start
        self.start = self.log.log_start_offset

    def reopen(self, expect_all: bool, durable_end: int) -> None:
        self.manager = self.fakes.open_manager(self.disk, self.clock, config=CONFIG)
        log = self.manager.get_log("t", 0)
        if log is None:
            assert not expect_all
            assert durable_end == 0
            log = self.manager.create_log("t", 0, bytes(range(16)))
        self.log = log
        if expect_all:
            assert log.log_end_offset == self.end
        if self.batches:
            assert durable_end <= log.log_end_offset <= self.end
        if log.log_end_offset < self.end:
            self.cut(log.log_end_offset)
        # The start offset is written with the checkpoints; until then deleted records may return. If the remaining log
        # ends before it, the log restarts empty there.
        self.start = log.log_start_offset
        if self.start == log.log_end_offset:
            self.batches.clear()
            self.times.clear()
            self.floor = self.start
        entry = log.producers.get(5)
        self.sequence = entry.last_sequence + 1 if entry is not None else self.sequence

    def stop(self, *_: int) -> None:
        start = self.start
        self.manager.shutdown()
        assert self.disk.open_count == 0
        self.durable_end = self.end
        self.reopen(True, self.end)
        assert self.manager.had_clean_shutdown
        assert self.start == start

    def kill(self, *_: int) -> None:
        self.disk.locked.clear()
        self.disk.open_count = 0
        self.reopen(True, self.end)
        assert not self.manager.had_clean_shutdown

    def power_failure(self, seed: int, _: int) -> None:
        self.disk.crash(self.fakes.Rng(seed))
        self.reopen(False, self.durable_end)

    def read(self, choice: int, max_bytes: int) -> None:
        """Read like a consumer: from an offset, continuing after the last whole batch."""
        if self.end <= self.start:
            return
        offset = self.start + choice % (self.end - self.start)
        for _ in range(5):
            if offset >= self.end:
                break
            result = self.log.read(offset, max_bytes, max_offset=self.end)
            assert result.records is not None
            data = result.records.read_all()
            result.records.release()
            expected = [batch for batch in self.batches if batch[1] >= offset]
            assert len(data) <= max(max_bytes, len(expected[0][2]) + 16)
            position = 0
            for _, last_offset, body in expected:
                size = len(body) + 16
                if position + size > len(data):
                    break
                assert data[position + 16 : position + size] == body
                position += size
                offset = last_offset + 1
            assert position, "not even one batch came whole"

    def find_time(self, choice: int, _: int) -> None:
        if not self.times:
            return
        number = choice % len(self.times)
        base = self.batches[number][0]
        if base < self.start:
            return
        found = self.log.lookup_timestamp(self.times[number])
        assert found is not None
        assert found[:2] == (base, self.times[number])

    def run(self, operation: tuple[str, int, int]) -> None:
        name, first, second = operation
        if name == "epoch":
            self.epoch += 1
        elif name == "roll":
            self.log.roll()
        elif name == "flush":
            self.log.flush()
            assert self.log.recovery_point == self.log.log_end_offset
            self.durable_end = self.end
        elif name == "checkpoint":
            write_checkpoints(self.manager)
        else:
            getattr(self, name)(first, second)

    def check(self) -> None:
        log = self.log
        assert log.log_start_offset == self.start
        assert log.log_end_offset == self.end
        visible = [batch for batch in self.batches if batch[1] >= self.start]
        assert self.fakes.read_log(log) == visible
        assert log.log_start_offset <= log.log_end_offset
        assert log.recovery_point <= log.flushed_offset <= log.log_end_offset
        with pytest.raises(KafkaError) as failure:
            log.read(self.end + 1, 100, max_offset=self.end)
        assert failure.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.promise("D1")
@pytest.mark.parametrize("worth_leaving", [16_384, 1])
@given(st.lists(OPERATIONS, min_size=5, max_size=40))
@settings(max_examples=size(15, 150), report_multiple_bugs=False, deadline=None)
def test_log_equals_list(fakes, worth_leaving, operations) -> None:
    machine = Machine(fakes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ottla.storage.segment.search.WORTH_LEAVING_BYTES", worth_leaving)
        for operation in operations:
            machine.run(operation)
            machine.check()


APPEND = ("append", 1, 0)
FLUSH = ("flush", 0, 0)
FLUSH_FULL = ("flush_on_a_full_disk", 0, 0)
ROLL = ("roll", 0, 0)
CHECKPOINT = ("checkpoint", 0, 0)
STOP = ("stop", 0, 0)
KILL = ("kill", 0, 0)


@pytest.mark.parametrize(
    "operations",
    [
        pytest.param([("power_failure", None, 0), APPEND, FLUSH_FULL], id="new log after a power failure"),
        pytest.param([KILL, APPEND, FLUSH_FULL], id="a new log that was never flushed"),
        pytest.param([APPEND, FLUSH, CHECKPOINT, ROLL, APPEND, KILL, FLUSH], id="a segment made before a kill"),
        pytest.param([APPEND, FLUSH, CHECKPOINT, ROLL, KILL, STOP, APPEND, FLUSH], id="a kill and a clean stop"),
        pytest.param([APPEND, STOP, ROLL, STOP, APPEND, FLUSH], id="a clean stop with an empty segment"),
        pytest.param([STOP, APPEND, FLUSH_FULL], id="a clean stop of an empty log"),
    ],
)
def test_flush_makes_names_of_earlier_process_durable(fakes, operations) -> None:
    """Names that an earlier process created without a sync are still lost in a power failure."""
    for seed in range(1, 30):
        for last in range(1, 10):
            machine = Machine(fakes)
            for name, first, second in [*operations, ("power_failure", last, 0)]:
                machine.run((name, seed if first is None else first, second))
                machine.check()


def test_log_without_topic_id_is_durable_after_flush(fakes) -> None:
    for seed in range(1, 10):
        machine = Machine(fakes)
        machine.manager.delete_log("t", 0)
        machine.log = machine.manager.create_log("t", 0)
        for operation in (APPEND, FLUSH_FULL, ("power_failure", seed, 0)):
            machine.run(operation)
            machine.check()
