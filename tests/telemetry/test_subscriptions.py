"""Subscriptions of client metrics: which apply to a client, and the id of their union."""

from __future__ import annotations

import logging

import pytest

from ottla.common.kafka.ids import uuid_from_string
from ottla.telemetry.subscriptions import ClientAttributes, Subscriptions, subscription_id

INSTANCE = bytes(range(16))
CLIENT = ClientAttributes(
    client_id="app-1",
    client_instance_id="id",
    client_software_name=None,
    client_software_version=None,
    client_source_address="::1",
    client_source_port="5",
)


@pytest.fixture
def subscriptions() -> Subscriptions:
    return Subscriptions()


@pytest.mark.parametrize(
    ("metrics", "interval_ms", "instance", "expected"),
    [
        ((), 300_000, "AAAAAAAAAAAAAAAAAAAAAQ", -725132321),
        (("*",), 1_000, "YozR9EfaRWOjyVbDUC_f_Q", -465850608),
        (("a.", "b."), 100, "9DWsBUQ0RwOA7Gm-BCsqcg", 852490568),
    ],
)
def test_subscription_id_equals_apache_kafkas(
    metrics: tuple[str, ...], interval_ms: int, instance: str, expected: int
) -> None:
    assert subscription_id(metrics, interval_ms, uuid_from_string(instance)) == expected


def test_matching_subscriptions_are_united(subscriptions: Subscriptions) -> None:
    assert subscriptions.for_client(INSTANCE, CLIENT)[1:] == ((), 300_000)
    subscriptions.update("one", {"metrics": "b.,a.", "interval.ms": "5000"})
    subscriptions.update("two", {"metrics": "a.,c.", "match": "client_id=app-.*,client_source_address=::1"})
    subscriptions.update("not", {"metrics": "*", "interval.ms": "100", "match": "client_software_name=.*"})
    united = subscriptions.for_client(INSTANCE, CLIENT)
    assert united[1:] == (("a.", "b.", "c."), 5000)
    assert [united.wants(name) for name in ("a.x", "b", "c.")] == [True, False, True]
    subscriptions.update("all", {"metrics": "d.,*"})
    assert subscriptions.for_client(INSTANCE, CLIENT).metrics == ("*",)
    subscriptions.update("all", {})
    assert subscriptions.for_client(INSTANCE, CLIENT) == united
    assert subscriptions.version == 5


def test_invalid_stored_subscription_is_ignored(subscriptions: Subscriptions, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        subscriptions.update("java", {"metrics": "*", "match": "client_id=(?=x)"})
    assert "client metrics subscription java is ignored" in caplog.text
    assert subscriptions.for_client(INSTANCE, CLIENT).metrics == ()
