"""Partitions by the name of their topic."""

from __future__ import annotations

from collections.abc import Iterable

TopicPartition = tuple[str, int]
"""Topic name and partition index."""


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition indexes of each topic, as in messages, in the order of the input."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        indexes = topics.get(topic)
        if indexes is None:
            topics[topic] = [index]
        else:
            indexes.append(index)
    return topics
