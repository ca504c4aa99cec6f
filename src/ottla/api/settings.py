"""Kafka's client properties for the clients of this package, and their translation for librdkafka.

Names, units and values are those of Apache Kafka's clients, including `sasl.jaas.config` and `ssl.*`. Properties with
another name or unit in librdkafka are translated, as are the names of Kafka's first producers. Properties of librdkafka
are passed on; unknown ones are rejected. Defaults are those of Kafka, except for `batch.size` and `buffer.memory`,
which are librdkafka's (1 MB and 1 GiB), and `allow.auto.create.topics` of consumers, which is false.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.api.errors import as_kafka_errors
from ottla.client.librdkafka.producer import SILENT
from ottla.client.wire.connection import library_servers
from ottla.client.wire.secured_properties import PROPERTIES
from ottla.client.wire.security import ClientSecurity, parse_security
from ottla.common.config.config_keys_zookeeper import ZOOKEEPER_CLIENT_PROPERTIES
from ottla.common.config.properties import value_text
from ottla.common.errors import ErrorCode, KafkaError

Config = Mapping[str, object]
"""Kafka's names and values: text, numbers, True and False."""

_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "queue.size": "queue.buffering.max.messages",
    "queue.time": "linger.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
_BY_ARGUMENT = {
    "bootstrap.servers": "bootstrap_servers",
    "broker.list": "bootstrap_servers (properties of a producer may have it)",
    "callback.handler": "interceptors",
    "event.handler": "value_serializer, partitioner or interceptors",
    "interceptor.classes": "interceptors",
    "key.deserializer": "key_deserializer",
    "key.serializer": "key_serializer",
    "partitioner": "partitioner",
    "partitioner.class": "partitioner",
    "serializer.class": "value_serializer",
    "value.deserializer": "value_deserializer",
    "value.serializer": "value_serializer",
    "zk.connect": "bootstrap_servers (properties of a producer may have it)",
}
"""Properties that are arguments here, including names of Kafka's first producers."""
_WITH_ID = re.compile(r"^[0-9]+:([^:]+:[0-9]+)$")
"""A broker address in the format of Kafka 0.7."""
_NOT_KNOWN_YET = "localhost:9092"
_OWN = {"default.api.timeout.ms": 60_000, "max.block.ms": 60_000, "max.poll.records": 500}
"""Properties that are implemented here and not by the library, with Kafka's defaults."""
_OF_TOOLS = frozenset({"client.id", "default.api.timeout.ms"})
KIB = 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """Validated properties of a client."""

    library: dict[str, Any]
    """For confluent-kafka."""
    security: ClientSecurity
    client_id: str
    own: Mapping[str, int]
    """The properties of `_OWN`."""

    def number(self, name: str, default: int) -> int:
        """A property of `library` that is used here, too. Raises KafkaError INVALID_CONFIG."""
        return _number(name, self.library.get(name, default))

    def seconds(self, name: str) -> float:
        """A property of `own` in milliseconds, as seconds."""
        return self.own[name] / 1000


def read_settings(
    bootstrap_servers: str, config: Config | None, defaults: Mapping[str, Any], *, by_library: bool = True
) -> Settings:
    """Validate and translate properties. Raises KafkaError INVALID_CONFIG with the invalid one; `defaults` have
    librdkafka's names.

    Without `by_library`, logins are permitted that librdkafka does not support.
    """
    given = as_texts(config or {})
    for name in given:
        if name in _BY_ARGUMENT:
            raise invalid(f"{name} is not a property here: give the argument {_BY_ARGUMENT[name]}")
    with as_kafka_errors():
        servers = library_servers(bootstrap_servers)
        security = parse_security(given, "the properties of the client")
        of_security = security.library if by_library else {}
    own = {name: _number(name, given.pop(name, default)) for name, default in _OWN.items()}
    library: dict[str, Any] = {
        "bootstrap.servers": servers,
        "client.id": "ottla",
        "logger": SILENT,
        **defaults,
        **of_security,
    }
    for name, value in given.items():
        if name == "buffer.memory":
            library["queue.buffering.max.kbytes"] = max(1, _number(name, value) // KIB)
        elif name == "auto.offset.reset" and value == "none":
            library[name] = "error"
        elif name not in PROPERTIES:
            renamed = _RENAMED.get(name, name)
            if renamed != name and renamed in given:
                raise invalid(f"{name} and {renamed} are the same property: give one of them")
            library[renamed] = value
    return Settings(library, security, library["client.id"], own)


class ZooKeeperServers(NamedTuple):
    """ZooKeeper's servers, and their TLS properties."""

    connect: str
    properties: Mapping[str, str]


def read_servers(bootstrap_servers: str | None, config: Config | None) -> tuple[str, ZooKeeperServers | None, Config]:
    """The cluster of a producer: brokers, or ZooKeeper's servers with a placeholder for brokers until ZooKeeper has
    responded; and the other properties.

    Kafka's first producers had `broker.list`, with `ID:HOST:PORT` entries, and `zk.connect`. Raises KafkaError
    INVALID_CONFIG.
    """
    rest = dict(config or {})
    listed, zookeeper = (rest.pop(name, None) for name in ("broker.list", "zk.connect"))
    if sum(each is not None for each in (bootstrap_servers, listed, zookeeper)) != 1:
        raise invalid("a producer needs exactly one of the argument bootstrap_servers, broker.list and zk.connect")
    if listed is not None:
        bootstrap_servers = ",".join(_WITH_ID.sub(r"\1", each.strip()) for each in str(listed).split(","))
    if zookeeper is not None:
        tls = as_texts({name: rest.pop(name) for name in list(rest) if name in ZOOKEEPER_CLIENT_PROPERTIES})
        return _NOT_KNOWN_YET, ZooKeeperServers(str(zookeeper), tls), rest
    return str(bootstrap_servers), None, rest


def read_tool_settings(bootstrap_servers: str, config: Config | None) -> Settings:
    """The same for a client without librdkafka, which supports fewer properties."""
    for name in config or {}:
        if name not in PROPERTIES and name not in _OF_TOOLS:
            known = ", ".join(sorted(_OF_TOOLS))
            raise invalid(f"{name} is not supported by this client; supported: {known} and security properties")
    return read_settings(bootstrap_servers, config, {}, by_library=False)


def as_texts(config: Config) -> dict[str, str]:
    """Properties as text in Kafka's format. Raises KafkaError INVALID_CONFIG for None, such as an unset value."""
    return {name: _text(name, value) for name, value in config.items()}


def _text(name: str, value: object) -> str:
    if value is None:
        raise invalid(f"{name} is None: give it a value or omit it")
    return value_text(value)


def _number(name: str, value: object) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = -1
    if number < 0:
        raise invalid(f"{name} must be a number of at least 0, not {value!r}")
    return number


def invalid(message: str) -> KafkaError:
    """The error for invalid properties."""
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
