"""Differential cases of Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords and InitProducerId."""

from __future__ import annotations

import uuid
from typing import Any

import cramjam
from differential_pair import NO_PRODUCER, Each, Pair, TopicId
from differential_records import BASE_TIME, batch, message_set, record, varint

LONG_AGO = 1_000
FAR_AHEAD = 32_503_680_000_000
UNKNOWN_ID = uuid.UUID("11111111-2222-4333-8444-555555555555")

# -- Produce -----------------------------------------------------------------------------------------------------------


def produce_body(topic: str, records: bytes | None, *, index: int = 0, acks: int = -1, **more: Any) -> dict[str, Any]:
    """Returns a Produce body with one batch for one partition."""
    data = {
        "name": topic,
        "topic_id": TopicId(topic),
        "partition_data": [{"index": index, "records": records}],
    }
    return {"acks": acks, "timeout": 5_000, "topic_data": [data], **more}


def produce_forms(pair: Pair, versions: list[int]) -> None:
    """Batches of every shape, valid and invalid, each in a separate partition.

    Null records are left out: Apache Kafka never responds to them.
    """
    two = [(b"a", b"1"), (None, None)]
    one = record(0, b"k", b"v")
    cases = {
        "one record": batch(),
        "two records": batch(two),
        "gzip": batch(two, compress=True),
        "non-zero base offset": batch(two, base_offset=17),
        "no timestamp": batch(time=-1, max_time=-1),
        "empty": b"",
        "no records": batch([]),
        "no records, count 1": batch([], count=1, last_delta=0),
        "truncated header": batch()[:40],
        "truncated batch": batch()[:-3],
        "two batches": batch() + batch(two),
        "bytes behind the batch": batch() + b"\0\0\0",
        "wrong crc": batch(crc_change=1),
        "magic 0": batch(magic=0),
        "magic 1": batch(magic=1),
        "magic 3": batch(magic=3),
        "magic -1": batch(magic=-1),
        "message set 0": message_set(b"old", 0),
        "message set 1": message_set(b"old", 1),
        "control": batch(attributes=0x20),
        "count too high": batch(two, count=3),
        "count too low": batch(two, count=1),
        "negative count": batch(two, count=-1),
        "last delta too high": batch(two, last_delta=5),
        "count and delta too high": batch(two, count=3, last_delta=2),
        "count and delta too low": batch(two, count=1, last_delta=0),
        "negative last delta": batch(two, last_delta=-1),
        "length too short": batch(length_change=-1),
        "length too long": batch(length_change=1),
        "negative length": batch(length_change=-10_000),
        "length 0": batch(length_change=-(len(batch()) - 12)),
        "max timestamp too low": batch(two, max_time=BASE_TIME),
        "max timestamp too high": batch(two, max_time=BASE_TIME + 50),
        "far future": batch(time=FAR_AHEAD),
        "long ago": batch(time=LONG_AGO),
        "unknown codec 5": batch(attributes=5),
        "unknown codec 7": batch(attributes=7),
        "zstd": batch(attributes=4, body=bytes(cramjam.zstd.compress(one))),
        "gzip of nonsense": batch(attributes=1, body=b"nonsense"),
        "log append time bit": batch(attributes=8),
        "delete horizon bit": batch(attributes=0x40),
        "unused attribute bit": batch(attributes=0x80),
        "record with a byte too many": batch(body=record(0, b"k", b"v", tail=b"x")),
        "bytes behind the records": batch(body=one + b"xx"),
        "record length beyond the batch": batch(body=varint(100) + one[1:]),
        "negative record length": batch(body=varint(-5) + one[1:]),
        "record offset wrong": batch(two, body=record(0, b"a", b"1") + record(5, b"b", b"2")),
        "record offsets descend": batch(two, body=record(1, b"a", b"1") + record(0, b"b", b"2")),
        "too large": batch([(b"k", b"x" * 1_100_000)]),
        "transactional": batch(attributes=0x10, producer=(1, 0, 0)),
        "transactional without an id": batch(attributes=0x10),
    }
    names = {version: f"produce-v{version}" for version in versions}
    pair.create(*names.values(), partitions=len(cases))
    for version, name in names.items():
        for index, (case, records) in enumerate(cases.items()):
            pair.ask(case, "produce", version, produce_body(name, records, index=index))
            offsets(pair, f"after {case}", 5, name, index)


def produce_times(pair: Pair, versions: list[int]) -> None:
    """Timestamps before 1970 and the header's maximum timestamp: stored batches, and lookups by time."""
    two = [(b"a", b"1"), (b"b", b"2")]
    cases = {
        "before 1970": batch(two, time=-5_000),
        "before 1970, gzip": batch(two, time=-5_000, compress=True),
        "long before 1970": batch(two, time=-(2**62)),
        "the earliest time": batch(two, time=-(2**63)),
        "a second after the earliest": batch(two, time=-(2**63) + 1_000),
        "around -1": batch(two, time=-2),
        "from before to after 1970": batch([(b"k", b"v")] * 3, time=-2, max_time=0),
        "before 1970, max timestamp -1": batch(two, time=-5_000, max_time=-1),
        "before 1970, max timestamp too low": batch(two, time=-5_000, max_time=-9_000),
        "before 1970, max timestamp too high": batch(two, time=-5_000, max_time=-9),
        "max timestamp before 1970": batch(two, max_time=-7),
        "no time, max timestamp before 1970": batch(time=-1, max_time=-7),
    }
    version = versions[-1]
    configs: dict[str, dict[str, str]] = {
        "times": {},
        "times-append": {"message.timestamp.type": "LogAppendTime"},
        "times-compact": {"cleanup.policy": "compact"},
        "times-zstd": {"compression.type": "zstd"},
        "times-before": {"message.timestamp.before.max.ms": "4000000000000"},
    }
    for topic, settings in configs.items():
        pair.create(topic, partitions=len(cases), configs=settings)
        for index, (case, records) in enumerate(cases.items()):
            pair.ask(f"{topic}: {case}", "produce", version, produce_body(topic, records, index=index))
            if topic in ("times", "times-compact"):
                pair.ask(f"{topic}: {case}, read", "fetch", 12, fetch_body(topic, {"partition": index}))
            for time in (-1, -3, 0):
                asked = [{"partition_index": index, "current_leader_epoch": -1, "timestamp": time}]
                body = {"replica_id": -1, "topics": [{"name": topic, "partitions": asked}]}
                pair.ask(f"{topic}: {case}, at {time}", "list_offsets", 7, body)


def produce_targets(pair: Pair, versions: list[int]) -> None:
    """Topics, partitions and acks."""
    names = {version: f"target-v{version}" for version in versions}
    others = {version: f"target-twice-v{version}" for version in versions}
    pair.create(*names.values(), *others.values(), partitions=4)
    for version, name in names.items():
        for acks in (-1, 1, 2, -2, 100):
            pair.ask(f"acks {acks}", "produce", version, produce_body(name, batch(), acks=acks))
        for index in (1, 4, -1, 2**31 - 1):
            pair.ask(f"partition {index}", "produce", version, produce_body(name, batch(), index=index))
        pair.silent("acks 0", "produce", version, produce_body(name, batch(), acks=0))
        pair.silent("acks 0, bad partition", "produce", version, produce_body(name, batch(), index=7, acks=0))
        pair.silent("acks 0, nothing", "produce", version, {"acks": 0, "timeout": 5_000})
        pair.ask("nothing", "produce", version, {"acks": -1, "timeout": 5_000})
        pair.ask("topic without partitions", "produce", version, _topics(produce_body(name, b""), partition_data=[]))
        pair.ask("negative timeout", "produce", version, produce_body(name, batch(), acks=-1) | {"timeout": -5})
        pair.ask("timeout 0", "produce", version, produce_body(name, batch(), acks=-1) | {"timeout": 0})
        for other in ("nowhere", "", "bad name!", "x" * 250, "__cluster_metadata"):
            body = _topics(produce_body(name, batch()), name=other, topic_id=UNKNOWN_ID)
            pair.ask(f"topic {other[:20]!r}", "produce", version, body)
        pair.ask("zero id", "produce", version, _topics(produce_body(name, batch()), topic_id=uuid.UUID(int=0)))
        body = produce_body(name, batch())
        mixed = {"index": 9, "records": batch()}
        body["topic_data"][0]["partition_data"].append(mixed)
        pair.ask("good and bad partition", "produce", version, body)
        other = others[version]
        body = produce_body(other, batch())
        body["topic_data"][0]["partition_data"] *= 2
        pair.ask("partition twice", "produce", version, body)
        body = produce_body(other, batch(), index=1)
        body["topic_data"] *= 2
        pair.ask("topic twice", "produce", version, body)
        pair.ask("transactional id", "produce", version, produce_body(other, batch(), index=2, transactional_id="tx"))
        body = produce_body(other, batch(), index=3, transactional_id="")
        pair.ask("empty transactional id", "produce", version, body)
        offsets(pair, "after all targets", 5, name, 0, 1)


def _topics(body: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return body | {"topic_data": [topic | changes for topic in body["topic_data"]]}


KEYS_MISSING = [(None if number in (1, 3, 4, 6) else b"k", b"v") for number in range(8)]


def produce_configs(pair: Pair, versions: list[int]) -> None:
    """Topics with configs that restrict the accepted records."""
    settings = {
        "compact": {"cleanup.policy": "compact"},
        "append-time": {"message.timestamp.type": "LogAppendTime"},
        "small": {"max.message.bytes": "100"},
        "timely": {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"},
        "gzip": {"compression.type": "gzip"},
        "plain": {"compression.type": "uncompressed"},
        "quorum": {"min.insync.replicas": "2"},
        "tiny-segments": {"segment.bytes": "1048576"},
    }
    for kind, configs in settings.items():
        pair.create(*(f"{kind}-v{version}" for version in versions), configs=configs)
    cases = {
        "keys": batch([(b"a", b"1"), (b"b", None)]),
        "no key": batch([(b"a", b"1"), (None, b"2")]),
        "no key, gzip": batch([(None, b"2")], compress=True),
        "no keys at 1, 3, 4, 6": batch(KEYS_MISSING),
        "no keys at 1, 3, 4, 6, gzip": batch(KEYS_MISSING, compress=True),
        "no timestamp": batch(time=-1, max_time=-1),
        "far ahead": batch(time=FAR_AHEAD),
        "far ahead, gzip": batch(KEYS_MISSING, time=FAR_AHEAD, compress=True),
        "gzip": batch([(b"a", b"1"), (b"b", b"2" * 500)], compress=True),
        "large": batch([(b"a", b"1" * 200)]),
        "good, then bad": batch([(b"a", b"1")]) + batch([(None, b"2")]),
    }
    for version in versions:
        for kind in settings:
            for case, records in cases.items():
                pair.ask(f"{kind}: {case}", "produce", version, produce_body(f"{kind}-v{version}", records))
            pair.ask(f"{kind}: acks 1", "produce", version, produce_body(f"{kind}-v{version}", batch(), acks=1))
            offsets(pair, f"after {kind}", 5, f"{kind}-v{version}")


def produce_sequences(pair: Pair, versions: list[int]) -> None:
    """Idempotent producers: duplicates, gaps, epochs."""
    names = {version: f"sequence-v{version}" for version in versions}
    pair.create(*names.values())
    three = [(b"k", b"v")] * 3
    for version, name in names.items():

        def send(
            case: str,
            producer: Each,
            epoch: int,
            sequence: int,
            count: int = 3,
            *,
            name: str = name,
            version: int = version,
            **more: Any,
        ) -> None:
            data = Each(
                *(batch(three[:count], producer=(number, epoch, sequence), **more) for number in producer),
            )
            body = produce_body(name, b"")
            body["topic_data"][0]["partition_data"][0]["records"] = data
            pair.ask(case, "produce", version, body)

        first = pair.ask("for Produce", "init_producer_id", 4, NO_PRODUCER)["producer_id"]
        send("first", first, 0, 0)
        send("second", first, 0, 3)
        send("second again", first, 0, 3)
        send("first again", first, 0, 0)
        send("half of the second", first, 0, 4, 2)
        send("second, shorter", first, 0, 3, 2)
        send("gap", first, 0, 9)
        send("backwards", first, 0, 1, 1)
        send("negative sequence", first, 0, -1)
        send("negative epoch", first, -1, 6)
        send("next epoch, sequence not 0", first, 1, 6)
        send("next epoch", first, 1, 0)
        send("stale epoch", first, 0, 6)
        send("stale epoch, known sequence", first, 0, 3)
        send("same epoch continues", first, 1, 3)
        for number in range(6):
            send(f"more {number}", first, 1, 6 + 3 * number)
        send("duplicate of the fifth last", first, 1, 9)
        send("duplicate of the sixth last", first, 1, 6)
        other = pair.ask("another for Produce", "init_producer_id", 4, NO_PRODUCER)["producer_id"]
        send("unknown producer starts in the middle", other, 3, 40)
        send("unknown producer continues", other, 3, 43)
        send("wrapped sequence", pair.ask("third", "init_producer_id", 4, NO_PRODUCER)["producer_id"], 0, 2**31 - 2)
        send("no producer, epoch", Each(-1, -1), 0, 0)
        send("never issued", Each(900_000_000, 900_000_000), 0, 5)
        offsets(pair, "after all sequences", 5, name)
        send("negative producer id", Each(-5, -5), 0, 0)


# -- Fetch -------------------------------------------------------------------------------------------------------------


def fetch_body(topic: str, *partitions: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Returns a Fetch body without wait; a partition without fields is read from offset 0."""
    asked = [
        {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1_048_576,
        }
        | partition
        for partition in partitions or ({},)
    ]
    return {
        "replica_id": -1,
        "replica_state": {"replica_id": -1, "replica_epoch": -1},
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 10_000_000,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "topic_id": TopicId(topic), "partitions": asked}] if topic else [],
        **more,
    }


def fetch_reads(pair: Pair, versions: list[int]) -> None:
    """A topic with three batches, one with deleted records and an empty one, read in every way."""
    pair.create("fetched", partitions=3)
    pair.create("fetch-empty")
    for index, count in ((0, 3), (1, 3)):
        for number in range(count):
            records = batch([(b"k", b"%d" % number * 100)] * 4, time=BASE_TIME + 10 * number)
            pair.ask("fill", "produce", 7, produce_body("fetched", records, index=index))
    trim = {"topics": [{"name": "fetched", "partitions": [{"partition_index": 1, "offset": 6}]}], "timeout": 5_000}
    pair.ask("trim", "delete_records", 1, trim)
    cases: dict[str, dict[str, Any]] = {
        "all": {},
        "inside a batch": {"fetch_offset": 5},
        "at the end": {"fetch_offset": 12},
        "beyond the end": {"fetch_offset": 13},
        "far beyond": {"fetch_offset": 2**62},
        "negative": {"fetch_offset": -1},
        "very negative": {"fetch_offset": -(2**63)},
        "few bytes": {"partition_max_bytes": 1},
        "no bytes": {"partition_max_bytes": 0},
        "negative bytes": {"partition_max_bytes": -1},
        "one batch and a half": {"partition_max_bytes": 800},
        "below the start": {"partition": 1, "fetch_offset": 3},
        "at the start": {"partition": 1, "fetch_offset": 6},
        "empty partition": {"partition": 2},
        "empty partition, beyond": {"partition": 2, "fetch_offset": 1},
        "unknown partition": {"partition": 3},
        "negative partition": {"partition": -1},
        "leader epoch": {"current_leader_epoch": 0},
        "newer leader epoch": {"current_leader_epoch": 5},
        "leader epoch -2": {"current_leader_epoch": -2},
        "fetched epoch": {"last_fetched_epoch": 0, "fetch_offset": 4},
        "fetched newer epoch": {"last_fetched_epoch": 3, "fetch_offset": 4},
        "fetched epoch beyond the end": {"last_fetched_epoch": 0, "fetch_offset": 20},
        "fetched epoch -2": {"last_fetched_epoch": -2, "fetch_offset": 4},
        "log start of a follower": {"log_start_offset": 3},
    }
    for version in versions:
        for case, partition in cases.items():
            pair.ask(case, "fetch", version, fetch_body("fetched", partition))
        all_three = [{"partition": index, "fetch_offset": 6 if index else 0} for index in range(2)]
        for limit in (0, 1, 1_000, -1):
            pair.ask(f"two, {limit} bytes", "fetch", version, fetch_body("fetched", *all_three, max_bytes=limit))
        for level in (0, 1, 2, -1):
            pair.ask(f"isolation {level}", "fetch", version, fetch_body("fetched", isolation_level=level))
        pair.ask("nothing", "fetch", version, fetch_body(""))
        pair.ask("topic without partitions", "fetch", version, _no_partitions(fetch_body("fetched")))
        for other in ("nowhere", "", "bad name!"):
            body = fetch_body("fetched")
            body["topics"][0] |= {"topic": other, "topic_id": UNKNOWN_ID}
            pair.ask(f"topic {other!r}", "fetch", version, body)
        body = fetch_body("fetched")
        body["topics"][0]["topic_id"] = uuid.UUID(int=0)
        pair.ask("zero id", "fetch", version, body)
        body = fetch_body("fetched", {}, {"fetch_offset": 8})
        pair.ask("partition twice", "fetch", version, body)
        body = fetch_body("fetched")
        body["topics"] *= 2
        pair.ask("topic twice", "fetch", version, body)
        pair.ask("min bytes, no wait", "fetch", version, fetch_body("fetch-empty", min_bytes=100))
        pair.ask("short wait", "fetch", version, fetch_body("fetch-empty", min_bytes=1, max_wait=30))
        pair.ask("negative wait", "fetch", version, fetch_body("fetch-empty", min_bytes=1, max_wait=-5))
        pair.ask("error ends the wait", "fetch", version, fetch_body("fetched", {"partition": 9}, max_wait=9_000))
        pair.ask("cluster id", "fetch", version, fetch_body("fetched", cluster_id="another"))
        pair.ask("rack", "fetch", version, fetch_body("fetched", rack_id="r1"))
        for replica in (-2, -3, 5):
            state = {"replica_id": replica, "replica_state": {"replica_id": replica, "replica_epoch": -1}}
            pair.ask(f"replica {replica}", "fetch", version, fetch_body("fetched", **state))


def _no_partitions(body: dict[str, Any]) -> dict[str, Any]:
    return body | {"topics": [topic | {"partitions": []} for topic in body["topics"]]}


def fetch_sessions(pair: Pair, versions: list[int]) -> None:
    """KIP-227: valid and invalid session ids and epochs, forgotten topics, changes."""
    pair.create(*(f"session-v{version}" for version in versions), partitions=2)
    for version in versions:
        if version < 7:
            continue
        name = f"session-v{version}"

        def ask(case: str, session: Any, epoch: int, *asked: Any, version: int = version, **more: Any) -> Each:
            topic = asked[0] if asked else ""
            return pair.ask(
                case,
                "fetch",
                version,
                fetch_body(topic, *asked[1:], session_id=session, session_epoch=epoch, **more),
            )

        both = [{"partition": 0}, {"partition": 1}]
        for session, epoch in ((0, 1), (5, 1), (5, 0), (5, -1), (0, -2), (-1, 0), (-1, 5), (0, 2**31 - 1)):
            ask(f"session {session} epoch {epoch}", session, epoch, name, *both)
        ask("new without partitions", 0, 0)
        created = ask("new", 0, 0, name, *both)["session_id"]
        ask("nothing new", created, 1)
        pair.ask("news", "produce", 7, produce_body(name, batch()))
        ask("one has news", created, 2)
        ask("moved on", created, 3, name, {"fetch_offset": 1})
        ask("same epoch again", created, 3)
        ask("epoch ahead", created, 7)
        ask("forgotten", created, 4, forgotten_topics_data=[_forgotten(name, [1])])
        ask("forgotten again", created, 5, forgotten_topics_data=[_forgotten(name, [1, 9])])
        ask("added", created, 6, name, {"partition": 1})
        ask("added unknown", created, 7, name, {"partition": 5})
        ask("error is repeated", created, 8)
        ask("out of range", created, 9, name, {"partition": 1, "fetch_offset": 99})
        ask("out of range still", created, 10)
        other = 12 if version >= 13 else 13
        if other in versions:
            ask("ids and names mixed", created, 11, name, version=other)
        ask("all forgotten", created, 11, forgotten_topics_data=[_forgotten(name, [0, 1, 5])])
        ask("gone", created, 12)
        again = ask("new again", 0, 0, name, *both)["session_id"]
        ask("replaced", again, 0, name, {"partition": 0, "fetch_offset": 1})
        ask("the replaced one", again, 1)
        last = ask("one more", 0, 0, name, *both)["session_id"]
        ask("closed", last, -1)
        ask("closed already", last, 1)
        ask("unknown topic in a session", 0, 0, name, {"partition": 4})


def _forgotten(name: str, partitions: list[int]) -> dict[str, Any]:
    return {"topic": name, "topic_id": TopicId(name), "partitions": partitions}


# -- offsets -----------------------------------------------------------------------------------------------------------


def offsets(pair: Pair, case: str, version: int, topic: str, *partitions: int) -> None:
    """Compare the log end offsets."""
    asked = [{"partition_index": index, "current_leader_epoch": -1, "timestamp": -1} for index in partitions or (0,)]
    body = {"replica_id": -1, "topics": [{"name": topic, "partitions": asked}]}
    pair.ask(case, "list_offsets", version, body)


def list_offsets(pair: Pair, versions: list[int]) -> None:
    """Special and other timestamps on full, truncated and empty partitions."""
    pair.create("listed", partitions=3)
    for number, time in enumerate((100, 300, 200, 300)):
        for index in (0, 1):
            records = batch([(b"k", b"v")] * 3, time=BASE_TIME + time)
            pair.ask(f"fill {number}", "produce", 7, produce_body("listed", records, index=index))
    trim = {"topics": [{"name": "listed", "partitions": [{"partition_index": 1, "offset": 4}]}], "timeout": 5_000}
    pair.ask("trim", "delete_records", 1, trim)
    times = [BASE_TIME + delta for delta in (-1, 0, 100, 101, 102, 103, 200, 250, 300, 302, 303)]
    for version in versions:
        for isolation in (0, 1):
            for index in (0, 1, 2, 3, -1):
                for timestamp in (-1, -2, -3, -4, -5, -6, -7, -100, 0, *times, 2**62, -(2**63)):
                    partition = {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
                    asked = {"topics": [{"name": "listed", "partitions": [partition]}], "timeout": 1_000}
                    body = {"replica_id": -1, "isolation_level": isolation, **asked}
                    shown = timestamp - BASE_TIME if timestamp in times else timestamp
                    pair.ask(f"partition {index} isolation {isolation} at {shown}", "list_offsets", version, body)
        plain = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        topics = [{"name": "listed", "partitions": [plain]}]
        pair.ask("isolation 3", "list_offsets", version, {"replica_id": -1, "isolation_level": 3, "topics": topics})
        for epoch in (0, 1, -2, 2**31 - 1):
            topics = [{"name": "listed", "partitions": [plain | {"current_leader_epoch": epoch}]}]
            pair.ask(f"leader epoch {epoch}", "list_offsets", version, {"replica_id": -1, "topics": topics})
        for replica in (-2, -3, 1, 5):
            topics = [{"name": "listed", "partitions": [plain]}]
            pair.ask(f"replica {replica}", "list_offsets", version, {"replica_id": replica, "topics": topics})
        for name in ("nowhere", "", "bad name!", "__cluster_metadata"):
            topics = [{"name": name, "partitions": [plain]}]
            pair.ask(f"topic {name!r}", "list_offsets", version, {"replica_id": -1, "topics": topics})
        topics = [{"name": "listed", "partitions": [plain, plain | {"timestamp": -2}]}]
        pair.ask("partition twice", "list_offsets", version, {"replica_id": -1, "topics": topics})
        topics = [{"name": "listed", "partitions": [plain]}] * 2
        pair.ask("topic twice", "list_offsets", version, {"replica_id": -1, "topics": topics})
        pair.ask("nothing", "list_offsets", version, {"replica_id": -1})
        topics = [{"name": "listed"}]
        pair.ask("topic without partitions", "list_offsets", version, {"replica_id": -1, "topics": topics})


def offset_for_leader_epoch(pair: Pair, versions: list[int]) -> None:
    """Epochs before, at and after the only one."""
    pair.create("epochs", "epochs-empty")
    pair.ask("fill", "produce", 7, produce_body("epochs", batch([(b"k", b"v")] * 5)))
    for version in versions:
        for topic in ("epochs", "epochs-empty"):
            for current in (-1, 0, 1, -2):
                for asked in (-1, 0, 1, -2, 2**31 - 1):
                    epochs = {"partition": 0, "current_leader_epoch": current, "leader_epoch": asked}
                    body = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [epochs]}]}
                    pair.ask(f"{topic} {asked} at {current}", "offset_for_leader_epoch", version, body)
        for topic, index in (("epochs", 1), ("epochs", -1), ("nowhere", 0), ("", 0), ("bad name!", 0)):
            asked_partition = {"partition": index, "current_leader_epoch": -1, "leader_epoch": 0}
            body = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [asked_partition]}]}
            pair.ask(f"topic {topic!r} {index}", "offset_for_leader_epoch", version, body)
        body = {"replica_id": -1, "topics": [{"topic": "epochs", "partitions": [asked_partition] * 2}] * 2}
        pair.ask("twice", "offset_for_leader_epoch", version, body)
        pair.ask("nothing", "offset_for_leader_epoch", version, {"replica_id": -1})
        for replica in (-2, 1, 5):
            asked_partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
            body = {"replica_id": replica, "topics": [{"topic": "epochs", "partitions": [asked_partition]}]}
            pair.ask(f"replica {replica}", "offset_for_leader_epoch", version, body)


def delete_records(pair: Pair, versions: list[int]) -> None:
    """Deletes inside, at and outside the bounds of the log."""
    pair.create(*(f"trimmed-v{version}" for version in versions), partitions=2)
    pair.create("trim-compact", configs={"cleanup.policy": "compact"})
    for version in versions:
        name = f"trimmed-v{version}"
        pair.ask("fill", "produce", 7, produce_body(name, batch([(b"k", b"v")] * 10)))

        def trim(case: str, topic: str, *offsets: tuple[int, int], version: int = version) -> None:
            partitions = [{"partition_index": index, "offset": offset} for index, offset in offsets]
            body = {"topics": [{"name": topic, "partitions": partitions}], "timeout": 5_000}
            pair.ask(case, "delete_records", version, body)

        trim("inside", name, (0, 3))
        trim("lower than before", name, (0, 1))
        trim("same", name, (0, 3))
        trim("beyond the end", name, (0, 11))
        for offset in (-2, -(2**63), 2**62):
            trim(f"offset {offset}", name, (0, offset))
        trim("bad partitions", name, (2, 0), (-1, 0), (1, 0))
        trim("partition twice", name, (0, 4), (0, 5))
        trim("to the end", name, (0, -1))
        trim("to the end again", name, (0, -1))
        trim("at the end", name, (0, 10))
        trim("empty partition", name, (1, -1))
        trim("empty partition, 1", name, (1, 1))
        for topic in ("nowhere", "", "bad name!", "__cluster_metadata", "__consumer_offsets"):
            trim(f"topic {topic!r}", topic, (0, 0))
        trim("no partitions", name)
        trim("compacted", "trim-compact", (0, -1))
        pair.ask("nothing", "delete_records", version, {"timeout": 5_000})
        offsets(pair, "after all trims", 5, name)


def init_producer_id(pair: Pair, versions: list[int]) -> None:
    """With and without a transactional id."""
    for version in versions:
        for case, body in {
            "new": {},
            "timeout": {"transaction_timeout": 60_000},
            "known id": {"producer_id": 1, "producer_epoch": 0},
            "no id, epoch": {"producer_id": -1, "producer_epoch": 3},
            "id, no epoch": {"producer_id": 4, "producer_epoch": -1},
            "no id, no epoch": {"producer_id": -1, "producer_epoch": -1},
            "negative id": {"producer_id": -7, "producer_epoch": -4},
        }.items():
            asked = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1} | body
            pair.ask(case, "init_producer_id", version, asked)
        for case, body in {
            "empty transactional id": {"transactional_id": ""},
            "empty transactional id, timeout 0": {"transactional_id": "", "transaction_timeout": 0},
        }.items():
            asked = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1} | body
            pair.ask(case, "init_producer_id", version, asked)
