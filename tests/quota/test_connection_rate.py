"""Connection creation rates (KIP-612)."""

from __future__ import annotations

import pytest

from ottla.quota.connection_rate import MAX_ADDRESSES, ConnectionRates
from ottla.quota.windows import Windows


@pytest.fixture
def rates():
    return ConnectionRates(Windows())


def test_rejected_connections_do_not_count_against_the_rate(rates, clock):
    rates.use_quotas({(("ip", "10.0.0.1"),): {"connection_creation_rate": 2.0}})
    assert [rates.refused("10.0.0.1", clock.now_s) for _ in range(20)] == [0.0] * 20
    assert [rates.refused("10.0.0.1", clock.now_s) for _ in range(50)] == [0.5] * 50
    assert rates.refused("10.0.0.2", clock.now_s) == 0
    assert rates.refused("10.0.0.1", clock.advance(0.5)) == 0


def test_default_applies_to_each_address_without_a_limit(rates, clock):
    rates.use_quotas(
        {
            (("ip", None),): {"connection_creation_rate": 1.0},
            (("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0},
        }
    )
    refused = {host: [rates.refused(host, clock.now_s) > 0 for _ in range(51)] for host in ("10.0.0.1", "a", "b")}
    assert {host: each.count(True) for host, each in refused.items()} == {"10.0.0.1": 1, "a": 41, "b": 41}
    rates.use_quotas({})
    assert rates.refused("a", clock.now_s) == 0


def test_pause_above_the_broker_rate_is_at_most_a_window(rates, clock):
    assert all(rates.accepted("A", clock.now_s) == 0 for _ in range(1000))
    rates.limit = 10
    assert [rates.accepted("A", clock.now_s) for _ in range(100)] == [0.0] * 100
    assert rates.accepted("A", clock.now_s) == pytest.approx(0.1)
    for _ in range(100):
        rates.accepted("A", clock.now_s)
    assert rates.accepted("A", clock.now_s) == 1.0
    rates.exempt = "A"
    assert rates.accepted("A", clock.now_s) == 0
    rates.limit = 0
    assert rates.accepted("B", clock.now_s) == 1.0


def test_each_listener_has_its_own_rate_incl_inter_broker(rates, clock):
    rates.of_listeners = {"A": 1}
    rates.exempt = "A"
    assert [rates.accepted("A", clock.now_s) for _ in range(10)] == [0.0] * 10
    assert rates.accepted("A", clock.now_s) == 1.0
    assert rates.accepted("B", clock.now_s) == 0
    rates.limit = 1
    assert [rates.accepted("B", clock.now_s) > 0 for _ in range(11)] == [False] * 10 + [True]


def test_flood_of_addresses_uses_bounded_memory(rates, clock):
    rates.use_quotas({(("ip", None),): {"connection_creation_rate": 1.0}})
    for number in range(MAX_ADDRESSES + 100):
        rates.refused(f"10.{number}", clock.now_s)
    assert len(rates._addresses) == MAX_ADDRESSES
