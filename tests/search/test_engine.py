"""The engine returns the matches of a naive scan, in both directions, for every log, window and budget."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.platform.reused_memory import ReusedMemory
from ottla.record.batch import BatchView
from ottla.record.builder import RecordData
from ottla.record.transactions import AbortedAt, TransactionFilter
from ottla.search.engine import Budget, Search
from ottla.search.evaluation import compile_filter
from ottla.search.literals import required_clauses
from ottla.search.parser import parse_query
from ottla.search.plan import Plan, fix_ranges, read_token
from ottla.search.report import BYTES, END, LIMIT, RECORDS, TIME, Report
from ottla.search.scan import Hit, Matcher
from ottla.search.subject import Decoders, Tally, open_decoders
from ottla.search.windows import Lookahead, Window, WindowResult, run_window

from .memory_topic import MemoryLog, MemoryTopic
from .model import QUERIES, Seen, newest_first, oldest_first

VALUES = (
    b'{"color": "blue", "n": 1}',
    b'{"color": "\\u0062lue", "n": 2}',
    b'{"color": "red", "n": 2.0}',
    b'{"color": "green", "n": "2"}',
    b'{"n": 20e-1, "nested": {"color": "blue"}}',
    b'{"n": 3, "id": "5e8400-1e2b"}',
    b"blue text",
    b"\xff\xfe blue bytes",
    b'{"color": "blue"',
    None,
)

KEYS = (None, b"k1", b"k2", b"blue")
HEADERS = ((), (("h", b"x"),), (("h", b"y"), ("h", b"x")), (("red", None),))

records = st.builds(
    RecordData,
    st.one_of(st.integers(0, 40), st.just(-1)),
    st.sampled_from(KEYS),
    st.sampled_from(VALUES),
    st.sampled_from(HEADERS),
)
appends = st.tuples(
    st.just("append"),
    st.lists(records, min_size=1, max_size=4),
    st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    st.sampled_from([-1, -1, 1, 2]),
)
ends = st.tuples(st.just("end"), st.sampled_from([1, 2]), st.booleans(), st.integers(0, 40))


@st.composite
def logs(draw: st.DrawFn) -> MemoryLog:
    log = MemoryLog()
    for step in draw(st.lists(st.one_of(appends, appends, ends), max_size=8)):
        if step[0] == "append":
            log.append(step[1], step[2], step[3])
        else:
            log.finish(step[1], commit=step[2], timestamp_ms=step[3])
    removed = draw(st.sets(st.integers(0, 30), max_size=6))
    log.compact(lambda offset: offset not in removed)
    log.delete_before(draw(st.sampled_from([0, 0, 0, 1, 3])))
    return log


topics = st.lists(logs(), min_size=1, max_size=3).map(lambda found: dict(enumerate(found)))


def visible(topic_logs: dict[int, MemoryLog], isolation: str) -> list[Seen]:
    found = []
    for partition, log in topic_logs.items():
        is_committed = isolation == "committed"
        aborted = [AbortedAt(each.producer_id, each.first_offset) for each in log.transactions if each.aborted]
        transactions = TransactionFilter(aborted if is_committed else ())
        end = log.last_stable_offset if is_committed else log.end
        for batch in log.batches:
            if transactions.passes(batch):
                found += [Seen(partition, each) for each in batch.records() if log.start <= each.offset < end]
    return found


def prepared(
    topic: MemoryTopic, query: str, *, newest: bool, isolation: str = "uncommitted", decoders: Decoders | None = None
) -> Plan:
    parsed = parse_query(query, 0)
    return Plan("t", query, fix_ranges(topic, parsed.scopes), newest, isolation, decoders or Decoders())


class ShuffledRunner:
    """Runs windows when one is taken, in another order, as workers do; results are pickled as between processes."""

    def __init__(self, topic: MemoryTopic, plan: Plan, fetch_bytes: int, capacity: int) -> None:
        self.capacity = capacity
        self._topic = topic
        decoders = open_decoders(plan.decoders)
        condition = parse_query(plan.query, 0).filter
        self._matcher = Matcher(
            compile_filter(condition), required_clauses(condition, decoders), decoders, Tally(), ReusedMemory()
        )
        self._fetch_bytes = fetch_bytes
        self._waiting: dict[int, Window] = {}
        self._results: dict[int, bytes] = {}
        self._next = 0
        self.scanned = 0

    def begin(self, processes: int) -> None:
        assert processes >= 2

    def submit(self, window: Window) -> int:
        self._next += 1
        self._waiting[self._next] = window
        return self._next

    def take(self, number: int) -> WindowResult:
        for each in sorted(self._waiting, key=lambda waiting: waiting * 7 % 5):
            matcher = self._matcher._replace(tally=Tally())
            result = run_window(self._topic, self._waiting.pop(each), matcher, self._fetch_bytes)
            self._results[each] = pickle.dumps(result)
            self.scanned += 1
        result = pickle.loads(self._results.pop(number))
        assert isinstance(result, WindowResult)
        return result

    def discard(self, number: int) -> None:
        if self._waiting.pop(number, None) is None:
            del self._results[number]


def clock() -> Callable[[], float]:
    """A second passes between two looks."""
    return itertools.count().__next__


def searched(
    topic: MemoryTopic,
    plan: Plan,
    budget: Budget | None = None,
    *,
    fetch_bytes: int = 1 << 20,
    monotonic: Callable[[], float] = lambda: 0.0,
    workers: int = 0,
) -> tuple[list[Hit], Report]:
    """With `workers`, windows of that capacity are scanned after some reads."""
    lookahead = Lookahead(ShuffledRunner(topic, plan, fetch_bytes, workers), clock(), 1) if workers else None
    search = Search(
        topic,
        plan,
        parse_query(plan.query, 0).filter,
        budget or Budget(),
        monotonic,
        fetch_bytes=fetch_bytes,
        lookahead=lookahead,
    )
    hits = list(search.run())
    return hits, search.report(search.reason)


def places(hits: list[Hit]) -> list[tuple[int, int]]:
    return [(hit.partition, hit.offset) for hit in hits]


@settings(max_examples=150, deadline=None)
@given(
    topics,
    st.sampled_from(sorted(QUERIES)),
    st.booleans(),
    st.sampled_from(["committed", "uncommitted"]),
    st.sampled_from([None, 1, 3]),
    st.sampled_from([1, 20_000, 60_000, 1 << 20]),
    st.sampled_from([0, 0, 1, 3]),
    st.sets(st.integers(0, 30)),
)
def test_matches_equal_a_naive_scan(topic_logs, query, newest, isolation, limit, fetch_bytes, workers, built):
    expected = (newest_first if newest else oldest_first)(visible(topic_logs, isolation), QUERIES[query])
    topic = MemoryTopic(topic_logs, isolation)
    topic.is_built = built.__contains__
    plan = prepared(topic, query, newest=newest, isolation=isolation)
    hits, report = searched(topic, plan, Budget(limit), fetch_bytes=fetch_bytes, workers=workers)
    assert places(hits) == expected[:limit]
    assert report.matches == len(hits)
    assert report.complete == (report.reason == END)
    if not report.complete:
        assert len(hits) == limit
    if report.complete and not newest:
        assert report.records == len(visible(topic_logs, isolation))


@settings(max_examples=80, deadline=None)
@given(
    topics,
    st.sampled_from(sorted(QUERIES)),
    st.booleans(),
    st.lists(
        st.builds(
            Budget,
            matches=st.sampled_from([None, 1, 2, 3]),
            records=st.sampled_from([None, None, 1, 4]),
            bytes=st.sampled_from([None, None, 1, 300]),
        ),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([1, 20_000, 1 << 20]),
    st.sampled_from([0, 3]),
)
def test_resumed_searches_find_each_match_once(topic_logs, query, newest, budgets, fetch_bytes, workers):
    expected = (newest_first if newest else oldest_first)(visible(topic_logs, "uncommitted"), QUERIES[query])
    topic = MemoryTopic(topic_logs)
    plan = prepared(topic, query, newest=newest)
    found: list[tuple[int, int]] = []
    reasons = set()
    for budget in [*budgets, Budget()]:
        hits, report = searched(topic, plan, budget, fetch_bytes=fetch_bytes, workers=workers)
        assert len(hits) <= (math.inf if budget.matches is None else budget.matches)
        found += places(hits)
        reasons.add(report.reason)
        if report.resume is None:
            break
        plan = read_token(report.resume)
    assert sorted(found) == sorted(expected)
    if reasons <= {LIMIT, END}:
        assert found == expected


@settings(max_examples=60, deadline=None)
@given(
    topics,
    st.sampled_from(sorted(QUERIES)),
    st.booleans(),
    st.sampled_from(["committed", "uncommitted"]),
    st.sampled_from([0, 3]),
    st.lists(st.sampled_from(["append", "compact", "retain", "abort", ""]), max_size=6),
    st.sets(st.integers(0, 30)),
)
def test_changes_during_a_search_lose_only_what_was_removed(
    topic_logs, query, newest, isolation, workers, steps, built
):
    before = visible(topic_logs, isolation)
    topic = MemoryTopic(topic_logs, isolation)
    topic.is_built = built.__contains__
    plan = prepared(topic, query, newest=newest, isolation=isolation)

    def change() -> None:
        step = steps.pop() if steps else ""
        for log in topic_logs.values():
            if step == "append":
                log.append([RecordData(50, b"k1", b'{"color": "blue", "n": 2}')])
            elif step == "compact":
                log.compact(lambda offset: offset % 3 != 1)
            elif step == "abort":
                log.append([RecordData(50, b"k1", b'{"color": "blue", "n": 2}')], producer_id=1)
                log.finish(1, commit=False)
            elif step == "retain":
                log.delete_before(log.start + 2)

    topic.on_fetch = change
    hits, report = searched(topic, plan, fetch_bytes=1, workers=workers)
    after = {seen.place for seen in visible(topic_logs, isolation)}
    expected = {seen.place for seen in before if QUERIES[query](seen)}
    assert expected & after <= set(places(hits)) <= expected
    assert len(set(places(hits))) == len(hits)
    assert report.complete == (report.lost == 0)


@pytest.mark.parametrize("query", sorted(QUERIES))
def test_records_alone_in_a_batch_match_as_in_a_scan(query):
    log = MemoryLog()
    for key in KEYS:
        for value in VALUES:
            for headers in HEADERS:
                log.append([RecordData(1, key, value, headers)])
    expected = oldest_first(visible({0: log}, "uncommitted"), QUERIES[query])
    topic = MemoryTopic({0: log})
    assert places(searched(topic, prepared(topic, query, newest=False))[0]) == expected


def filled(count: int = 60, partitions: int = 3) -> MemoryTopic:
    """Batches of two records with rising timestamps, in turn over the partitions."""
    topic_logs = {each: MemoryLog() for each in range(partitions)}
    for number in range(0, count, 2):
        pair = [RecordData(1_000 + number + each, b"k%d" % (number + each), b"value " * 20) for each in (0, 1)]
        topic_logs[number // 2 % partitions].append(pair)
    return MemoryTopic(topic_logs)


def test_newest_first_reads_only_the_newest_windows():
    topic = filled()
    hits, report = searched(topic, prepared(topic, "", newest=True), Budget(matches=2), fetch_bytes=1)
    assert [hit.key for hit in hits] == [b"k59", b"k58"]
    assert report.records < 10
    assert report.reason == LIMIT


@pytest.mark.parametrize("newest", [False, True])
def test_workers_scan_at_most_a_few_windows_ahead(newest):
    topic = filled(6_000)
    plan = prepared(topic, "k7", newest=newest)
    alone, report = searched(topic, plan, fetch_bytes=10_000)
    runner = ShuffledRunner(topic, plan, 10_000, 4)
    lookahead = Lookahead(runner, clock(), 1)
    search = Search(
        topic, plan, parse_query("k7", 0).filter, Budget(), lambda: 0.0, fetch_bytes=10_000, lookahead=lookahead
    )
    pending = []
    search.on_progress = lambda _: pending.append(lookahead.pending)
    assert places(list(search.run())) == places(alone)
    assert runner.scanned > 10
    assert max(pending) <= 4 + 1
    assert search.report(END) == replace(report, bytes=search.report(END).bytes)


def test_literal_rules_out_batches_without_decoding():
    topic = filled()
    hits, report = searched(topic, prepared(topic, "k31", newest=False))
    assert [hit.key for hit in hits] == [b"k31"]
    assert (report.records, report.skipped, report.verified) == (60, 58, 1)


def test_rare_value_of_a_common_field_is_verified_alone():
    topic = MemoryTopic({0: MemoryLog()})
    names = ["x"] * 90 + ["\\u0079", "y"]
    topic.logs[0].append([RecordData(1, b"k", b'{"name": "%b"}' % name.encode()) for name in names])
    hits, report = searched(topic, prepared(topic, 'value.name == "y"', newest=False))
    assert [hit.offset for hit in hits] == [90, 91]
    assert report.verified == 2


def test_rare_number_of_a_common_field_is_verified_alone():
    topic = MemoryTopic({0: MemoryLog()})
    numbers = ["7"] * 90 + ["42", "4.2e1", "42.0", "420", '"5e8400"']
    topic.logs[0].append([RecordData(1, b"k", b'{"n": %b}' % number.encode()) for number in numbers])
    hits, report = searched(topic, prepared(topic, "value.n == 42", newest=False))
    assert [hit.offset for hit in hits] == [90, 91, 92]
    assert report.verified == 4


def test_literal_is_not_required_of_other_decoders():
    topic = MemoryTopic({0: MemoryLog()})
    topic.logs[0].append([RecordData(1, b"\0\0\0\x07", b"x")])
    plan = prepared(topic, 'key == "00000007"', newest=False, decoders=Decoders(key="hex"))
    assert places(searched(topic, plan)[0]) == [(0, 0)]


@pytest.mark.parametrize(
    ("budget", "reason"), [(Budget(records=10), RECORDS), (Budget(bytes=500), BYTES), (Budget(seconds=3), TIME)]
)
@pytest.mark.parametrize("newest", [False, True])
def test_budget_stops_with_a_reason_and_a_token(budget, reason, newest):
    topic, ticks = filled(), iter(range(1_000))
    plan = prepared(topic, "", newest=newest)
    hits, report = searched(topic, plan, budget, fetch_bytes=1, monotonic=lambda: float(next(ticks)))
    assert (report.reason, report.complete) == (reason, False)
    assert 0 < len(hits) < 60
    assert report.resume is not None
    rest, finished = searched(topic, read_token(report.resume))
    assert len(hits) + len(rest) == 60
    assert finished.complete


def test_interrupted_search_can_be_resumed():
    topic = filled()

    def interrupt() -> None:
        if len(topic.fetches) == 5:
            raise KeyboardInterrupt

    topic.on_fetch = interrupt
    search = Search(topic, prepared(topic, "", newest=False), None, Budget(), lambda: 0.0, fetch_bytes=1)
    hits: list[Hit] = []
    with pytest.raises(KeyboardInterrupt):
        hits.extend(search.run())
    topic.on_fetch = lambda: None
    resume = search.report("interrupted").resume
    assert resume is not None
    hits += searched(topic, read_token(resume))[0]
    assert [hit.key for hit in hits] == [b"k%d" % number for number in range(60)]


@pytest.mark.parametrize("newest", [False, True])
def test_damaged_batch_is_listed_and_the_rest_searched(newest):
    topic = filled(20, 1)
    batch = bytearray(topic.logs[0].batches[3].to_bytes())
    batch[-1] ^= 1
    topic.logs[0].batches[3] = BatchView(batch)
    hits, report = searched(topic, prepared(topic, "", newest=newest))
    assert len(hits) == 18
    assert [(each.start, each.end) for each in report.unreadable] == [(6, 8)]
    assert not report.complete
    assert "offsets 6 to 7 of partition 0 could not be read" in report.sentence()


@pytest.mark.parametrize("newest", [False, True])
def test_truncated_end_is_listed(newest):
    topic = filled(20, 1)
    plan = prepared(topic, "", newest=newest)
    topic.logs[0].batches = topic.logs[0].batches[:-1]
    topic.logs[0].end = 18
    hits, report = searched(topic, plan)
    assert len(hits) == 18
    assert [(each.start, each.end, each.reason) for each in report.unreadable] == [
        (18, 20, "the high watermark of the leader is only 18")
    ]


def test_scopes_choose_partitions_and_offsets():
    topic = filled()
    ranges = fix_ranges(topic, parse_query("partition:0,2 from:5 until:8", 0).scopes)
    assert {key: (each.start, each.end) for key, each in ranges.items()} == {0: (5, 8), 2: (5, 8)}
    ranges = fix_ranges(topic, parse_query("from:1970-01-01T00:00:01.010Z until:100", 0).scopes)
    assert [(each.start, each.end) for each in ranges.values()] == [(4, 20), (4, 20), (2, 20)]
    assert fix_ranges(topic, parse_query("from:50 until:3", 0).scopes)[0].start == 3


def test_sentence_states_the_extent_and_the_matches():
    topic = filled()
    report = searched(topic, prepared(topic, "k31", newest=False))[1]
    assert report.sentence() == "searched 60 records in 3 partitions to the end; 1 match"
    report = replace(
        report,
        undecodable_reason="not json: cut",
        matches=0,
        undecodable=1,
        mismatches={"value.a is text, compared with a number": 2},
        lost=3,
    )
    assert report.sentence() == (
        "searched 60 records in 3 partitions to the end; 0 matches; 1 record could not be decoded (the first is "
        "not json: cut); "
        "value.a is text, compared with a number: 2 times; 3 offsets disappeared from the log before the search read "
        "them"
    )
