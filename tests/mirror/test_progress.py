"""The journal of mirrors, selection and names of topics, and cycles."""

from __future__ import annotations

import re

import pytest

from ottla.client.wire.model import ConfigEntry, TopicInfo
from ottla.common.errors import OperatorError
from ottla.mirror.opening import ProgressTopic, require_known
from ottla.mirror.progress import Journal, Progress, Run, map_record, progress_record
from ottla.mirror.routes import (
    PROGRESS_TOPIC,
    Origin,
    Route,
    TargetSettings,
    chosen_topics,
    copied_settings,
    refuse_cycle,
    renamed,
    require_two_clusters,
)
from ottla.record.builder import RecordData

ROUTE = Route("A", "täg", 2, "b.täg")
PROGRESS = Progress(70, bytes(range(16)), bytes(16), True, frozenset({Origin("A", "täg"), Origin("Z", "x")}))
RUNS = (Run(2, 0, 5, 100, 5), Run(2, 7, 9, 106, 2))


def replayed(*records: RecordData) -> Journal:
    journal = Journal()
    for offset, record in enumerate(records):
        journal.replay(offset, record.key, record.value)
    return journal


def test_a_journal_has_the_latest_of_each_route() -> None:
    other = ROUTE._replace(partition=3)
    journal = replayed(
        progress_record(ROUTE, PROGRESS, 1),
        progress_record(other, PROGRESS, 1),
        map_record(ROUTE, 0, RUNS[:1], 1),
        map_record(ROUTE, 7, RUNS[1:], 1),
        progress_record(ROUTE, PROGRESS._replace(offset=90), 1),
        map_record(ROUTE, 0, None, 1),
    )
    assert journal.progress == {ROUTE: PROGRESS._replace(offset=90), other: PROGRESS}
    assert journal.runs == {ROUTE: {7: RUNS[1:]}}


def test_tombstone_removes_route_and_unknown_kinds_are_ignored() -> None:
    gone = RecordData(1, progress_record(ROUTE, PROGRESS, 1).key, None)
    later = RecordData(1, b'["later","A","t",0,"t"]', b"?")
    assert replayed(progress_record(ROUTE, PROGRESS, 1), gone, RecordData(1, later.key, b"{}")).progress == {}


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"[]",
        b"\xff",
        b"{}",
        b'["progress","A","t",0,"t"]',
        b'["map","A","t",0,"t"]',
        b'["map","A","t",1e999,"t",0]',
        b"[" * 100_000,
    ],
)
def test_foreign_progress_records_are_rejected(key: bytes | None) -> None:
    with pytest.raises(OperatorError, match=r"record at offset 9 .* restrict WRITE on this topic to mirrors"):
        Journal().replay(9, key, b"{}")


def test_origins_reach_over_clusters_and_a_cycle_is_refused() -> None:
    of_b = replayed(
        progress_record(Route("A", "t", 0, "t"), PROGRESS._replace(origins=frozenset({Origin("A", "t")})), 1)
    )
    origins = of_b.origins_of("B", "t")
    assert origins == {Origin("A", "t"), Origin("B", "t")}
    of_c = replayed(progress_record(Route("B", "t", 0, "u"), PROGRESS._replace(origins=origins), 1))
    refuse_cycle("t", "C", origins)
    refuse_cycle("other", "A", of_c.origins_of("C", "other"))
    for target in ("A", "B"):
        with pytest.raises(OperatorError, match="records would be copied forever"):
            refuse_cycle("u", target, of_c.origins_of("C", "u"))


@pytest.mark.parametrize(
    ("ids", "words"),
    [(("A", "A"), "are the same cluster, A"), ((None, "A"), "reports no cluster id"), (("A", ""), "reports no")],
)
def test_two_clusters_are_asked_for(ids: tuple[str | None, str | None], words: str) -> None:
    with pytest.raises(OperatorError, match=words):
        require_two_clusters(*ids)
    assert require_two_clusters("A", "B") == ("A", "B")


def test_topics_are_chosen_by_their_whole_names() -> None:
    topics = {
        name: TopicInfo(name, bytes(16), name.startswith("__"), ())
        for name in ("a", "ab", "__consumer_offsets", PROGRESS_TOPIC)
    }
    assert list(chosen_topics(topics, re.compile("a"))) == ["a"]
    assert list(chosen_topics(topics, re.compile(".*"))) == ["a", "ab"]
    assert renamed("a", "x.{topic}") == "x.a"


def test_topic_settings_are_copied_and_cluster_settings_are_not() -> None:
    def entry(name: str, value: str | None, source: str = "topic") -> ConfigEntry:
        return ConfigEntry(name, value, source, False, False, False, None)

    entries = [
        entry("retention.ms", "5"),
        entry("segment.bytes", "9", "default"),
        entry("min.insync.replicas", "2"),
        entry("message.timestamp.type", "LogAppendTime"),
        entry("compression.zstd.level", "7"),
    ]
    known = frozenset({"retention.ms", "segment.bytes", "min.insync.replicas", "message.timestamp.type"})
    assert copied_settings(entries, TargetSettings(known, {})) == {"retention.ms": "5"}
    assert "compression.zstd.level" in copied_settings(entries, TargetSettings(known | {"compression.zstd.level"}, {}))


def test_a_transactional_id_is_of_one_route_only() -> None:
    routes = [ROUTE, ROUTE._replace(partition=3), ROUTE._replace(cluster_id="B"), ROUTE._replace(target="t")]
    assert len({route.transactional_id for route in routes}) == len(routes)


def test_filled_target_topic_needs_known_progress() -> None:
    """Progress of any source: several may be copied into one topic."""
    journal = replayed(progress_record(ROUTE, PROGRESS, 1))
    grown, unfilled = ROUTE._replace(partition=9), ROUTE._replace(topic="x", target="y")
    others = [ROUTE._replace(cluster_id="B"), ROUTE._replace(topic="t")]
    require_known(journal, [ROUTE, grown, unfilled, *others], frozenset({ROUTE.target, "z"}))
    with pytest.raises(
        OperatorError, match=f"progress for a copy of {unfilled.topic!r} of the source: a copy from the"
    ):
        require_known(journal, [ROUTE, unfilled, unfilled._replace(partition=0)], frozenset({ROUTE.target, "y"}))
    with pytest.raises(OperatorError, match=r"\(and 1 more\)"):
        require_known(Journal(), [ROUTE, unfilled], frozenset({ROUTE.target, "y"}))


def test_the_progress_topic_stays_the_one_that_it_was() -> None:
    kept = ProgressTopic()
    kept.require_same(bytes(16))
    kept.reached(5)
    kept.written(5)
    kept.written(8)
    kept.require_same(bytes(16))
    for refused in (lambda: kept.written(8), lambda: kept.require_same(b"1" * 16), lambda: kept.require_same(None)):
        with pytest.raises(OperatorError, match="was deleted or lost records"):
            refused()
