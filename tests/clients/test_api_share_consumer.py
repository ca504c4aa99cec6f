"""`ottla.ShareConsumer` and `ottla.AsyncShareConsumer` on a real broker."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from ottla import (
    AsyncShareConsumer,
    ClientClosed,
    ErrorCode,
    KafkaError,
    Producer,
    ShareConsumer,
    UndecodableRecord,
)
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import ConfigOperation, FeatureUpdate, ResourceType, UpgradeType
from ottla.testing import Broker

RECORDS = 10
BATCH = 5
CONFIGS = {"group.share.min.heartbeat.interval.ms": 200, "group.share.heartbeat.interval.ms": 200}
WAIT_S = 30
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def servers():
    with Broker(configs=CONFIGS) as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.features.update([FeatureUpdate("share.version", 1, UpgradeType.UPGRADE)])
        yield broker.bootstrap_servers


@pytest.fixture
def name(servers):
    """A topic with records, and a share group of that name that reads them from the first one."""
    found = f"api-share-{next(NUMBERS)}"
    with Cluster(servers) as cluster:
        cluster.topics.create(found, partitions=1)
        change = [("share.auto.offset.reset", ConfigOperation.SET, "earliest")]
        cluster.configs.alter(ResourceType.GROUP, found, change)
    with Producer(servers) as producer:
        for number in range(RECORDS):
            producer.send(found, str(number))
            if number == BATCH - 1:  # a batch is delivered as a whole
                producer.flush()
    return found


def worker(servers, name, **options):
    return ShareConsumer(servers, {"group.id": name, "max.poll.records": BATCH}, topics=name, **options)


def start_offset(servers, name):
    with Cluster(servers) as cluster:
        return cluster.share_groups.offsets(name)[name, 0].start_offset


def values(jobs):
    return [int(job.value) for job in jobs]


def test_iterated_records_are_accepted_and_the_failed_one_is_released(servers, name):
    seen = []

    def fail_at_the_fourth():
        with worker(servers, name) as consumer:
            for job in consumer:
                seen.append((int(job.value), job.delivery_count))
                if len(seen) == 4:
                    raise RuntimeError("the job failed")

    with pytest.raises(RuntimeError):
        fail_at_the_fourth()
    assert seen == [(number, 1) for number in range(4)]
    assert start_offset(servers, name) == 3
    with worker(servers, name) as consumer:
        again = []
        while len(again) < RECORDS - 3:
            again += consumer.poll(WAIT_S)
    assert values(again) == list(range(3, RECORDS))
    assert again[0].delivery_count == 2
    assert start_offset(servers, name) == RECORDS


def test_released_and_rejected_records_are_acknowledged_as_such(servers, name):
    with worker(servers, name) as consumer:
        first = consumer.poll(WAIT_S)
        assert values(first) == [0, 1, 2, 3, 4]
        consumer.release(first[0])
        consumer.reject(first[1])
        consumer.release(first[2])
        consumer.accept(first[2])
        consumer.commit()
        with pytest.raises(KafkaError) as refused:
            consumer.accept(first[3])
        assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
        rest = []
        while len(rest) < 6:
            rest += consumer.poll(WAIT_S)
        assert sorted(values(rest)) == [0, 5, 6, 7, 8, 9]
        assert {int(job.value): job.delivery_count for job in rest}[0] == 2
    with pytest.raises(ClientClosed):
        consumer.poll(0)
    assert start_offset(servers, name) == RECORDS


def test_released_records_wait_and_the_rate_limits_deliveries(servers, name):
    """The rate is 10 records per second, from the first fetch on."""
    with Cluster(servers) as cluster:
        settings = {"ottla.share.retry.backoff.ms": "1500", "ottla.share.max.records.per.second": "10"}
        changes = [(setting, ConfigOperation.SET, value) for setting, value in settings.items()]
        cluster.configs.alter(ResourceType.GROUP, name, changes)
    delivered_s = {}
    begin_s = time.monotonic()
    with worker(servers, name) as consumer:
        while len(delivered_s) < RECORDS + 1:
            for job in consumer.poll(WAIT_S):
                delivered_s[int(job.value), job.delivery_count] = time.monotonic()
                if int(job.value) == 0 and job.delivery_count == 1:
                    released_s = time.monotonic()
                    consumer.release(job)
            consumer.commit()
    assert delivered_s.keys() == {(number, 1) for number in range(RECORDS)} | {(0, 2)}
    assert delivered_s[0, 2] - released_s >= 1.5
    assert delivered_s[RECORDS - 1, 1] - begin_s >= RECORDS / 10
    assert start_offset(servers, name) == RECORDS


def test_undecodable_record_is_released_and_raised_after_those_before_it(servers, name):
    def decode(value):
        number = int(value)
        if number == 2:
            raise ValueError("two")
        return number

    with worker(servers, name, value_deserializer=decode) as consumer:
        assert [job.value for job in consumer.poll(WAIT_S)] == [0, 1]
        with pytest.raises(UndecodableRecord) as failed:
            consumer.poll(WAIT_S)
        assert failed.value.offset == 2
    assert start_offset(servers, name) == 2


def test_async_consumer_takes_and_acknowledges(servers, name):
    async def work():
        config = {"group.id": name, "max.poll.records": BATCH}
        async with AsyncShareConsumer(servers, config, topics=name) as consumer:
            jobs = await consumer.poll(WAIT_S)
            await consumer.reject(jobs[0])
            await consumer.commit()
            async for job in consumer:
                jobs.append(job)
                if len(jobs) == RECORDS:
                    consumer.stop()
            return values(jobs)

    assert asyncio.run(work()) == list(range(RECORDS))
    assert start_offset(servers, name) == RECORDS


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({}, ErrorCode.INVALID_GROUP_ID),
        ({"group.id": "workers", "isolation.level": "read_committed"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_invalid_properties_are_refused(servers, config, code):
    with pytest.raises(KafkaError) as refused:
        ShareConsumer(servers, config)
    assert refused.value.code is code


def test_cluster_without_share_groups_is_an_error():
    with Broker() as broker, worker(broker.bootstrap_servers, "jobs") as consumer:
        with pytest.raises(KafkaError) as refused:
            consumer.poll(WAIT_S)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
