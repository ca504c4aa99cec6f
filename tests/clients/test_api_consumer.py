"""`ottla.Consumer`, `Streams`, `SimpleConsumer` and `Admin` against a real broker."""

from __future__ import annotations

import itertools
import json
import pickle
import re
import threading

import pytest

from ottla import (
    Admin,
    ClientClosed,
    Consumer,
    ErrorCode,
    Fetched,
    KafkaError,
    Producer,
    SimpleConsumer,
    Streams,
    TopicFilter,
    TransactionAborted,
    UndecodableRecord,
)

from ..raw_headers import append_raw_headers

NUMBERS = itertools.count(1)
WAIT_S = 90.0


@pytest.fixture
def admin(servers):
    with Admin(servers) as client:
        yield client


@pytest.fixture
def topic(admin):
    """A topic of its own with two partitions, in each of them ten records."""
    return filled(admin, 2)


@pytest.fixture
def config():
    """A group of its own, which reads from the beginning."""
    return {"group.id": f"api-group-{next(NUMBERS)}", "auto.offset.reset": "earliest", "fetch.max.wait.ms": 50}


def filled(admin, partitions, records=10):
    name = f"api-consumed-{next(NUMBERS)}"
    admin.create_topic(name, partitions=partitions, replication_factor=1)
    fill(admin, name, partitions, records)
    return name


def fill(admin, name, partitions, records=10):
    (broker,) = admin.cluster().brokers
    with Producer(f"{broker.host}:{broker.port}") as producer:
        for number, partition in itertools.product(range(records), range(partitions)):
            producer.send(name, f"{number}", partition=partition, timestamp_ms=1_700_000_000_000 + number)


def read(consumer, count):
    """So many records, by polling."""
    found = []
    for records in consumer.batches(idle_timeout_s=WAIT_S):
        found += records
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} of {count} records came")


def offsets(admin, config):
    return {key: committed.offset for key, committed in admin.group_offsets(config["group.id"]).items()}


def test_loop_reads_all_records_and_commits_at_normal_end(servers, admin, topic, config):
    with Consumer(servers, config, topics=topic) as consumer:
        given = list(itertools.islice(consumer, 13))
    assert sum(offsets(admin, config).values()) == 13
    with Consumer(servers, config, topics=[topic]) as consumer:
        rest = read(consumer, 7)
    assert len(rest) == 7
    record = given[0]
    assert (record.topic, record.headers, record.key) == (topic, (), None)
    assert record.timestamp_ms == 1_700_000_000_000 + int(record.value or b"")
    assert offsets(admin, config) == {(topic, 0): 10, (topic, 1): 10}


def test_record_with_failed_handling_is_read_again(servers, admin, topic, config):
    seen = []

    def fail():
        with Consumer(servers, config, topics=topic) as consumer:
            for record in consumer:
                seen.append((record.partition, record.offset))
                if len(seen) == 5:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert sum(offsets(admin, config).values()) == 4
    with Consumer(servers, config, topics=topic) as consumer:
        again = [(record.partition, record.offset) for record in read(consumer, 16)]
    assert seen[-1] in again
    assert len(again) == 16


@pytest.fixture
def slow(monkeypatch, config):
    """All that handle a record take so long that the library is called before the next one."""
    monkeypatch.setattr("ottla.api.consuming.buffer.STAY_S", 0.0)
    config |= {"auto.commit.interval.ms": 50, "heartbeat.interval.ms": 100}


@pytest.mark.usefixtures("slow")
def test_progress_is_committed_during_a_slow_batch(servers, admin, topic, config):
    with Consumer(servers, config, topics=topic) as consumer:
        records = iter(consumer)
        given = [next(records) for _ in range(4)]
        while sum(offsets(admin, config).values()) < 3:
            consumer.fill(0)  # as the loop does; the last returned records are done then
        assert sum(offsets(admin, config).values()) <= len(given)
        given += itertools.islice(records, 16)
    assert len({(record.partition, record.offset) for record in given}) == 20
    assert offsets(admin, config) == {(topic, 0): 10, (topic, 1): 10}


@pytest.mark.usefixtures("slow")
def test_group_rebalances_during_a_slow_batch(servers, admin, config):
    topic = filled(admin, 2, 200)
    with Consumer(servers, config, topics=topic) as consumer:
        records = iter(consumer)
        given = [next(records)]
        with Consumer(servers, config, topics=topic) as other:
            while not other.poll(0.05, max_records=1):
                given.append(next(records))
            assert len(consumer.assignment) == len(other.assignment) == 1
    assert len(given) < 400  # which one fetch brought


def test_progress_is_reported_before_the_library_knows_it(servers, admin, config):
    """Batch after batch of one partition, up to a seek, and up to where nothing more comes."""
    topic = filled(admin, 1, 30)
    config |= {"max.poll.records": 5, "auto.commit.interval.ms": 50}
    with Consumer(servers, config, topics=topic) as consumer:
        read(consumer, 10)
        while offsets(admin, config) != {(topic, 0): 10}:
            consumer.fill(0)  # the next records are not returned
        consumer.seek(topic, 0, 20)
        assert [record.offset for record in read(consumer, 10)] == list(range(20, 30))
        while offsets(admin, config) != {(topic, 0): 30}:
            assert consumer.poll(0) == []
    assert offsets(admin, config) == {(topic, 0): 30}


def test_manual_commit_covers_returned_records(servers, admin, topic, config):
    config["enable.auto.commit"] = False
    heard = []
    done = threading.Event()

    def on_commit(committed, error):
        heard.append((committed, error))
        done.set()

    with Consumer(servers, config, topics=topic, on_commit=on_commit) as consumer:
        first = next(iter(consumer))
        consumer.commit()
        assert offsets(admin, config)[topic, first.partition] == 1
        read(consumer, 19)
        heard.clear()
        done.clear()
        consumer.commit({(topic, 0): 4}, wait=False)
        while not done.is_set():
            consumer.poll(0.05)
        assert heard == [({(topic, 0): 4}, None)]
        assert consumer.committed([(topic, 0)]) == {(topic, 0): 4}
        consumer.seek_to_committed()
        assert consumer.positions()[topic, 0] == 4
    assert offsets(admin, config)[topic, 0] == 4


def test_paused_partitions_give_nothing_and_lose_nothing(servers, topic):
    positions = {(topic, 0): 0, (topic, 1): 0}
    with Consumer(servers, {"fetch.max.wait.ms": 50}) as consumer:
        consumer.assign(positions)
        first = next(iter(consumer))
        paused, at = (topic, first.partition), first.offset + 1
        assert consumer.buffered
        consumer.pause([paused])
        assert consumer.positions()[paused] == at
        others = []
        while len(others) < 10 and (records := consumer.poll(WAIT_S)):
            others += [record for record in records if record.partition != paused[1]]
            assert all(record.partition != paused[1] for record in records)
        consumer.resume([paused])
        rest = read(consumer, 10 - at)
        assert [record.offset for record in rest if record.partition == paused[1]] == list(range(at, 10))


def test_seek_moves_the_position(servers, topic):
    with Consumer(servers, {"auto.offset.reset": "earliest", "fetch.max.wait.ms": 50}) as consumer:
        consumer.assign([(topic, 0)])
        assert consumer.assignment == {(topic, 0)}
        assert next(iter(consumer)).offset == 0
        consumer.seek(topic, 0, 7)
        assert consumer.positions() == {(topic, 0): 7}
        assert next(iter(consumer)).offset == 7
        consumer.seek_to_time(1_700_000_000_003)
        assert next(iter(consumer)).offset == 3
        consumer.seek_to_end()
        assert consumer.positions() == {(topic, 0): 10}
        consumer.seek_to_beginning([(topic, 0)])
        assert next(iter(consumer)).offset == 0
        consumer.seek_to_time(1_800_000_000_000)
        assert consumer.positions() == {(topic, 0): 10}
        with pytest.raises(KafkaError, match="is not assigned"):
            consumer.seek(topic, 1, 0)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_rebalance_hooks_get_changes_and_may_seek(servers, admin, topic, config, protocol):
    config["group.protocol"] = protocol
    events = []

    def on_assign(consumer, partitions):
        events.append(("assigned", partitions))
        consumer.seek(topic, 0, 8)
        consumer.seek_to_time(1_700_000_000_009, [(topic, 1)])

    with Consumer(
        servers,
        config,
        topics=topic,
        on_assign=on_assign,
        on_revoke=lambda consumer, partitions: events.append(("revoked", partitions)),
    ) as consumer:
        found = sorted((record.partition, record.offset) for record in read(consumer, 3))
    assert found == [(0, 8), (0, 9), (1, 9)]
    both = [(topic, 0), (topic, 1)]
    assert events == [("assigned", both), ("revoked", both)]


def test_a_filter_takes_up_topics_that_come(servers, admin, config):
    mark = f"filtered{next(NUMBERS)}"
    admin.create_topic(f"{mark}-a", partitions=1)
    admin.create_topic(f"{mark}-b", partitions=1)
    fill(admin, f"{mark}-a", 1, 1)
    fill(admin, f"{mark}-b", 1, 1)
    config["metadata.max.age.ms"] = 100
    with Consumer(servers, config, topics=TopicFilter(re.compile(f"{mark}-.*"), deny=".*-b")) as consumer:
        assert [record.topic for record in read(consumer, 1)] == [f"{mark}-a"]
        admin.create_topic(f"{mark}-c", partitions=1)
        fill(admin, f"{mark}-c", 1, 1)
        assert [record.topic for record in read(consumer, 1)] == [f"{mark}-c"]


def test_undecodable_record_is_reported_with_its_offset(servers, admin, config):
    topic = filled(admin, 1, 0)
    with Producer(servers) as producer:
        producer.send_batch(topic, ['{"a": 1}', "{", '{"a": 2}'])
    with Consumer(servers, config, topics=topic, value_deserializer=json.loads) as consumer:
        assert consumer.poll(WAIT_S)[0].value == {"a": 1}
        with pytest.raises(UndecodableRecord, match=f"{topic}-0 at offset 1") as raised:
            consumer.poll(WAIT_S)
        consumer.seek(raised.value.topic, raised.value.partition, raised.value.offset + 1)
        assert next(iter(consumer)).value == {"a": 2}


class Counting:
    """Skips every other record, and stores the committed offsets."""

    def __init__(self):
        self.committed = []

    def on_consume(self, records):
        return [record for record in records if record.offset % 2]

    def on_commit(self, offsets):
        self.committed.append(dict(offsets))


def test_interceptors_get_returned_records_and_commits(servers, topic, config):
    counting = Counting()
    with Consumer(servers, config, topics=topic, interceptors=[counting]) as consumer:
        records = read(consumer, 10)
        consumer.poll(0.3)
        consumer.commit()
    assert {record.offset % 2 for record in records} == {1}
    assert {(topic, 0): 10, (topic, 1): 10} in counting.committed


class Forgetful(Counting):
    """Lacks its last line."""

    def on_consume(self, records):
        super().on_consume(records)


def test_an_interceptor_that_returns_nothing_takes_nothing_away(servers, topic, config, caplog):
    with Consumer(servers, config, topics=topic, interceptors=[Forgetful()]) as consumer:
        assert len(read(consumer, 20)) == 20
    assert "on_consume of" in caplog.text
    assert "it returned NoneType, not list" in caplog.text


def test_offset_out_of_range_without_a_reset_is_an_error(servers, topic):
    with Consumer(servers, {"auto.offset.reset": "none"}) as consumer:
        consumer.assign({(topic, 0): 99})
        with pytest.raises(KafkaError) as raised:
            read(consumer, 1)
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_closed_consumer_says_so(servers, topic, config):
    consumer = Consumer(servers, config, topics=topic)
    read(consumer, 1)
    consumer.close()
    consumer.close()
    for use in (
        lambda: consumer.poll(0),
        consumer.commit,
        consumer.positions,
        consumer.seek_to_beginning,
        consumer.seek_to_end,
        lambda: next(iter(consumer)),
    ):
        with pytest.raises(ClientClosed, match="this consumer is closed"):
            use()


def test_a_hook_that_hears_of_the_end_may_close(servers, topic, config):
    with Consumer(servers, config, topics=topic, on_revoke=lambda consumer, _: consumer.close()) as consumer:
        read(consumer, 10)
    with pytest.raises(ClientClosed):
        consumer.poll(0)


def test_a_hook_of_a_rebalance_may_stop_and_not_close(servers, topic, config):
    heard = []

    def close(consumer, _):
        with pytest.raises(KafkaError, match="a hook can't close its consumer") as raised:
            consumer.close()
        heard.append(raised.value.code)
        consumer.stop()

    with Consumer(servers, config, topics=topic, on_assign=close) as consumer:
        for _ in consumer:
            pass
    assert heard == [ErrorCode.INVALID_REQUEST]


def test_failing_close_hook_is_logged_and_consumer_closes(servers, admin, topic, config, caplog):
    def fail(offsets, failure):
        raise ZeroDivisionError

    config |= {"auto.commit.interval.ms": 3_600_000}
    with Consumer(servers, config, topics=topic, on_commit=fail) as consumer:
        read(consumer, 20)
    assert "failed during close" in caplog.text
    assert sum(offsets(admin, config).values()) == 20
    assert not admin.group(config["group.id"]).members


def test_invalid_topic_is_refused(servers, config):
    for topics in ("", [""], ["a", ""]):
        with pytest.raises(KafkaError) as raised:
            Consumer(servers, config, topics=topics)
        assert raised.value.code == ErrorCode.INVALID_REQUEST


def test_an_age_that_is_none_is_refused(servers, config):
    with pytest.raises(KafkaError, match=r"metadata\.max\.age\.ms") as raised:
        Consumer(servers, config | {"metadata.max.age.ms": "old"})
    assert raised.value.code == ErrorCode.INVALID_CONFIG


def test_poll_may_exceed_the_limit_of_the_library(servers, topic, config):
    with Consumer(servers, config | {"max.poll.records": 2_000_000}, topics=topic) as consumer:
        assert len(read(consumer, 20)) == 20


def test_a_topic_is_deleted_by_its_name_and_not_by_its_letters(admin):
    for name in ("xy", "x", "y"):
        admin.create_topic(f"{name}", partitions=1, replication_factor=1)
    admin.delete_topics("xy")
    assert {"x", "y"} <= set(admin.topics())
    admin.delete_topics(["x", "y"])
    assert not {"x", "y", "xy"} & set(admin.topics())


def test_without_a_group_there_is_nothing_to_join(servers, topic):
    with Consumer(servers) as consumer:
        for use in (lambda: consumer.subscribe(topic), consumer.commit, lambda: consumer.committed([(topic, 0)])):
            with pytest.raises(KafkaError, match=r"group\.id") as raised:
                use()
            assert raised.value.code == ErrorCode.INVALID_GROUP_ID


def test_stop_ends_a_loop_from_another_thread(servers, config, topic):
    with Consumer(servers, config, topics=topic) as consumer:
        seen = 0
        for _ in consumer:
            seen += 1
            if seen == 20:
                threading.Timer(0.05, consumer.stop).start()
        assert seen == 20


# Streams


def test_each_partition_belongs_to_one_stream(servers, admin, config):
    topic = filled(admin, 6)
    seen = {}
    lock = threading.Lock()
    with Streams(servers, config, topics=topic, count=3) as streams:
        assert len(streams) == 3

        def handle(record):
            with lock:
                seen.setdefault((record.partition, record.offset), set()).add(threading.get_ident())
                if len(seen) == 60:
                    streams.stop()

        streams.run(handle)
    assert set(seen) == set(itertools.product(range(6), range(10)))
    assert offsets(admin, config) == {(topic, partition): 10 for partition in range(6)}


def test_error_of_a_stream_ends_all_streams(servers, topic, config):
    with Streams(servers, config, topics=topic, count=2) as streams, pytest.raises(ZeroDivisionError):
        streams.run(lambda record: 1 // 0)


# Exactly once


def test_copies_are_exact_though_a_transaction_is_aborted(servers, admin, topic, config):
    target, elsewhere = filled(admin, 1, 0), filled(admin, 1, 0)
    config |= {"enable.auto.commit": False, "isolation.level": "read_committed"}
    failed = False
    with (
        Consumer(servers, config, topics=topic) as consumer,
        Producer(servers, {"transactional.id": f"api-copy-{next(NUMBERS)}"}) as producer,
    ):
        copied = 0
        for records in consumer.batches(max_records=4):
            try:
                with producer.transaction() as transaction:
                    for record in records:
                        producer.send(target, record.value)
                    transaction.send_offsets(consumer)
                    if copied >= 8 and not failed:
                        failed = True
                        producer.send(elsewhere, "has no such partition", partition=7)
            except TransactionAborted:
                consumer.seek_to_committed()
                continue
            copied += len(records)
            if copied == 20:
                break
    assert failed
    with SimpleConsumer(servers, isolation="read_committed") as reader:
        values = [int(record.value or b"") for record in reader.fetch(target, 0, 0).records]
    assert sorted(values) == sorted([*range(10)] * 2)
    assert offsets(admin, config) == {(topic, 0): 10, (topic, 1): 10}


# Simple consumer


def test_many_partitions_come_with_one_call(servers, topic):
    with SimpleConsumer(servers) as consumer:
        assert consumer.partitions(topic) == [(topic, 0), (topic, 1)]
        fetched = consumer.fetch_many({(topic, 0): 7, (topic, 1): 99})
        first, second = fetched[topic, 0], fetched[topic, 1]
        assert isinstance(first, Fetched)
        assert [record.value for record in first.records] == [b"7", b"8", b"9"]
        assert (first.next_offset, first.high_watermark, first.log_start_offset) == (10, 10, 0)
        assert isinstance(second, KafkaError)
        assert second.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert consumer.fetch(topic, 0, 10, max_wait_ms=0).records == ()


def test_offsets_of_times_and_bounds(servers, topic):
    with SimpleConsumer(servers) as consumer:
        assert consumer.bounds([(topic, 0), (topic, 1)]) == {(topic, 0): (0, 10), (topic, 1): (0, 10)}
        assert (consumer.earliest(topic, 0), consumer.latest(topic, 0), consumer.youngest(topic, 0)) == (0, 10, 9)
        times = {(topic, 0): 1_700_000_000_004, (topic, 1): 1_800_000_000_000}
        assert consumer.offsets_for_times(times) == {(topic, 0): 4, (topic, 1): None}
        with pytest.raises(KafkaError, match="invalid time in milliseconds"):
            consumer.offsets_for_times({(topic, 0): -1})


def test_offsets_before_a_time_are_descending_and_limited(servers, topic):
    with SimpleConsumer(servers) as consumer:
        assert consumer.get_offsets_before(topic, 0, consumer.LATEST_TIME, 5) == [10, 0]
        assert consumer.get_offsets_before(topic, 0, consumer.LATEST_TIME, 1) == [10]
        assert consumer.get_offsets_before(topic, 0, consumer.EARLIEST_TIME, 5) == [0]
        assert consumer.get_offsets_before(topic, 0, 1_000, 5) == []
        for time_ms, count in ((-3, 1), (0, 0), (0, 2**31)):
            with pytest.raises(KafkaError) as raised:
                consumer.get_offsets_before(topic, 0, time_ms, count)
            assert raised.value.code == ErrorCode.INVALID_REQUEST


def test_a_closed_simple_consumer_says_so(servers, topic):
    consumer = SimpleConsumer(servers)
    consumer.close()
    consumer.close()
    with pytest.raises(ClientClosed):
        consumer.earliest(topic, 0)


def test_a_cluster_that_is_gone_is_an_error_of_the_family():
    consumer = SimpleConsumer("127.0.0.1:1", {"default.api.timeout.ms": 500})
    with consumer, pytest.raises(KafkaError, match="cannot connect to") as raised:
        consumer.earliest("t", 0)
    assert raised.value.code == ErrorCode.NETWORK_EXCEPTION


# Admin


def test_topics_and_their_settings(admin):
    name = f"api-admin-{next(NUMBERS)}"
    admin.create_topic(name, partitions=2, configs={"retention.ms": 3_600_000})
    with pytest.raises(KafkaError, match=name) as raised:
        admin.create_topic(name)
    assert raised.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert raised.value.code.name == "TOPIC_ALREADY_EXISTS"
    admin.create_partitions(name, 3)
    assert len(admin.topic(name).partitions) == 3
    assert name in admin.topics()
    admin.alter_topic_configs(name, {"cleanup.policy": "compact", "retention.ms": None})
    configs = admin.topic_configs(name)
    assert configs["cleanup.policy"].value == "compact"
    assert configs["retention.ms"].source != "topic"
    assert admin.broker_configs(admin.cluster().brokers[0].node_id)["log.dirs"].value
    admin.delete_topics([name])
    with pytest.raises(KafkaError) as raised:
        admin.topic(name)
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_groups_and_their_offsets(servers, admin, topic, config):
    group_id = config["group.id"]
    with Consumer(servers, config, topics=topic) as consumer:
        read(consumer, 20)
        (member,) = admin.group(group_id).members
        assert member.assignment == {topic: (0, 1)}
    assert group_id in {listing.group_id for listing in admin.groups()}
    admin.alter_group_offsets(group_id, {(topic, 0): 3})
    assert offsets(admin, config) == {(topic, 0): 3, (topic, 1): 10}
    admin.delete_group_offsets(group_id, [(topic, 1)])
    assert offsets(admin, config) == {(topic, 0): 3}
    admin.delete_group(group_id)
    with pytest.raises(KafkaError) as raised:
        admin.group(group_id)
    assert raised.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert admin.delete_records({(topic, 0): 5}) == {(topic, 0): 5}


def test_a_closed_admin_says_so(servers):
    client = Admin(servers)
    client.close()
    with pytest.raises(ClientClosed, match="this admin client is closed"):
        client.topics()


@pytest.mark.parametrize("twin", ["_messages", "_messages_py"])
def test_header_names_that_are_not_utf8_are_read(servers, admin, config, twin):
    module = pytest.importorskip(f"ottla.api.{twin}", reason="the compiled module was not built")
    topic = filled(admin, 1, records=0)
    append_raw_headers(servers, topic, [("first?", None), ("a", b"1"), ("last?", b"2"), ("", b""), ("x\0y", b"3")])
    with Consumer(servers, config, topics=topic) as consumer:
        bad, good = (module.Record(record.message) for record in itertools.islice(consumer, 2))
        # The library reports only the first of several such names, and the part before a NUL.
        expected = (("first\ufffd", None), ("a", b"1"), ("\ufffd", b"2"), ("", b""), ("x", b"3"))
        assert bad.headers == bad.headers == pickle.loads(pickle.dumps(bad)).headers == expected
        assert (bad.value, good.value, good.headers) == (b"bad", b"good", ())
