"""Metadata of the topics that a group subscribes to.

The metadata hash covers ids, partition counts and racks of all subscribed topics. While it is unchanged, no target
assignment has to be computed. Apache Kafka stores a hash in the same field of the same record (KIP-1101), computed by
another function. The only effect is one rebalance of each group that was loaded from Kafka's log.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group.assignors.assignor import TopicSpec
from ottla.metadata.image import MetadataImage, TopicImage

NO_TOPICS_HASH = 0
"""Hash of a group without existing topics; also the value read from a record without the field."""

_NO_RACKS: frozenset[str] = frozenset()


def topic_ids(names: Iterable[str], image: MetadataImage) -> frozenset[Uuid]:
    """Return the ids of the topics that exist."""
    found = (image.topic(name) for name in names)
    return frozenset(topic.topic_id for topic in found if topic is not None)


def topic_spec(topic: TopicImage, image: MetadataImage) -> TopicSpec:
    """Return the topic as input for assignors. Partitions are numbered without gaps; missing ones are not assigned."""
    count = max(topic.partitions, default=-1) + 1
    if not _has_racks(image):
        return TopicSpec(topic.topic_id, count, None)
    racks = [
        _racks(topic.partitions[index].replicas, image) if index in topic.partitions else _NO_RACKS
        for index in range(count)
    ]
    return TopicSpec(topic.topic_id, count, racks)


def metadata_hash(names: Iterable[str], image: MetadataImage) -> int:
    """Return a signed 64-bit number; NO_TOPICS_HASH when none of the topics exists."""
    from hashlib import blake2b  # here, since it loads OpenSSL's digests and each import delays the start

    digest = blake2b(digest_size=8)
    with_racks = _has_racks(image)
    found = False
    for name in sorted(names):
        topic = image.topic(name)
        if topic is None:
            continue
        found = True
        digest.update(topic.topic_id)
        digest.update(f"{name}\0{len(topic.partitions)}\0".encode())
        if with_racks:
            for partition in topic.partitions.values():
                racks = sorted(_racks(partition.replicas, image))
                digest.update("\0".join([*racks, "\n"]).encode())
    return int.from_bytes(digest.digest(), "big", signed=True) if found else NO_TOPICS_HASH


def _has_racks(image: MetadataImage) -> bool:
    return any(broker.rack is not None for broker in image.brokers.values())


def _racks(replicas: Iterable[int], image: MetadataImage) -> frozenset[str]:
    brokers = (image.brokers.get(broker_id) for broker_id in replicas)
    return frozenset(broker.rack for broker in brokers if broker is not None and broker.rack is not None)
