"""Cleaner of a directory: selection of logs, ends of passes, and that a crash at any time loses nothing."""

from __future__ import annotations

import errno
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.step_cleaner import StepWorker

from ottla.record.batch import iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.record.keys import ENTRY_BYTES
from ottla.storage.directory.cleaner_report import reports_of
from ottla.storage.directory.log_cleaner import RETRY_MS, CleanerSettings, LogCleaner
from ottla.storage.files.checkpoints import format_offsets
from ottla.storage.files.log_config import LogConfig

from .maintenance import run_retention, write_checkpoints
from .turns import Death, Turns

CONFIG = LogConfig(segment_bytes=600, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
SETTINGS = CleanerSettings(
    threads=1, dedupe_buffer_bytes=100 * ENTRY_BYTES, load_factor=0.9, io_buffer_bytes=300, max_bytes_per_second=1e9
)
CHECKPOINT = "/data/cleaner-offset-checkpoint"


class NotedWorker(StepWorker):
    """Records the logs that it was given."""

    def __init__(self, site) -> None:
        super().__init__(site.disk, site.turns.steps.append)
        self.cleaned = site.cleaned

    def begin(self, task, report) -> None:
        self.cleaned.append(task.directory.rpartition("/")[2])
        super().begin(task, report)


class Site:
    """A directory with its cleaner; `run` continues until no work is left."""

    def __init__(self, fakes, threads: int = 1) -> None:
        self.fakes = fakes
        self.clock = fakes.Clock()
        self.disk = fakes.Disk(self.clock)
        self.settings = SETTINGS._replace(threads=threads)
        self.cleaned: list[str] = []
        self.values = itertools.count()
        self.open()

    def open(self) -> None:
        self.disk.locked.clear()
        self.manager = self.fakes.open_manager(self.disk, self.clock, config=CONFIG)
        self.turns = Turns(self.fakes.Pool())
        self.cleaner = LogCleaner(
            self.manager,
            self.settings,
            lambda: NotedWorker(self),
            pool=self.turns.pool,
            clock=self.clock,
            rng=self.fakes.Rng(5),
        )

    def log(self, topic: str, **changes):
        return self.manager.get_log(topic, 0) or self.manager.create_log(
            topic, 0, bytes(16), CONFIG._replace(**changes)
        )

    def append(self, topic: str, *keys: bytes, size: int = 10) -> None:
        log = self.log(topic)
        for key in keys:
            self.clock.now_ms += 10
            value = b"%d" % next(self.values)
            batch = build_batch([RecordData(self.clock.now_ms, key, value.ljust(size))], base_offset=log.log_end_offset)
            log.append_as_follower(batch, 0, len(batch))

    def fill(self, topic: str, *keys: bytes) -> None:
        """Append a complete, durable segment with these keys."""
        self.append(topic, *keys)
        self.log(topic).roll()
        self.log(topic).flush()

    def run(self) -> None:
        self.cleaner.run_due()
        self.turns.take_all()

    def records(self, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
        log, found = self.log(topic), []
        offset = log.log_start_offset
        while True:
            result = log.read(offset, 1 << 20, max_offset=log.log_end_offset)
            if result.records is None:
                return found
            data = result.records.read_all()
            result.records.release()
            for batch in iter_batches(data):
                found += [(record.offset, record.key, record.value) for record in batch.records()]
                offset = batch.next_offset

    def latest(self, topic: str) -> dict[bytes | None, tuple[int, bytes | None]]:
        return {key: (offset, value) for offset, key, value in self.records(topic)}

    def keys(self, topic: str) -> bytes:
        return b"".join(key or b"" for _, key, _ in self.records(topic))


@pytest.fixture
def site(fakes):
    return Site(fakes)


def test_pass_cleans_log_and_records_offset(site):
    site.fill("t", b"a", b"b", b"a")
    site.fill("t", b"b", b"c")
    want = site.latest("t")
    site.run()
    assert site.keys("t") == b"abc"
    assert site.latest("t") == want
    assert site.disk.read_bytes(CHECKPOINT) == format_offsets({("t", 0): 5})
    report = site.cleaner.reports["t", 0]
    assert report.dropped_bytes > 0
    assert report.written_bytes == sum(segment.data.size_bytes for segment in site.log("t").segments[:-1])
    assert report.read_bytes > report.written_bytes
    site.run()
    assert site.cleaned == ["t-0"], "nothing is dirty any more"


def test_interrupted_pass_resumes_behind_last_group(site):
    for keys in (b"aabcd", b"eefgh", b"iijkl"):
        site.fill("t", *(b"%c" % key for key in keys))  # one group each
    want = site.latest("t")
    site.cleaner.run_due()
    noted = set()
    while format_offsets({("t", 0): 5}) not in noted and site.turns.take_one():
        noted.add(site.disk.read_bytes(CHECKPOINT) if site.disk.exists(CHECKPOINT) else b"")
    assert site.cleaner.passes, "the pass is under way when its first group is noted"
    site.open()
    assert (site.cleaner.checkpoint.get(("t", 0)), site.latest("t")) == (5, want)
    site.log("t").flush()
    written = set()
    site.disk.fault = lambda action, path: written.add(path.rpartition("/")[2]) if action == "append" else None
    site.run()
    assert site.latest("t") == want
    assert site.keys("t") == b"abcdefghijkl"
    assert site.disk.read_bytes(CHECKPOINT) == format_offsets({("t", 0): 15})
    assert "00000000000000000010.log.cleaned" in written
    assert "00000000000000000000.log.cleaned" not in written, "what one pass has cleaned the next one leaves alone"


def test_only_compacted_logs_are_cleaned(site):
    site.log("t", cleanup_policy=frozenset({"delete"}))
    site.fill("t", b"a", b"a")
    site.run()
    assert site.cleaned == []


def test_overdue_log_is_cleaned_before_dirtiest(site):
    for topic in ("clean", "dirty", "late"):
        site.fill(topic, b"a", b"b", b"c", b"d")
    site.run()
    site.cleaned.clear()
    site.fill("dirty", *[b"a"] * 8)
    site.fill("clean", b"a")
    site.fill("late", b"a")
    site.log("late").config = CONFIG._replace(max_compaction_lag_ms=5)
    site.clock.now_ms += 10
    site.run()
    assert site.cleaned == ["late-0", "dirty-0", "clean-0"]


def test_changed_policy_decides_about_cleaning(site):
    deleted = frozenset({"delete"})
    log = site.log("t", cleanup_policy=deleted)
    site.fill("t", b"a", b"a")
    site.run()
    assert site.cleaned == []
    log.config = CONFIG
    site.run()
    assert site.cleaned == ["t-0"]
    log.config = CONFIG._replace(cleanup_policy=deleted)
    site.fill("t", b"a", b"a")
    site.run()
    assert site.cleaned == ["t-0"]


def test_report_has_state_and_reason_of_each_log(site):
    for topic in ("cleaned", "dirty", "second"):
        site.fill(topic, b"a", b"b")
    site.run()
    site.log("dirty").config = CONFIG._replace(min_cleanable_dirty_ratio=0.75)
    for topic in ("dirty", "first", "second"):
        site.fill(topic, b"a", b"b")
    site.append("volatile", b"a")
    site.log("volatile").roll()
    site.cleaner.run_due()
    site.log("new")
    topics = ["cleaned", "dirty", "first", "second", "volatile", "new"]
    reports = reports_of(site.cleaner, [site.log(topic) for topic in topics])
    assert [(report.topic, report.state, report.reason, report.retry_ms) for report in reports] == [
        ("cleaned", "waiting", "only the active segment is dirty", -1),
        ("dirty", "waiting", "the dirty ratio is not above min.cleanable.dirty.ratio, 0.75", -1),
        ("first", "cleaning", "", -1),
        ("second", "due", "", -1),
        ("volatile", "waiting", "complete segments wait for a flush", -1),
        ("new", "waiting", "the cleaner has not checked it yet", -1),
    ]
    assert [report.last_pass is not None for report in reports] == [True, True, False, True, False, False]


def test_a_ratio_has_to_be_passed(site):
    site.log("t", min_cleanable_dirty_ratio=1.0)
    site.fill("t", b"a", b"a")
    site.run()
    assert site.cleaned == []
    assert site.cleaner.max_dirty_ratio == 1.0


def test_as_many_logs_at_once_as_there_are_threads(fakes):
    site = Site(fakes, threads=2)
    for topic in "abc":
        site.fill(topic, b"k", b"k")
    site.cleaner.run_due()
    while len(site.cleaned) < 2:
        site.turns.take_one()
    assert len(site.cleaner.passes) == 2
    site.run()
    assert sorted(site.cleaned) == ["a-0", "b-0", "c-0"]
    assert not site.cleaner.passes


def test_keys_beyond_map_capacity_take_several_passes(site):
    site.cleaner.settings = SETTINGS._replace(dedupe_buffer_bytes=3 * ENTRY_BYTES)
    site.fill("t", b"a", b"b", b"c", b"d")
    site.fill("t", b"d", b"c", b"b", b"a")
    site.run()
    assert site.keys("t") == b"dcba"
    assert len(site.cleaned) > 2


def test_checkpoint_entry_is_durable_before_swap(site):
    site.fill("t", b"a", b"a")
    seen = []

    def watch(action, path):
        if ".cleaned" in path and not seen:
            seen.append(site.disk.read_bytes(CHECKPOINT))

    site.disk.fault = watch
    site.run()
    assert seen == [format_offsets({("t", 0): 0})]


def test_log_without_durable_entry_is_not_cleaned(site, caplog):
    site.fill("t", b"a", b"a")
    site.disk.fault = lambda action, path: OSError(errno.ENOSPC, "full") if CHECKPOINT in path else None
    site.run()
    assert site.cleaned == []
    assert "t-0 could not be cleaned for lack of space" in caplog.text
    site.disk.fault = lambda action, path: None
    site.run()
    assert site.keys("t") == b"a"


def test_damaged_log_is_reported_and_delays_no_other(site, caplog):
    site.fill("bad", b"a", b"a", b"a")
    site.fill("good", b"a", b"b", b"a")
    path = site.log("bad").segments[0].data.path
    whole = site.disk.read_bytes(path)
    site.disk.write_bytes(path, whole[:-1] + bytes([whole[-1] ^ 1]))
    before = site.disk.listdir("/data/bad-0")
    site.run()
    assert site.keys("good") == b"ba"
    assert "bad-0 can't be cleaned and keeps growing, retrying every 10 minutes: the CRC of" in caplog.text
    assert set(site.cleaner.uncleanable) == {("bad", 0)}
    assert site.disk.listdir("/data/bad-0") == before
    site.run()
    assert site.cleaned.count("bad-0") == 1
    site.clock.now_ms += RETRY_MS
    site.run()
    assert site.cleaned.count("bad-0") == 2
    assert caplog.text.count("bad-0 can't be cleaned") == 1, "the same reason is logged once"
    site.disk.write_bytes(path, whole)
    site.clock.now_ms += RETRY_MS
    site.log("bad").segments[0].data.descriptor.release_file()
    site.run()
    assert site.keys("bad") == b"a"
    assert not site.cleaner.uncleanable


def test_pass_is_retried_after_disk_full_error(site, caplog):
    site.fill("t", b"a", b"a")
    site.disk.fault = lambda action, path: OSError(errno.ENOSPC, "full", path) if ".cleaned" in path else None
    site.run()
    assert "could not be cleaned for lack of space" in caplog.text
    assert not site.cleaner.uncleanable
    assert not site.log("t").failed
    site.disk.fault = lambda action, path: None
    site.run()
    assert site.keys("t") == b"a"


@pytest.mark.parametrize("stage_fails", [True, False])
def test_disk_error_in_swap_ends_pass(site, stage_fails):
    site.fill("t", b"a", b"a")
    site.fill("u", b"a", b"a")

    def fault(action, path):
        wrong = action == "rename" and path.endswith(".cleaned") if stage_fails else action == "fsync"
        return OSError(errno.EIO, "bad") if wrong and "/t-0" in path else None

    site.disk.fault = fault
    site.run()
    assert not site.cleaner.passes
    assert set(site.cleaner.uncleanable) == {("t", 0)}
    assert site.keys("u") == b"a"
    site.disk.fault = lambda action, path: None
    site.open()
    assert site.latest("t") == {b"a": (1, site.latest("t")[b"a"][1])}


@pytest.mark.parametrize("end", ["cut", "remove", "set aside", "compact no more", "stop"])
def test_a_pass_ends_with_its_log_at_any_step(fakes, end):
    for steps in itertools.count():
        site = Site(fakes)
        site.fill("t", b"a", b"b", b"a")
        site.fill("t", b"a", b"c")
        site.append("t", b"a")
        site.fill("u", b"a")
        site.fill("u", b"a")
        before, cut = site.records("t"), site.log("t").log_end_offset - 1
        site.cleaner.run_due()
        if not all(site.turns.take_one() for _ in range(steps)):
            break
        if end == "cut":
            site.log("t").truncate_to(cut)
        elif end == "remove":
            site.manager.delete_log("t", 0)
        elif end == "set aside":
            site.manager.set_aside("t", 0)
        elif end == "compact no more":
            site.log("t").config = CONFIG._replace(cleanup_policy=frozenset({"delete"}))
            noted = site.manager.cleaner_checkpoint.get(("t", 0))
        else:
            site.cleaner.stop()
            site.turns.take_all()
            site.manager.shutdown()
            site.open()
            assert site.manager.had_clean_shutdown
        site.run()
        assert not site.cleaner.passes
        assert site.keys("u") == b"a", "the worker continued with another log"
        if end == "compact no more":
            assert site.log("t").cleaning is None
            assert site.manager.cleaner_checkpoint.get(("t", 0)) == noted, "nothing more was taken in"
            assert site.latest("t") == {key: (offset, value) for offset, key, value in before}
        if end in ("cut", "stop"):
            latest = {key: (offset, value) for offset, key, value in before if end == "stop" or offset < cut}
            assert site.latest("t") == latest
            site.disk.crash(fakes.Rng(steps + 1))
            site.open()
            assert site.latest("t") == latest
    assert steps > 8


def test_retention_of_compacted_log_runs_after_pass(site):
    site.log("t", cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1000)
    site.fill("t", b"a")
    site.clock.now_ms += 5000
    site.append("t", b"b", size=520)  # too large to be merged with the other
    site.log("t").roll()
    site.log("t").flush()
    site.cleaner.run_due()
    assert run_retention(site.manager) == 0
    site.run()
    assert site.keys("t") == b"b"


def test_retention_by_size_continues_behind_empty_segment(site):
    site.log("t", cleanup_policy=frozenset({"compact", "delete"}), retention_bytes=1200, retention_ms=-1)
    site.fill("t", *[b"a"] * 5)
    site.fill("t", *[b"%d" % number for number in range(4)], b"a")
    site.run()
    assert site.log("t").segments[0].data.size_bytes == 0
    for keys in (range(10, 15), range(20, 25), range(30, 35)):
        site.fill("t", *[b"%d" % number for number in keys])
    assert run_retention(site.manager) == 2
    assert site.log("t").log_start_offset == 10


KEYS = [bytes([byte]) for byte in b"abcdef"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.sampled_from(KEYS), min_size=1, max_size=6)),
        st.tuples(st.just("fill"), st.lists(st.sampled_from(KEYS), min_size=1, max_size=6)),
        st.tuples(st.just("clean"), st.integers(2, 9)),
        st.tuples(st.just("some_steps"), st.integers(1, 9)),
        st.tuples(st.just("cut"), st.integers(1, 5)),
        st.tuples(st.just("die"), st.integers(0, 80), st.booleans(), st.integers(1, 99)),
    ),
    max_size=25,
)


class Machine:
    """A log and a list of its written records, with arbitrary events between two steps of a pass."""

    def __init__(self, fakes) -> None:
        self.site = Site(fakes)
        self.site.log("t")
        self.written: list[tuple[int, bytes | None, bytes | None]] = []

    def _note(self) -> None:
        end = self.written[-1][0] + 1 if self.written else 0
        self.written += [record for record in self.site.records("t") if record[0] >= end]

    def append(self, keys) -> None:
        self.site.append("t", *keys)
        self._note()

    def fill(self, keys) -> None:
        self.site.fill("t", *keys)
        self._note()

    def clean(self, slots) -> None:
        self.site.cleaner.settings = SETTINGS._replace(dedupe_buffer_bytes=slots * ENTRY_BYTES)
        self.site.run()

    def some_steps(self, count) -> None:
        self.site.cleaner.run_due()
        for _ in range(count):
            self.site.turns.take_one()

    def cut(self, count) -> None:
        """An unclean election truncates the newest records, durable and cleaned or not."""
        if len(self.written) > count:
            offset = self.written[-count][0]
            # Records superseded by a lost record are lost with it, as everywhere in Kafka.
            if self.site.manager.cleaner_checkpoint.get(("t", 0)) is None:
                self.site.log("t").truncate_to(offset)
                del self.written[-count:]

    def die(self, actions, power, seed) -> None:
        left = [actions]
        site = self.site
        site.log("t").flush()
        write_checkpoints(site.manager)

        def fault(action, path):
            left[0] -= 1
            if left[0] < 0:
                raise Death

        site.disk.fault = fault
        try:
            site.run()
        except Death:
            pass
        finally:
            site.disk.fault = lambda action, path: None
        if power:
            site.disk.crash(site.fakes.Rng(seed))
        else:
            site.disk.files.process_died()
        site.open()
        assert not [name for name in site.disk.listdir("/data/t-0") if name.endswith((".cleaned", ".swap"))]

    def check(self) -> None:
        records = self.site.records("t")
        assert [offset for offset, _, _ in records] == sorted({offset for offset, _, _ in records})
        assert set(records) <= set(self.written)
        assert self.site.latest("t") == {key: (offset, value) for offset, key, value in self.written}


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_readers_find_latest_records_between_pass_steps(fakes, steps):
    machine = Machine(fakes)
    for name, *arguments in steps:
        getattr(machine, name)(*arguments)
        machine.check()


@pytest.mark.promise("D11")
def test_crash_at_any_action_of_pass_loses_nothing(fakes):
    for power in (False, True):
        for actions in itertools.count():
            machine = Machine(fakes)
            machine.fill([b"a", b"b", b"a"])
            machine.fill([b"b", b"c", b"a", b"d"])
            machine.append([b"a"])
            before = machine.site.disk.read_bytes
            machine.die(actions, power, actions + 1)
            machine.check()
            if machine.site.disk.exists(CHECKPOINT) and before(CHECKPOINT) == format_offsets({("t", 0): 7}):
                break
            machine.clean(9)
            machine.check()
            assert machine.site.keys("t") == b"bcada"
        assert actions > 20
