"""Topics and partitions in command line arguments: `clicks`, `clicks:0,3`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from ottla.common.kafka.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin.cluster import Cluster

METAVAR = "TOPIC[:PARTITION,...]"
MAX_INDEX_DIGITS = 10
"""Digits of the largest 32-bit integer."""

Selection = Mapping[str, tuple[int, ...] | None]
"""Partitions by topic; None selects all partitions."""


def parse_selection(ctx: click.Context, parameter: click.Parameter, values: Iterable[str]) -> Selection:
    """A click callback; the partitions of a repeated topic are merged. Raises click.BadParameter."""
    topics: dict[str, tuple[int, ...] | None] = {}
    for value in values:
        name, separator, text = value.partition(":")
        numbers = text.split(",")
        if not name or (separator and not all(map(_is_index, numbers))):
            raise click.BadParameter(f"{value!r} is not of the form NAME or NAME:0,1,2", ctx, parameter)
        before = topics.get(name, ())
        if separator and before is not None:
            topics[name] = tuple(dict.fromkeys([*before, *map(int, numbers)]))
        else:
            topics[name] = None
    return topics


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_INDEX_DIGITS


def find_positions(cluster: Cluster, topics: Selection) -> list[TopicPartition]:
    """The selected partitions, sorted. Raises TopicNotFound."""
    from ottla.client.wire.failure import TopicNotFound

    positions: list[TopicPartition] = []
    for name, partitions in topics.items():
        count = len(cluster.topics.get(name).partitions)
        for partition in range(count) if partitions is None else partitions:
            if partition >= count:
                raise TopicNotFound(name, partition)
            positions.append((name, partition))
    return sorted(positions)
