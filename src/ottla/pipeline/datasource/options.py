"""Options of a read, checked before any request to a cluster.

Names, defaults and precedence are those of Spark's Kafka connector; names are compared without regard to case, as in
Spark. Options that the connector passes to Kafka's consumer (`kafka.*`) take effect where this source has the same
feature, are accepted where they are irrelevant, and are refused where their meaning would be lost.

**Invariant:** every invalid option is reported in one sentence that names it, and none is ignored: a misspelled
option never silently reads something else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn, TypeGuard

from ottla.client.admin.cluster import DEFAULT_TIMEOUT_S
from ottla.client.wire.model import EARLIEST_TIMESTAMP, ISOLATION_LEVELS, LATEST_TIMESTAMP
from ottla.client.wire.secured_properties import PROPERTIES
from ottla.client.wire.security import PLAINTEXT, ClientSecurity
from ottla.common.errors import OperatorError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.suggestion import did_you_mean
from ottla.pipeline.datasource.security_options import option_security
from ottla.pipeline.model.plan import OnDataLoss

CLIENT_ID = "ottla-spark"
DEFAULT_TRIGGER_DELAY_MS = 15 * 60_000
MAX_JSON_CHARS = 8 << 20
MAX_PATTERN_CHARS = 4096

_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_ENDINGS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_OPTIONS = (
    *_SUBSCRIPTIONS,
    *_ENDINGS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "includeHeaders",
    "filterPushdown",
    # of the connector's consumer; this source has none, and retries its own requests
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_CONSUMER_EFFECTIVE = (
    "bootstrap.servers",
    "client.id",
    "default.api.timeout.ms",
    "group.id",
    "isolation.level",
    "request.timeout.ms",
    *sorted(PROPERTIES),
)
_CONSUMER_IDLE = (
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "bootstrap.resolve.timeout.ms",
    "check.crcs",
    "client.dns.lookup",
    "client.rack",
    "connections.max.idle.ms",
    "enable.metrics.push",
    "exclude.internal.topics",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "max.poll.records",
    "metadata.max.age.ms",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partition.assignment.strategy",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
    "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
)
"""Settings of Kafka's consumer that do not affect records, because this source neither has a consumer nor joins a
group."""
_CONSUMER_REFUSED = {
    "auto.offset.reset": "startingOffsets sets the start",
    "enable.auto.commit": "the query's checkpoint stores the offsets",
    "interceptor.classes": "the source has no consumer to call them",
    "key.deserializer": "the column `key` has the bytes; decode them with DataFrame functions",
    "value.deserializer": "the column `value` has the bytes; decode them with DataFrame functions",
}

_TIME_UNITS_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_TIME = re.compile(r"(\d{1,15})\s*([a-z]*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions to read: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Bound:
    """Start or end of a read: `offsets` or `times` for each partition, else `time` for all of them.

    A time is milliseconds since the epoch or one of ListOffsets' special values; an offset may be one of those too.
    """

    option: str
    """The option that set it, for messages; empty for the default."""
    time: int = EARLIEST_TIMESTAMP
    times: Mapping[TopicPartition, int] | None = None
    offsets: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a read, parsed. `start` and `end` are None if they were not given."""

    bootstrap_servers: str
    subscription: Subscription
    start: Bound | None = None
    end: Bound | None = None
    no_match: Literal["error", "latest"] = "error"
    """Result for a start time after the last record of a partition."""
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = DEFAULT_TRIGGER_DELAY_MS
    on_data_loss: OnDataLoss = "fail"
    include_headers: bool = False
    filter_pushdown: bool = False
    isolation: str = "read_uncommitted"
    group_id: str | None = None
    client_id: str = CLIENT_ID
    timeout_s: float = DEFAULT_TIMEOUT_S
    security: ClientSecurity = PLAINTEXT


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Parse options from Spark. Raises OperatorError."""
    options = {name.lower(): value.strip() for name, value in given.items()}
    _refuse_unknown(given)
    kafka = {name.removeprefix("kafka."): value for name, value in options.items() if name.startswith("kafka.")}
    servers = kafka.get("bootstrap.servers", "")
    if not servers:
        raise OperatorError("the option kafka.bootstrap.servers is missing: name one or more brokers as HOST:PORT,...")
    least = _count(options, "minOffsetsPerTrigger")
    most = _count(options, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OperatorError(f"minOffsetsPerTrigger ({least}) is higher than maxOffsetsPerTrigger ({most})")
    timeout = _count(kafka, "default.api.timeout.ms", "kafka.") or _count(kafka, "request.timeout.ms", "kafka.")
    return SourceOptions(
        bootstrap_servers=servers,
        subscription=_subscription(options),
        start=_bound(options, "starting"),
        end=_bound(options, "ending"),
        no_match="latest"
        if _choice(options, "startingOffsetsByTimestampStrategy", ("error", "latest"), "error") == "latest"
        else "error",
        min_partitions=_count(options, "minPartitions"),
        max_records_per_partition=_count(options, "maxRecordsPerPartition"),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=_time_ms(options, "maxTriggerDelay", DEFAULT_TRIGGER_DELAY_MS),
        on_data_loss="fail" if _flag(options, "failOnDataLoss", default=True) else "skip",
        include_headers=_flag(options, "includeHeaders"),
        filter_pushdown=_flag(options, "filterPushdown"),
        isolation=_choice(kafka, "isolation.level", tuple(ISOLATION_LEVELS), "read_uncommitted", "kafka."),
        group_id=kafka.get("group.id") or None,
        client_id=kafka.get("client.id") or CLIENT_ID,
        timeout_s=DEFAULT_TIMEOUT_S if timeout is None else timeout / 1000,
        security=option_security(kafka),
    )


def for_batch(options: SourceOptions) -> SourceOptions:
    """The options of a batch query, with its defaults. Raises OperatorError for options of streams."""
    start = options.start or Bound("", EARLIEST_TIMESTAMP)
    end = options.end or Bound("", LATEST_TIMESTAMP)
    if _asks_for(start, LATEST_TIMESTAMP):
        raise OperatorError("startingOffsets can't be latest (-1) in a batch query: nothing would be read")
    if _asks_for(end, EARLIEST_TIMESTAMP):
        raise OperatorError("endingOffsets can't be earliest (-2) in a batch query: nothing would be read")
    return replace(options, start=start, end=end)


def for_stream(options: SourceOptions) -> SourceOptions:
    """The options of a streaming query, with its defaults. Raises OperatorError for options of batches."""
    if options.end is not None:
        raise OperatorError(f"{options.end.option} has no meaning in a streaming query, which has no end; remove it")
    return replace(options, start=options.start or Bound("", LATEST_TIMESTAMP))


def _asks_for(bound: Bound, time: int) -> bool:
    if bound.offsets is not None:
        return time in bound.offsets.values()
    return bound.times is None and bound.time == time


def _refuse_unknown(given: Iterable[str]) -> None:
    known = {name.lower() for name in _OPTIONS}
    settings = {*_CONSUMER_EFFECTIVE, *_CONSUMER_IDLE}
    for name in given:
        lowered = name.lower()
        if lowered in known:
            continue
        if not lowered.startswith("kafka."):
            raise OperatorError(f"unknown option {name!r}{did_you_mean(name, _OPTIONS)}")
        setting = lowered.removeprefix("kafka.")
        if setting in settings:
            continue
        if setting in _CONSUMER_REFUSED:
            raise OperatorError(f"the option {name!r} can't be given: {_CONSUMER_REFUSED[setting]}")
        raise OperatorError(f"unknown option {name!r}{did_you_mean(name, [f'kafka.{one}' for one in settings])}")


def _subscription(options: Mapping[str, str]) -> Subscription:
    given = [name for name in _SUBSCRIPTIONS if name.lower() in options]
    if len(given) != 1:
        what = " and ".join(given) + " are given both" if given else "no topic is named"
        raise OperatorError(f"{what}: give exactly one of {', '.join(_SUBSCRIPTIONS)}")
    text = options[given[0].lower()]
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise OperatorError(f"subscribe names no topic: {text!r}; write topicA,topicB")
        return Subscription(topics=topics)
    if given[0] == "subscribePattern":
        if not text or len(text) > MAX_PATTERN_CHARS:
            raise OperatorError("subscribePattern must be a regular expression of 1 to 4096 characters")
        return Subscription(pattern=text)
    return Subscription(partitions=_assigned(text))


def _assigned(text: str) -> frozenset[TopicPartition]:
    found: set[TopicPartition] = set()
    for topic, partitions in _json_object(text, "assign").items():
        if not isinstance(partitions, list) or not all(map(_is_partition, partitions)):
            _refuse_json("assign", '{"topicA":[0,1]}')
        found.update((topic, one) for one in partitions)
    if not found:
        raise OperatorError('assign names no partition; write {"topicA":[0,1]}')
    return frozenset(found)


def _bound(options: Mapping[str, str], side: str) -> Bound | None:
    """Precedence: one time for all, then times by partition, then offsets, as in the connector."""
    name = f"{side}Timestamp"
    if name.lower() in options:
        return Bound(name, _whole(options[name.lower()], name))
    name = f"{side}OffsetsByTimestamp"
    if name.lower() in options:
        return Bound(name, times=_by_partition(options[name.lower()], name, least=0))
    name = f"{side}Offsets"
    text = options.get(name.lower())
    if text is None:
        return None
    if text.lower() in ("earliest", "latest"):
        return Bound(name, EARLIEST_TIMESTAMP if text.lower() == "earliest" else LATEST_TIMESTAMP)
    return Bound(name, offsets=_by_partition(text, name, least=EARLIEST_TIMESTAMP))


def _by_partition(text: str, name: str, least: int) -> dict[TopicPartition, int]:
    example = '{"topicA":{"0":23,"1":-2}}' if least < 0 else '{"topicA":{"0":1700000000000}}'
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(text, name).items():
        if not isinstance(partitions, dict):
            _refuse_json(name, example)
        for partition, value in partitions.items():
            number = _digits(partition)
            if not _is_partition(number) or str(number) != partition:  # "00" would be a second value for "0"
                _refuse_json(name, example)
            if not _is_int(value) or not least <= value < 1 << 63:
                _refuse_json(name, example)
            found[topic, number] = value
    return found


def _json_object(text: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text) if len(text) <= MAX_JSON_CHARS else None
        json.dumps(value, ensure_ascii=False).encode()  # refuse lone surrogates
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        words = " earliest, latest or" if name.endswith("Offsets") else ""
        raise OperatorError(f"{name} is not{words} a JSON object by topic: {text[:100]!r}")
    return value


def _refuse_json(name: str, example: str) -> NoReturn:
    raise OperatorError(f"{name} must be JSON such as {example}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_partition(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _digits(text: str) -> int | None:
    """The text as an offset, None if it is not one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _whole(text: str, name: str) -> int:
    if _digits(text) is None:
        raise OperatorError(f"{name} must be milliseconds since 1970, not {text[:100]!r}")
    return int(text)


def _count(options: Mapping[str, str], name: str, prefix: str = "") -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not _digits(text):
        raise OperatorError(f"{prefix}{name} must be a whole number above 0, not {text[:100]!r}")
    return int(text)


def _flag(options: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    return _choice(options, name, ("true", "false"), str(default).lower()) == "true"


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, ...], default: str, prefix: str = "") -> str:
    text = options.get(name.lower(), default)
    if text.lower() not in choices:
        raise OperatorError(f"{prefix}{name} must be {' or '.join(choices)}, not {text[:100]!r}")
    return text.lower()


def _time_ms(options: Mapping[str, str], name: str, default: int) -> int:
    """A duration in Spark's notation: `15m`, `30s`, `500ms`; a plain number is milliseconds."""
    text = options.get(name.lower())
    if text is None:
        return default
    match = _TIME.fullmatch(text.lower())
    if match is None or (match[2] or "ms") not in _TIME_UNITS_MS:
        raise OperatorError(f"{name} must be a time such as 15m, 30s or 500ms, not {text[:100]!r}")
    return int(int(match[1]) * _TIME_UNITS_MS[match[2] or "ms"])
