"""Options of a write, parsed to a target and checked before any request to a cluster.

Names are those of Spark's Kafka connector, in any case; options that begin with `kafka.` go to the producer, which has
librdkafka's properties. `delivery.guarantee` is specific to Ottla. As with the options of a read, none is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.wire.secured_properties import PROPERTIES
from ottla.client.wire.security import PLAINTEXT, ClientSecurity
from ottla.common.errors import OperatorError
from ottla.common.suggestion import did_you_mean
from ottla.pipeline.datasource.security_options import option_security
from ottla.pipeline.sinks.topic import TopicTarget

KAFKA_PREFIX = "kafka."
SERVERS_OPTION = "kafka.bootstrap.servers"
GUARANTEE_OPTION = "delivery.guarantee"
AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"
GUARANTEES = (AT_LEAST_ONCE, EXACTLY_ONCE)
OPTIONS = ("topic", "path", "includeHeaders", GUARANTEE_OPTION)
SPARKS_OWN = ("checkpointLocation", "queryName")
"""Options that Spark adds."""

REFUSED = {
    "key.serializer": "keys are bytes or text without a serializer",
    "value.serializer": "values are bytes or text without a serializer",
    "transactional.id": f"the sink creates transactional ids with {GUARANTEE_OPTION}={EXACTLY_ONCE}",
}
"""Properties that would contradict the sink, with the reason."""
RENAMED = {"max.request.size": "message.max.bytes"}
"""Java producer's property -> librdkafka's; most have one name in both."""
MEMORY_PROPERTY = "buffer.memory"
"""In bytes; librdkafka counts KiB."""


def parse_sink_options(options: Mapping[str, str]) -> tuple[TopicTarget, str]:
    """The target and the guarantee. Raises OperatorError that names the option."""
    known = {name.lower() for name in (*OPTIONS, *SPARKS_OWN)}
    for name in options:
        if name.lower() not in known and not name.lower().startswith(KAFKA_PREFIX):
            raise OperatorError(f"unknown option {name!r} of a sink{did_you_mean(name, OPTIONS)}")
    named = {name.lower(): value for name, value in options.items()}
    properties = {
        name.removeprefix(KAFKA_PREFIX): value for name, value in named.items() if name.startswith(KAFKA_PREFIX)
    }
    servers = properties.pop("bootstrap.servers", "")
    if not servers:
        raise OperatorError(f"the option `{SERVERS_OPTION}` is missing, such as 127.0.0.1:9092")
    for name, reason in REFUSED.items():
        if name in properties:
            raise OperatorError(f"the option `{KAFKA_PREFIX}{name}` can't be set: {reason}")
    guarantee = named.get(GUARANTEE_OPTION, AT_LEAST_ONCE)
    if guarantee not in GUARANTEES:
        raise OperatorError(f"the option `{GUARANTEE_OPTION}` is one of {', '.join(GUARANTEES)}, not {guarantee!r}")
    if guarantee == EXACTLY_ONCE and properties.get("acks", "all") not in ("all", "-1"):
        raise OperatorError(f"{GUARANTEE_OPTION}={EXACTLY_ONCE} needs `kafka.acks` to be all")
    client_id = properties.pop("client.id", "ottla")
    topic = named.get("topic", named.get("path"))
    security = _security(properties)
    return TopicTarget(servers, topic, _library_properties(properties), client_id, security=security), guarantee


def _security(properties: dict[str, str]) -> ClientSecurity:
    """Security by Kafka's property names, which are removed; librdkafka's own names are left to the producer."""
    if "sasl.username" in properties:
        return PLAINTEXT
    named = {name: properties.pop(name) for name in PROPERTIES & properties.keys()}
    return option_security(named)


def _library_properties(properties: Mapping[str, str]) -> dict[str, str]:
    found = {RENAMED.get(name, name): value for name, value in properties.items() if name != MEMORY_PROPERTY}
    memory = properties.get(MEMORY_PROPERTY)
    if memory is not None:
        if not (memory.isascii() and memory.isdecimal() and len(memory) < 19 and int(memory)):
            raise OperatorError(f"the option `{KAFKA_PREFIX}{MEMORY_PROPERTY}` is a number of bytes, not {memory!r}")
        found["queue.buffering.max.kbytes"] = str(max(1, int(memory) // 1024))
    return found
