"""Partition assignment of ZooKeeper-based groups: each consumer computes it, so all must get the same result.

The rules are exactly those of Kafka 0.9, since its consumers share groups with ours. For each topic, partitions are
sorted as numbers and threads as strings (thread 10 of a consumer comes before its thread 2). Of P partitions and C
threads, the first P mod C threads get one more than the others. The documented algorithm, where each gets P / C,
leaves the remainder unassigned.

Expressions are matched with RE2, because a hostile one of another consumer could otherwise block this one. Java's
extensions (lookahead and lookbehind, backreferences) are rejected. Left out: the assignors `roundrobin` and `fair`,
which were never the default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.common.kafka.internal_topics import INTERNAL_TOPICS
from ottla.common.kafka.patterns import compile_pattern
from ottla.protocol.znodes.consumers import BLACK_LIST, STATIC, ConsumerRegistration

_QUOTES = re.compile(r"^[\"']+|[\"']+$")


class ConsumerThread(NamedTuple):
    """One stream of a consumer."""

    consumer: str
    number: int

    @property
    def name(self) -> str:
        """Its name in the znodes of the partitions that it owns."""
        return f"{self.consumer}-{self.number}"


def java_order(text: str) -> bytes:
    """A sort key for Java's string order: by 16-bit units, so that supplementary characters come before U+E000."""
    return text.encode("utf-16-be", "surrogatepass")


def topics_of(registration: ConsumerRegistration, topics: Iterable[str]) -> dict[str, int]:
    """The number of threads with which a consumer reads each of `topics`, which are all topics of the cluster.

    Raises KafkaError INVALID_REGULAR_EXPRESSION.
    """
    if registration.pattern == STATIC:
        return dict(registration.subscription)
    ((expression, streams),) = registration.subscription.items()
    matches = compile_pattern(topic_expression(expression), "The topic filter of a consumer")
    allowed = registration.pattern != BLACK_LIST
    # As with the default of `exclude.internal.topics`.
    chosen = [name for name in topics if bool(matches(name.encode())) is allowed and name not in INTERNAL_TOPICS]
    return dict.fromkeys(chosen, streams)


def topic_expression(raw: str) -> str:
    """The expression of a topic filter: commas separate alternatives; blanks and quotes around it are removed."""
    return _QUOTES.sub("", raw.strip().replace(",", "|").replace(" ", ""))


def threads_by_topic(
    consumers: Mapping[str, ConsumerRegistration], topics: Iterable[str]
) -> dict[str, list[ConsumerThread]]:
    """All threads of a group by topic, in assignment order; `consumers` by id.

    Raises KafkaError INVALID_REGULAR_EXPRESSION.
    """
    names = list(topics)
    found: dict[str, list[ConsumerThread]] = {}
    for consumer, registration in consumers.items():
        for topic, streams in topics_of(registration, names).items():
            found.setdefault(topic, []).extend(ConsumerThread(consumer, number) for number in range(streams))
    for threads in found.values():
        threads.sort(key=lambda thread: java_order(thread.name))
    return found


def assign_range(partitions: Iterable[int], threads: Sequence[ConsumerThread]) -> dict[int, ConsumerThread]:
    """The thread for each partition of a topic, from the ordered `threads`: ranges of partitions go to one thread."""
    ordered = sorted(partitions)
    assigned: dict[int, ConsumerThread] = {}
    if not threads:
        return assigned
    each, more = divmod(len(ordered), len(threads))
    position = 0
    for index, thread in enumerate(threads):
        end = position + each + (index < more)
        assigned.update(dict.fromkeys(ordered[position:end], thread))
        position = end
    return assigned


def assign(
    consumers: Mapping[str, ConsumerRegistration], topics: Mapping[str, Iterable[int]]
) -> dict[tuple[str, int], ConsumerThread]:
    """The thread for each partition of a group; `topics` are all topics of the cluster, with their partitions.

    Raises KafkaError INVALID_REGULAR_EXPRESSION.
    """
    return {
        (topic, partition): thread
        for topic, threads in threads_by_topic(consumers, topics).items()
        for partition, thread in assign_range(topics.get(topic, ()), threads).items()
    }
