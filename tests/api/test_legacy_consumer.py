"""Arguments of `LegacyConsumer`; tests of its behaviour are in `tests/clients/`."""

from __future__ import annotations

import sys

import pytest

from ottla import ErrorCode, KafkaError, LegacyConsumer, TopicFilter

NEEDED = {"zookeeper.connect": "localhost:2181", "group.id": "g"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"group.id": ""}, "needs group.id"),
        ({"zookeeper.connect": ""}, "needs zookeeper.connect"),
        ({"zookeeper.connect": "h:port"}, "zookeeper.connect 'h:port' contains no servers"),
        ({"bootstrap.servers": "x:1"}, "bootstrap.servers is not supported by a legacy consumer"),
        ({"auto.offset.reset": "earliest"}, "must be smallest or largest"),
        ({"auto.commit.enable": "yes"}, "must be true or false"),
        ({"auto.commit.interval.ms": 0}, "auto.commit.interval.ms must be a number from 1"),
        ({"consumer.timeout.ms": "soon"}, "consumer.timeout.ms must be a number from -1"),
        ({"zookeeper.session.timeout.ms": 2**31}, "zookeeper.session.timeout.ms must be a number"),
        ({"group.id": None}, "group.id is None"),
        ({"offsets.storage": "file"}, "must be zookeeper or kafka"),
        ({"dual.commit.enabled": "maybe"}, "must be true or false"),
    ],
)
def test_invalid_settings_are_reported(settings: dict[str, object], expected: str) -> None:
    with pytest.raises(KafkaError, match=expected) as refused:
        LegacyConsumer(NEEDED | settings)
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_missing_extra_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(KafkaError, match=r"pip install 'ottla\[zookeeper\]'") as refused:
        LegacyConsumer(NEEDED)
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_invalid_streams_are_rejected_before_any_request() -> None:
    with LegacyConsumer(NEEDED) as consumer:
        for counts in ({}, {"t": 0}, {"t": 10_001}, {"a/b": 1}):
            with pytest.raises(KafkaError) as refused:
                consumer.create_message_streams(counts)
            assert refused.value.code is ErrorCode.INVALID_REQUEST
        with pytest.raises(KafkaError, match="by allow or by deny"):
            consumer.create_message_streams_by_filter(TopicFilter("a.*", deny="ab"))


def test_unreachable_zookeeper_is_reported() -> None:
    settings = {"zookeeper.connect": "127.0.0.1:1", "zookeeper.connection.timeout.ms": 1}
    with (
        LegacyConsumer(NEEDED | settings) as consumer,
        pytest.raises(KafkaError, match=r"^zookeeper\.connect") as refused,
    ):
        consumer.create_message_streams({"t": 1})
    assert refused.value.code is ErrorCode.NETWORK_EXCEPTION
