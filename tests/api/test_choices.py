"""Client logic without a cluster: partitioners, filters, properties."""

from __future__ import annotations

import re

import pytest

from ottla import ErrorCode, KafkaError, TopicFilter
from ottla.api.partitioners import Sticky
from ottla.api.settings import read_settings, read_tool_settings
from ottla.common.kafka.key_hash import hash_partition, murmur2

SERVERS = "localhost:9092"


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_apache_kafka(key, signed):
    """The values of `UtilsTest.testMurmur2` of Apache Kafka."""
    assert murmur2(key) == signed & 0xFFFFFFFF
    assert hash_partition(key, 7) == (signed & 0x7FFFFFFF) % 7


def test_sticky_stays_for_its_time_whatever_the_key():
    lots, now = iter([5, 4, 6]), [0.0]
    choose = Sticky(1.0, lambda _: next(lots), lambda: now[0])
    assert [choose(key, 3) for key in (b"a", None, b"b")] == [2, 2, 2]
    now[0] = 0.999
    assert choose(b"a", 3) == 2
    now[0] = 1.0
    assert choose(b"a", 3) == 1
    assert choose(None, 2) == 0


def test_a_filter_takes_whole_names_and_no_internal_topics():
    topics = ["orders", "orders-eu", "views", "__consumer_offsets"]
    assert TopicFilter("orders").chosen(topics) == ["orders"]
    assert TopicFilter(re.compile("ORDERS.*", re.IGNORECASE)).chosen(topics) == ["orders", "orders-eu"]
    assert TopicFilter(deny=".*-eu").chosen(topics) == ["orders", "views"]
    with pytest.raises(re.error):
        TopicFilter("(")


def test_properties_have_the_names_of_apache_kafka():
    settings = read_settings(
        SERVERS,
        {
            "buffer.memory": 33_554_432,
            "max.request.size": 2048,
            "fetch.max.wait.ms": 20,
            "auto.offset.reset": "none",
            "enable.idempotence": False,
            "max.block.ms": 100,
        },
        {"client.id": "mine", "acks": "all"},
    )
    library = settings.library
    assert library["queue.buffering.max.kbytes"] == 32_768
    assert library["message.max.bytes"] == "2048"
    assert library["fetch.wait.max.ms"] == "20"
    assert library["auto.offset.reset"] == "error"
    assert library["enable.idempotence"] == "false"
    assert settings.client_id == "mine"
    assert settings.seconds("max.block.ms") == 0.1
    assert "max.block.ms" not in library


def test_properties_may_have_the_names_of_the_first_producers():
    library = read_settings(SERVERS, {"queue.time": 5000, "queue.size": 10_000}, {}).library
    assert (library["linger.ms"], library["queue.buffering.max.messages"]) == ("5000", "10000")
    with pytest.raises(KafkaError, match=r"queue\.time and linger\.ms are the same property"):
        read_settings(SERVERS, {"linger.ms": 5, "queue.time": 5000}, {})


def test_security_is_that_of_the_tools():
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
    settings = read_settings(
        SERVERS,
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login},
        {},
    )
    assert settings.library["sasl.username"] == "u"
    assert settings.library["security.protocol"] == "sasl_plaintext"
    assert "sasl.jaas.config" not in settings.library
    assert settings.security.login is not None


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"value.serializer": "x"}, "value_serializer"),
        ({"broker.list": "0:localhost:9092"}, "bootstrap_servers"),
        ({"zk.connect": "localhost:2181"}, "bootstrap_servers"),
        ({"event.handler": "x"}, "interceptors"),
        ({"max.block.ms": "soon"}, "max.block.ms"),
        ({"security.protocol": "ROT13"}, "ROT13"),
        ({"group.id": None}, "group.id is None"),
    ],
)
def test_invalid_properties_are_rejected_by_name(config, word):
    with pytest.raises(KafkaError, match=word) as raised:
        read_settings(SERVERS, config, {})
    assert raised.value.code == ErrorCode.INVALID_CONFIG


def test_an_address_that_is_none_is_refused():
    with pytest.raises(KafkaError, match="host:port") as raised:
        read_settings("nowhere:", None, {})
    assert raised.value.code == ErrorCode.INVALID_CONFIG


def test_a_property_without_effect_is_refused():
    with pytest.raises(KafkaError, match=r"linger\.ms is not supported"):
        read_tool_settings(SERVERS, {"linger.ms": 5})
    assert read_tool_settings(SERVERS, {"client.id": "mine"}).client_id == "mine"
