"""Who of a group reads which partition: computed by each consumer for itself, so all must come to the same.

The rules are those of Kafka 0.9, step by step, since its consumers share groups with ours. For each topic partitions
are sorted as numbers and threads as strings (thread 10 of a consumer comes before its thread 2); of P partitions and C
threads the first P mod C threads get one more than the others. The documented algorithm, where each gets P / C, leaves
the remainder to nobody.

Expressions are matched by RE2, as a hostile one of another consumer would stop this one otherwise; what Java has beyond
it (looking ahead or back, references) is refused. Left out: the assignors `roundrobin` and `fair`, which nobody had
unless he asked.
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
        """What it writes into the znodes of the partitions that it owns."""
        return f"{self.consumer}-{self.number}"


def java_order(text: str) -> bytes:
    """The key by which Java sorts strings: 16-bit units, so that characters beyond them come before U+E000."""
    return text.encode("utf-16-be", "surrogatepass")


def topics_of(registration: ConsumerRegistration, topics: Iterable[str]) -> dict[str, int]:
    """With how many threads a consumer reads which of `topics`, the names of all there are.

    Raises KafkaError INVALID_REGULAR_EXPRESSION.
    """
    if registration.pattern == STATIC:
        return dict(registration.subscription)
    ((expression, streams),) = registration.subscription.items()
    matches = compile_pattern(topic_expression(expression), "The topic filter of a consumer")
    allowed = registration.pattern != BLACK_LIST
    # As with `exclude.internal.topics`, the default.
    chosen = [name for name in topics if bool(matches(name.encode())) is allowed and name not in INTERNAL_TOPICS]
    return dict.fromkeys(chosen, streams)


def topic_expression(raw: str) -> str:
    """A topic filter as it is meant: commas part alternatives, blanks and quotes around it are nothing."""
    return _QUOTES.sub("", raw.strip().replace(",", "|").replace(" ", ""))


def threads_by_topic(
    consumers: Mapping[str, ConsumerRegistration], topics: Iterable[str]
) -> dict[str, list[ConsumerThread]]:
    """All threads of a group that read a topic, in the order in which they are served; `consumers` by id.

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
    """Who of `threads`, in their order, reads which partition of one topic: neighbours go to the same."""
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
    """Who of a group reads which partition; `topics` are all there are, with their partitions.

    Raises KafkaError INVALID_REGULAR_EXPRESSION.
    """
    return {
        (topic, partition): thread
        for topic, threads in threads_by_topic(consumers, topics).items()
        for partition, thread in assign_range(topics.get(topic, ()), threads).items()
    }
