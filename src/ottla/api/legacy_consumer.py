"""`LegacyConsumer`: the high-level consumer of Kafka 0.8 and 0.9, with a group in ZooKeeper.

    with LegacyConsumer({"zookeeper.connect": "localhost:2181", "group.id": "readers"}) as consumer:
        (stream,) = consumer.create_message_streams({"views": 1})["views"]
        for record in stream:
            ...

For groups with consumers of these versions, which share partitions with this one: same znodes, same assignment, same
offset storage. Properties have the names and defaults of Kafka 0.9. Needs the extra `zookeeper`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Generic

from ottla.api.errors import ClientClosed, UndecodableRecord, as_kafka_errors
from ottla.api.records import RK, RV, Deserializer
from ottla.api.settings import Config, as_texts, invalid
from ottla.api.topic_filter import TopicFilter
from ottla.client.legacy.assignment import ConsumerThread
from ottla.client.legacy.consumer import Hooks, LegacyReader, ReaderSettings
from ottla.client.legacy.offsets import offset_places
from ottla.client.legacy.streams import Stream
from ottla.client.librdkafka.consumer import ConsumedRecord
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.client.zookeeper.zookeeper_access import access_of_client
from ottla.client.zookeeper.zookeeper_session import session_below
from ottla.common.config.config_keys_zookeeper import SSL_PREFIX, ZOOKEEPER_CLIENT_PROPERTIES
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.files import read_file
from ottla.protocol.znodes.consumers import BLACK_LIST, MAX_STREAMS, STATIC, WHITE_LIST

_NUMBERS = {
    # property: (default, lowest); milliseconds, bytes, chunks
    "auto.commit.interval.ms": (60_000, 1),
    "consumer.timeout.ms": (-1, -1),
    "fetch.message.max.bytes": (1 << 20, 1),
    "fetch.wait.max.ms": (100, 0),
    "queued.max.message.chunks": (2, 1),
    "rebalance.backoff.ms": (2000, 1),
    "zookeeper.session.timeout.ms": (6000, 1),
    "zookeeper.connection.timeout.ms": (6000, 1),
}
_TEXTS = {
    "auto.commit.enable": "true",
    "auto.offset.reset": "largest",
    "client.id": "",
    "dual.commit.enabled": "",
    "group.id": "",
    "offsets.storage": "zookeeper",
    "zookeeper.connect": "",
}
_RESETS = {"smallest": EARLIEST_TIMESTAMP, "largest": LATEST_TIMESTAMP}
_HIGHEST = 2**31 - 1
_ALL = ".*"


class LegacyConsumer(Generic[RK, RV]):
    """See the module. A context manager that leaves the group; each of its streams may be iterated in its own thread.

    Without deserializers, keys and values are bytes. A stream raises UndecodableRecord for a record that cannot be
    decoded, and skips it when it is iterated again.

    The hooks are those of Kafka 0.9's ConsumerRebalanceListener. They are called in their own thread and may commit;
    the rebalance waits for their return; they must not shut the consumer down. `before_releasing_partitions` receives
    the partitions to release, by topic, of which no more records are returned; it is not called for partitions of a
    lost session, nor at the end. `before_starting_fetchers` receives the consumer's id and the assignment of the group.
    """

    def __init__(
        self,
        config: Config,
        *,
        key_deserializer: Deserializer[RK] | None = None,
        value_deserializer: Deserializer[RV] | None = None,
        before_releasing_partitions: Callable[[dict[str, frozenset[int]]], object] | None = None,
        before_starting_fetchers: Callable[[str, dict[str, dict[int, ConsumerThread]]], object] | None = None,
    ) -> None:
        """Connects later. Raises KafkaError INVALID_CONFIG, also without the extra `zookeeper`."""
        given = as_texts(config)
        for name in given:
            if name not in _NUMBERS and name not in _TEXTS and name not in ZOOKEEPER_CLIENT_PROPERTIES:
                known = ", ".join(sorted([*_NUMBERS, *_TEXTS]))
                raise invalid(f"{name} is not supported by a legacy consumer; supported: {known} and {SSL_PREFIX}*")
        for name in ("zookeeper.connect", "group.id"):
            if not given.get(name):
                raise invalid(f"a legacy consumer needs {name}")
        with as_kafka_errors():
            settings = _settings(given)
            servers = given["zookeeper.connect"]
            access = access_of_client(given, os.environ, read_file)
            self._reader: LegacyReader[RK, RV] = LegacyReader(
                settings,
                lambda post, pool: session_below(
                    servers, settings.session_timeout_ms, post=post, pool=pool, access=access
                ),
                _decoder(key_deserializer, value_deserializer),
                Hooks(before_releasing_partitions, before_starting_fetchers),
            )
        self._closed = False

    def __enter__(self) -> LegacyConsumer[RK, RV]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._closed:
            self._reader.finish()
        self.shutdown()

    def create_message_streams(self, counts: Mapping[str, int]) -> dict[str, list[Stream[RK, RV]]]:
        """Join the group for topics, each with this number of streams; each partition belongs to one stream. Once only.

        Topics may be missing. Raises KafkaError INVALID_REQUEST, and NETWORK_EXCEPTION if ZooKeeper does not respond.
        """
        for count in counts.values():
            _check_count(count)
        if not counts:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a legacy consumer needs at least one topic")
        return self._start(counts, STATIC)

    def create_message_streams_by_filter(self, topics: TopicFilter, count: int = 1) -> list[Stream[RK, RV]]:
        """Join the group for all topics that match, now or later, with `count` streams for all of them. Once only.

        All members match with the same RE2 expression, in which commas separate alternatives. The filter must use
        either allow or deny, and no flags, since it is stored in ZooKeeper. Raises KafkaError, such as
        INVALID_REGULAR_EXPRESSION.
        """
        _check_count(count)
        allowed, denied = _expression(topics.allow), _expression(topics.deny)
        if denied is not None and allowed != _ALL:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "the topics of a legacy consumer are filtered by allow or by deny, not both"
            )
        expression, pattern = (allowed or _ALL, WHITE_LIST) if denied is None else (denied, BLACK_LIST)
        return self._start({expression: count}, pattern)[expression]

    def _start(self, subscription: Mapping[str, int], pattern: str) -> dict[str, list[Stream[RK, RV]]]:
        self._require_open()
        return self._reader.start_reading(subscription, pattern)

    def commit_offsets(self) -> None:
        """Commit all returned records of the partitions that are still owned; returns when the commit is written.

        Raises KafkaError; the outcome is then unknown.
        """
        self._require_open()
        self._reader.commit()

    @property
    def problem(self) -> Exception | None:
        """The error that currently prevents reading, such as an undecodable registration in the group."""
        return self._reader.problem

    def shutdown(self) -> None:
        """End all streams, commit processed records (`auto.commit.enable`) and leave the group; idempotent."""
        self._closed = True
        self._reader.close()

    def _require_open(self) -> None:
        if self._closed:
            raise ClientClosed("consumer")


def _decoder(
    of_key: Deserializer[RK] | None, of_value: Deserializer[RV] | None
) -> Callable[[ConsumedRecord], ConsumedRecord[RK, RV]]:
    """Decodes a record; raises UndecodableRecord."""

    def decode(record: ConsumedRecord[Any, Any]) -> ConsumedRecord[RK, RV]:
        try:
            key = record.key if record.key is None or of_key is None else of_key(record.key)
            value = record.value if record.value is None or of_value is None else of_value(record.value)
        except Exception as error:
            raise UndecodableRecord(record.topic, record.partition, record.offset, error) from error
        return record if of_key is None and of_value is None else replace(record, key=key, value=value)

    return decode


def _settings(given: Mapping[str, str]) -> ReaderSettings:
    """Validate the properties. Raises KafkaError INVALID_CONFIG, OperatorError."""
    texts = {**_TEXTS, **given}
    automatic, reset = texts["auto.commit.enable"].strip().lower(), texts["auto.offset.reset"].strip().lower()
    if automatic not in ("true", "false"):
        raise invalid(f"auto.commit.enable is {automatic!r}, but must be true or false")
    if reset not in _RESETS:
        raise invalid(f"auto.offset.reset is {reset!r}, but must be smallest or largest")
    numbers = {
        name: _number(name, given.get(name, str(default)), lowest) for name, (default, lowest) in _NUMBERS.items()
    }
    session_ms = numbers["zookeeper.session.timeout.ms"]
    wait_ms = numbers["consumer.timeout.ms"]
    return ReaderSettings(
        group=texts["group.id"],
        client_id=texts["client.id"] or texts["group.id"],
        places=offset_places(given),
        reset_to=_RESETS[reset],
        auto_commit_ms=numbers["auto.commit.interval.ms"] if automatic == "true" else None,
        stream_timeout_ms=None if wait_ms < 0 else wait_ms,
        session_timeout_ms=session_ms,
        connection_timeout_ms=numbers["zookeeper.connection.timeout.ms"]
        if "zookeeper.connection.timeout.ms" in given
        else session_ms,
        backoff_ms=numbers["rebalance.backoff.ms"],
        fetch_bytes=numbers["fetch.message.max.bytes"],
        fetch_wait_ms=numbers["fetch.wait.max.ms"],
        max_chunks=numbers["queued.max.message.chunks"],
    )


def _number(name: str, text: str, lowest: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = lowest - 1
    if not lowest <= number <= _HIGHEST:
        raise invalid(f"{name} must be a number from {lowest} to {_HIGHEST}, not {text!r}")
    return number


def _expression(wanted: str | re.Pattern[str] | None) -> str | None:
    if isinstance(wanted, re.Pattern):
        if wanted.flags != re.UNICODE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an expression with flags can't be registered in ZooKeeper")
        return wanted.pattern
    return wanted


def _check_count(count: int) -> None:
    if not 1 <= count <= MAX_STREAMS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"count must be from 1 to {MAX_STREAMS} streams, not {count}")
