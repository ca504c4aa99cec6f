"""A group moves its offsets from ZooKeeper to Kafka and back without lost or duplicate records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.legacy.offsets import OffsetPlaces, OffsetStorage, offset_places
from ottla.common.errors import KafkaError, OperatorError

ZOOKEEPER, KAFKA = OffsetStorage.ZOOKEEPER, OffsetStorage.KAFKA


@pytest.mark.parametrize(
    ("settings", "places"),
    [
        ({}, (ZOOKEEPER, None)),
        ({"offsets.storage": "zookeeper"}, (ZOOKEEPER, None)),
        ({"offsets.storage": "Kafka"}, (KAFKA, ZOOKEEPER)),
        ({"offsets.storage": "kafka", "dual.commit.enabled": "false"}, (KAFKA, None)),
        ({"offsets.storage": "zookeeper", "dual.commit.enabled": "true"}, (ZOOKEEPER, KAFKA)),
    ],
)
def test_settings(settings: dict[str, str], places: tuple[OffsetStorage, OffsetStorage | None]) -> None:
    assert offset_places(settings) == places


@pytest.mark.parametrize("name", ["offsets.storage", "dual.commit.enabled"])
def test_a_value_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(OperatorError, match=f"^{name} is 'other'"):
        offset_places({name: "other"})


def test_the_larger_offset_is_where_a_partition_is_read_on() -> None:
    both = OffsetPlaces(KAFKA, ZOOKEEPER)
    assert both.resumed_at({KAFKA: 5, ZOOKEEPER: 7}) == 7
    assert both.resumed_at({KAFKA: 5}) == 5
    assert both.resumed_at({}) is None
    assert OffsetPlaces(KAFKA).resumed_at({KAFKA: 5, ZOOKEEPER: 7}) == 5


def test_going_back_is_refused_while_both_are_written() -> None:
    both = OffsetPlaces(KAFKA, ZOOKEEPER)
    with pytest.raises(KafkaError, match=r"dual\.commit\.enabled"):
        both.check_commit(6, {KAFKA: 5, ZOOKEEPER: 7})
    both.check_commit(7, {KAFKA: 5, ZOOKEEPER: 7})
    OffsetPlaces(KAFKA).check_commit(1, {KAFKA: 5, ZOOKEEPER: 7})
    both.check_commit(0, {})


def rounds(to: str) -> Iterator[OffsetPlaces]:
    """The places of a consumer after each bounce of the documented move."""
    yield offset_places({"offsets.storage": to, "dual.commit.enabled": "true"})
    yield offset_places({"offsets.storage": to, "dual.commit.enabled": "false"})


@pytest.mark.parametrize(("origin", "to"), [(ZOOKEEPER, KAFKA), (KAFKA, ZOOKEEPER)])
def test_a_move_loses_and_repeats_nothing(origin: OffsetStorage, to: OffsetStorage) -> None:
    """Two consumers take turns with one partition, and are bounced one after the other, twice."""
    offsets = {origin: 10, to: 3}
    consumers = [OffsetPlaces(origin), OffsetPlaces(origin)]
    position = 10
    for places in rounds(to.value):
        for index in range(2):
            consumers[index] = places
            for consumer in consumers:
                assert consumer.resumed_at(offsets) == position
                position += 1
                consumer.check_commit(position, offsets)
                offsets.update({place: position for place in consumer if place is not None})
    assert offsets[to] == position
