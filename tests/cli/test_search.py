"""`ottla search` on a broker with compacted, deleted, aborted and open parts of a topic."""

from __future__ import annotations

import itertools
import json
import random
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.api.producer import Producer
from ottla.api.simple_consumer import SimpleConsumer
from ottla.cli.command import Command
from ottla.cli.search import search
from ottla.cli.search_results import Output, Progress, run_search, text_line
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import ConfigOperation, ResourceType
from ottla.common.errors import ErrorCode, KafkaError
from ottla.record.batch import Record
from ottla.record.builder import RecordData
from ottla.schemas import registry as registries
from ottla.search import workers
from ottla.search.engine import Budget, Search
from ottla.search.parser import parse_query
from ottla.search.plan import Plan, fix_ranges, read_token
from ottla.search.report import Report
from ottla.search.session import SearchRequest, SearchSession
from ottla.search.source import ClusterTopic
from ottla.search.syntax import Scopes
from ottla.search.windows import Lookahead

from ..search.memory_topic import MemoryLog, MemoryTopic
from ..search.model import QUERIES, Seen, newest_first, oldest_first

CONFIGS = {
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
TOPIC = "searched"
PARTITIONS = 3
FIRST_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
VALUES = (
    b'{"color": "blue", "n": 1}',
    b'{"color": "\\u0062lue", "n": 2}',
    b'{"color": "red", "n": 2.0}',
    b'{"color": "green", "n": "2"}',
    b"blue text",
    b"\xff\xfe blue bytes",
    None,
)
HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = ((), (("h", b"x"),), (("h", b"y"), ("red", None)))
WAIT_S = 300.0
PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "search.md"


class Filled(NamedTuple):
    """The servers, and the visible records by isolation level, read by another client."""

    servers: str
    visible: dict[str, list[Seen]]


def read_all(servers: str, isolation: str) -> list[Seen]:
    found = []
    with SimpleConsumer(servers, isolation=f"read_{isolation}") as consumer:
        for (_, partition), (offset, end) in consumer.bounds(consumer.partitions(TOPIC)).items():
            while offset < end:
                fetched = consumer.fetch(TOPIC, partition, offset)
                offset = fetched.next_offset
                for each in fetched.records:
                    record = Record(each.offset, each.timestamp_ms or 0, each.key, each.value, each.headers, 0)
                    found.append(Seen(partition, record))
    return found


def send(producer: Producer, rng: random.Random, count: int, keys: tuple[bytes | None, ...]) -> None:
    for number in range(count):
        producer.send(
            TOPIC,
            rng.choice(VALUES),
            rng.choice(keys),
            headers=rng.choice(HEADERS),
            partition=rng.randrange(PARTITIONS),
            timestamp_ms=FIRST_MS + number * 10 + rng.randrange(300),
        )
    producer.flush()


def widest_gap(found: Sequence[Seen], partition: int) -> int:
    offsets = [seen.record.offset for seen in found if seen.partition == partition]
    return max(after - before for before, after in itertools.pairwise(offsets))


def compact(cluster: Cluster, servers: str) -> None:
    """Let the cleaner remove superseded records in each partition, then switch it off for this topic.

    Apache Kafka rolls a segment for compaction when it appends a record whose timestamp is `max.compaction.lag.ms`
    after that of the first one.
    """
    later_ms = FIRST_MS
    deadline = time.monotonic() + WAIT_S
    while min(widest_gap(read_all(servers, "uncommitted"), each) for each in range(PARTITIONS)) <= 3:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        later_ms += 1_000
        with Producer(servers) as producer:
            for partition in range(PARTITIONS):
                producer.send(TOPIC, b"later", b"k1", partition=partition, timestamp_ms=later_ms)
    cluster.configs.alter(ResourceType.TOPIC, TOPIC, [("cleanup.policy", ConfigOperation.SET, "delete")])


def wait_for_key_filters(cluster: Cluster) -> None:
    """Closed segments of each partition have key filters: there are ranges without a key that no record has."""
    spans = {(TOPIC, partition): (0, 1 << 40) for partition in range(PARTITIONS)}
    deadline = time.monotonic() + WAIT_S
    while not all(cluster.records.ranges_without_keys(spans, [b"absent"], isolation="read_uncommitted").values()):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture(scope="module")
def filled(servers: str) -> Iterator[Filled]:
    rng = random.Random(7)
    keys = (b"k1", b"k2", b"blue", *(b"key-%d" % number for number in range(10)))
    topic_settings = {
        "cleanup.policy": "compact",
        "max.compaction.lag.ms": "300",
        "retention.ms": "-1",
        "ottla.search.index": "key",
    }
    with Cluster(servers) as cluster:
        cluster.topics.create(TOPIC, PARTITIONS, configs=topic_settings)
        for codec in CODECS:
            with Producer(servers, {"compression.type": codec, "batch.num.messages": 7}) as producer:
                send(producer, rng, 60, keys)
        compact(cluster, servers)
        with Producer(servers, {"transactional.id": "finished", "batch.num.messages": 5}) as producer:
            for number in range(6):
                try:
                    with producer.transaction():
                        send(producer, rng, 20, (None, *keys))
                        if number % 2:
                            raise LookupError
                except LookupError:
                    continue
        wait_for_key_filters(cluster)
        cluster.records.delete({(TOPIC, 1): 90})
        open_for_long = {"transactional.id": "open", "transaction.timeout.ms": 900_000}
        with Producer(servers, open_for_long) as producer, producer.transaction():
            send(producer, rng, 10, keys)
            with Producer(servers) as other:
                send(other, rng, 10, (None, *keys))
            yield Filled(servers, {each: read_all(servers, each) for each in ("committed", "uncommitted")})


def test_topic_has_gaps_aborted_and_open_transactions(filled):
    committed, uncommitted = filled.visible["committed"], filled.visible["uncommitted"]
    assert len(committed) < len(uncommitted) - 60
    assert min(seen.record.offset for seen in uncommitted if seen.partition == 1) >= 90
    assert widest_gap(uncommitted, 0) > 3


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(QUERIES)),
    st.sampled_from(["", "partition:0,2", "from:20 until:60", "from:2023-11-14T22:13:20.300Z"]),
    st.booleans(),
    st.sampled_from(["committed", "uncommitted"]),
    st.sampled_from([None, 1, 5, 20]),
    st.sampled_from([1_000, 100_000, 4_000_000]),
)
def test_search_equals_a_naive_scan(filled, query, scope, newest, isolation, limit, fetch_bytes):
    parsed = parse_query(f"{scope} {query}", 0)
    with Cluster(filled.servers) as cluster:
        source = ClusterTopic(cluster, TOPIC, isolation)
        ranges = fix_ranges(source, parsed.scopes)
        plan = Plan(TOPIC, query, ranges, newest, isolation, topic_id=source.topic_id)
        running = Search(source, plan, parsed.filter, Budget(limit), time.monotonic, fetch_bytes=fetch_bytes)
        found = [(hit.partition, hit.offset) for hit in running.run()]
    within = [
        seen
        for seen in filled.visible[isolation]
        if seen.partition in ranges and ranges[seen.partition].start <= seen.record.offset < ranges[seen.partition].end
    ]
    assert found == (newest_first if newest else oldest_first)(within, QUERIES[query])[:limit]
    assert running.report(running.reason).complete == (running.reason == "end")


def test_session_continues_with_the_token_of_a_page(filled):
    expected = newest_first(filled.visible["uncommitted"], QUERIES["blue"])
    request = SearchRequest(TOPIC, "blue", newest_first=True, budget=Budget(matches=7))
    found: list[tuple[int, int]] = []
    for _ in range(3):
        with SearchSession(filled.servers, request) as session:
            found += [(hit.partition, hit.offset) for hit in session.matches()]
            resume = session.report().resume
        assert resume is not None
        request = SearchRequest.resumed(resume, Budget(matches=7))
    assert found == expected[:21]


def test_cancelled_session_ends_with_a_token(filled):
    reports: list[Report] = []
    with SearchSession(filled.servers, SearchRequest(TOPIC)) as session:

        def cancel(report: Report) -> None:
            reports.append(report)
            session.cancel()

        hits = list(session.matches(cancel))
        report = session.report()
    assert len(reports) == 1
    assert (report.reason, report.complete, report.matches) == ("cancelled", False, len(hits))
    assert 0 < report.records < len(filled.visible["uncommitted"])
    assert report.resume is not None


@pytest.fixture
def at_once(monkeypatch):
    """Searches with worker processes from the first read on."""
    monkeypatch.setattr(Lookahead.__init__, "__defaults__", (0, *(Lookahead.__init__.__defaults__ or ())[1:]))


@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize("isolation", ["committed", "uncommitted"])
def test_worker_processes_return_the_same_result(filled, newest, isolation, at_once):
    expected = (newest_first if newest else oldest_first)(filled.visible[isolation], QUERIES["value.n == 2"])
    request = SearchRequest(TOPIC, "value.n == 2", Scopes(isolation=isolation), newest)
    with SearchSession(filled.servers, request) as alone:
        list(alone.matches())
    with SearchSession(filled.servers, request, processes=2) as session:
        found = [(hit.partition, hit.offset) for hit in session.matches()]
        report = session.report()
    assert found == expected
    assert report == replace(alone.report(), bytes=report.bytes)


def test_short_search_starts_no_process(filled):
    with SearchSession(filled.servers, SearchRequest(TOPIC), processes=2) as session:
        assert len(list(session.matches())) == len(filled.visible["uncommitted"])
        assert session._pool is not None
        assert not session._pool._workers


def test_killed_worker_ends_the_search_with_a_token(run, filled, at_once, monkeypatch):
    monkeypatch.setattr(workers.WorkerPool, "_assign", lambda pool: [each.process.kill() for each in pool._workers])
    result = run(search, TOPIC, "", "--processes", "2", exit_code=2)
    assert "a worker process of the search ended with status -9" in result.stderr
    assert "--resume" in result.stderr


def test_worker_reports_errors_of_the_cluster(filled, at_once):
    """The topic id of the worker's setup is not that of the topic."""
    with SearchSession(filled.servers, SearchRequest(TOPIC), processes=2) as session:
        assert session._pool is not None
        session._pool._setup = session._pool._setup._replace(topic_id="x")
        with pytest.raises(KafkaError, match="deleted and created again during the search"):
            list(session.matches())


def test_json_shows_decoder_failure_and_raw_bytes(run, filled):
    result = run(search, TOPIC, "bytes", "--newest-first", "--limit", "1", "--json")
    line = json.loads(result.stdout)
    assert (line["value_decoder"], line["value_failure"]) == ("text", "byte 0 is not UTF-8")
    assert line["value_base64"] == "//4gYmx1ZSBieXRlcw=="
    assert {"topic", "partition", "offset", "timestamp", "timestamp_type", "headers"} <= line.keys()


def test_schema_file_decodes_and_is_given_again_to_resume(run, servers, tmp_path):
    schema = tmp_path / "pair.avsc"
    schema.write_text('{"type": "record", "name": "P", "fields": [{"name": "n", "type": "long"}]}')
    with Cluster(servers) as cluster:
        cluster.topics.create("pairs", 1)
    with Producer(servers) as producer:
        producer.send_batch("pairs", [b"\x54", b"\x54\0", b"\x54"])
    options = ("--value-decoder", "avro", "--schema", str(schema))
    result = run(search, "pairs", "value.n == 42", *options, "--limit", "1", "--json")
    line = json.loads(result.stdout)
    assert (line["value"], line["value_decoder"], line["value_decoded"]) == ("T", "avro", {"n": 42})
    token = result.stderr.split()[-1]
    assert "needs the schema of values" in run(search, "--resume", token, exit_code=2).stderr
    assert "1 record could not be decoded" in result.stderr
    assert len(run(search, "--resume", token, "--schema", str(schema)).stdout.splitlines()) == 1
    raw = run(search, "pairs", "", *options).stdout.splitlines()[1]
    assert "(not avro: the value has 1 bytes after the record of its schema)" in raw


def test_registry_that_is_down_leaves_records_raw(run, servers, monkeypatch):
    monkeypatch.setattr(registries, "PAUSE_S", 0.0)
    with Cluster(servers) as cluster:
        cluster.topics.create("registered", 1)
    with Producer(servers) as producer:
        producer.send_batch("registered", [b"\0\0\0\0\7needle", b"text"])
    result = run(search, "registered", "", "--schema-registry", "http://127.0.0.1:1", "--json")
    first, second = map(json.loads, result.stdout.splitlines())
    assert (first["value"], first["value_schema_id"]) == ("\0\0\0\0\7needle", 7)
    assert "can't be reached" in first["value_failure"]
    assert (second["value"], second["value_decoder"]) == ("text", "text")
    assert len(run(search, "registered", "needle", "--schema-registry", "http://127.0.0.1:1").stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--schema", __file__), "--schema has no effect with --value-decoder auto: use avro or protobuf"),
        (("--message", "a"), "--message names a message of a descriptor set: add --schema FILE"),
        (("--key-decoder", "avro"), "the decoder avro needs the schema of keys: add --key-schema FILE"),
        (("--value-decoder", "registry"), "add --schema-registry URL"),
        (("--schema-registry", "registry:8081"), "--schema-registry takes the URL of a schema registry"),
        (("--schema-registry-ca", __file__), "add --schema-registry URL"),
        (("--value-decoder", "avro", "--schema", __file__), "the schema of --schema can't be used"),
    ],
)
def test_decoder_options_without_a_schema_are_refused(run, filled, options, text):
    assert text in run(search, TOPIC, "", *options, exit_code=2).stderr.replace("\n", " ")


def test_internal_topic_is_decoded(run, filled):
    result = run(search, "__transaction_state", 'key.transactionalId == "open"', "--newest-first", "-n", "1", "--json")
    line = json.loads(result.stdout)
    assert line["key_decoded"] == {"type": "TransactionLog", "transactionalId": "open"}
    assert {each["topic"] for each in line["value_decoded"]["transactionPartitions"]} == {TOPIC}
    assert "transactionalId" in run(search, "__transaction_state", "finished", "-n", "1").stdout


def test_last_line_states_extent_and_matches(run, filled):
    expected = [seen for seen in filled.visible["uncommitted"] if QUERIES["value.n == 2"](seen)]
    result = run(search, TOPIC, "value.n == 2")
    assert len(result.stdout.splitlines()) == len(expected)
    last = result.stderr.splitlines()[-1]
    count = len(filled.visible["uncommitted"])
    assert last.startswith(f"ottla: searched {count} records in 3 partitions to the end; {len(expected)} matches")
    assert "value.n is text, compared with a number" in last


def test_limited_search_continues_with_its_token(run, filled, tmp_path):
    places = []
    arguments = [TOPIC, "blue", "--limit", "25", "--newest-first", "--json"]
    while True:
        result = run(search, *arguments, "--report", str(tmp_path / "report.json"))
        places += [(line["partition"], line["offset"]) for line in map(json.loads, result.stdout.splitlines())]
        report = json.loads((tmp_path / "report.json").read_text())
        if report["complete"]:
            break
        assert report["reason"] == "limit"
        assert f"--resume {report['resume']}" in result.stderr
        arguments = ["--resume", report["resume"], "--limit", "25", "--json"]
    assert places == newest_first(filled.visible["uncommitted"], QUERIES["blue"])


def test_text_output_is_one_line_for_each_match(run, filled):
    for line in run(search, TOPIC, "", "--limit", "40").stdout.splitlines():
        assert len(line.split("\t")) in (4, 5)


@pytest.mark.parametrize(
    ("error", "reason"),
    [(KeyboardInterrupt(2), "interrupted"), (KafkaError(ErrorCode.NETWORK_EXCEPTION, "the broker is gone"), "failed")],
)
def test_end_by_a_signal_or_error_prints_matches_and_token(error, reason, capsys):
    log = MemoryLog()
    for number in range(6):
        log.append([RecordData(number, b"k%d" % number, b"value")])
    topic = MemoryTopic({0: log})

    def fail() -> None:
        if len(topic.fetches) == 3:
            raise error

    topic.on_fetch = fail
    plan = Plan("t", "", fix_ranges(topic, parse_query("", 0).scopes))
    running = Search(topic, plan, None, Budget(), time.monotonic, fetch_bytes=1)
    report, failure = run_search(running, Output("t", text_line, Progress()))
    assert (report.reason, failure) == (reason, error)
    printed = capsys.readouterr()
    assert [line.split("\t")[2] for line in printed.out.splitlines()] == ["k0", "k1", "k2"]
    assert "searched 3 records" in printed.err
    assert printed.err.splitlines()[-1].endswith(f"--resume {report.resume}")
    assert report.resume is not None
    assert read_token(report.resume).ranges[0].start == 3


def test_options_and_scopes_exclude_each_other(run, filled):
    refused = [
        ((), "give a topic"),
        ((TOPIC, "--resume", "x"), "give a topic"),
        (("--resume", "x"), "resume token"),
        ((TOPIC, "limit:1", "--limit", "2"), "--limit"),
        ((TOPIC, "from:1", "--from", "2"), "--from"),
        ((TOPIC, "", "--from", "yesterday"), "--from"),
        ((TOPIC, "", "--partition", "x"), "--partition"),
        ((TOPIC, "value.n =="), "at character 11"),
    ]
    for arguments, text in refused:
        assert text in run(search, *arguments, exit_code=2).stderr, arguments
    assert "partitions 0 to 2, not 7" in run(search, TOPIC, "partition:7", exit_code=1).stderr
    assert "missing" in run(search, "missing", exit_code=1).stderr


@pytest.fixture(scope="module")
def orders(servers: str) -> str:
    """A topic for the commands of the guide and of the help."""
    with Cluster(servers) as cluster:
        for name, partitions in (("orders", 6), ("counters", 1)):
            cluster.topics.create(name, partitions)
    with Producer(servers) as producer:
        value = b'{"user": {"id": 42}, "error": "payment failed: timeout", "items": [{"price": 100}]}'
        producer.send("orders", value, b"user-1", headers=[("env", b"prod")], partition=0)
        producer.send("counters", b"", bytes([0, 0, 0, 7]))
    return servers


def printed_commands() -> list[str]:
    """The commands of the guide and of the help, without comments and files."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = ["".join(blocks), *search.examples] if isinstance(search, Command) else []
    commands = [line for text in lines for line in text.splitlines() if line.startswith("ottla search")]
    commands = [line for line in commands if "TOKEN" not in line and ".avsc" not in line]
    return [line.partition("  #")[0].strip().removesuffix(" > found.jsonl") for line in commands]


@pytest.mark.parametrize("command", printed_commands())
def test_printed_commands_find_the_record(run, orders, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(search, *shlex.split(command)[2:])
    assert len(result.stdout.splitlines()) == (0 if "--until" in command else 1)
    assert " to the end; " in result.stderr


def test_token_of_a_replaced_topic_is_refused(run, servers):
    with Cluster(servers) as cluster:
        cluster.topics.create("replaced", 1)
        with Producer(servers) as producer:
            producer.send_batch("replaced", [b"a", b"b"])
        run(search, "replaced", "--limit", "1")
        token = run(search, "replaced", "--limit", "1").stderr.split()[-1]
        cluster.topics.delete(["replaced"])
        cluster.topics.create("replaced", 1)
    assert "deleted and created again" in run(search, "--resume", token, exit_code=2).stderr
