"""Quota lookup by the eight levels, and sharing of quotas."""

from __future__ import annotations

import itertools

import pytest

from ottla.quota.groups import MAX_GROUPS, GroupTable
from ottla.quota.limits import ClientLimits, Group, Limit, address_limits, user_of
from ottla.quota.windows import Windows

Quotas = dict[tuple[tuple[str, str | None], ...], dict[str, float]]
KEY = "producer_byte_rate"
LEVELS = (
    ((("client-id", "app"), ("user", "ann")), Group("ann", "app")),
    ((("client-id", None), ("user", "ann")), Group("ann", "app")),
    ((("user", "ann"),), Group("ann", None)),
    ((("client-id", "app"), ("user", None)), Group("ann", "app")),
    ((("client-id", None), ("user", None)), Group("ann", "app")),
    ((("user", None),), Group("ann", None)),
    ((("client-id", "app"),), Group(None, "app")),
    ((("client-id", None),), Group(None, "app")),
)
"""Most specific first, with the group of a client "app" of "ann"."""


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_most_specific_level_wins(first):
    quotas = {entity: {KEY: 100.0 + level} for level, (entity, _) in enumerate(LEVELS) if level >= first}
    assert ClientLimits(quotas, KEY).of("ann", "app") == Limit(LEVELS[first][1], 100.0 + first)


def test_quota_of_another_entity_does_not_apply():
    for (entity, _), other in itertools.product(LEVELS, (("bob", "tool"), ("bob", "app"), ("ann", "tool"))):
        limit = ClientLimits({entity: {KEY: 5.0}}, KEY).of(*other)
        named = dict(entity)
        holds = named.get("user", other[0]) in (other[0], None) and named.get("client-id", other[1]) in (other[1], None)
        assert (limit is not None) is holds


def test_each_quota_type_selects_its_own_level():
    quotas: Quotas = {(("user", "ann"),): {"consumer_byte_rate": 1.0}, (("client-id", None),): {KEY: 2.0}}
    assert ClientLimits(quotas, KEY).of("ann", "app") == Limit(Group(None, "app"), 2.0)
    assert not ClientLimits(quotas, "request_percentage")
    assert ClientLimits(quotas, "request_percentage").of("ann", "app") is None


def test_any_user_name_is_extracted_from_its_principal():
    assert user_of("User:ANONYMOUS") == "ANONYMOUS"
    assert user_of("User:CN=a:b,O=c") == "CN=a:b,O=c"


def test_addresses_have_limits_of_their_own():
    quotas: Quotas = {
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 3.0},
        (("ip", "0:0:0:0:0:0:0:1"),): {"connection_creation_rate": 4.0},
        (("ip", "::ffff:10.0.0.2"),): {"connection_creation_rate": 5.0},
        (("ip", None),): {"connection_creation_rate": 9.0},
        (("user", None),): {KEY: 1.0},
    }
    assert address_limits(quotas) == {"10.0.0.1": 3.0, "::1": 4.0, "10.0.0.2": 5.0, None: 9.0}


class TestGroups:
    @pytest.fixture
    def table(self):
        return GroupTable(KEY, Windows())

    def test_connections_share_the_limit_and_defaults_split_by_user(self, table, clock):
        table.use_quotas({(("user", None),): {KEY: 100.0}})
        ann = table.of("ann", "app", clock.now_s)
        assert table.of("ann", "tool", clock.now_s) is ann
        assert table.of("bob", "app", clock.now_s) is not ann
        assert ann.record(1500, clock.now_s) == 11_000, "until the sample expires"
        assert table.of("bob", "app", clock.now_s).throttle_ms(clock.now_s) == 0

    def test_changed_limit_applies_to_past_usage(self, table, clock):
        entity = (("user", "ann"),)
        table.use_quotas({entity: {KEY: 100.0}})
        assert table.of("ann", "app", clock.now_s).record(2500, clock.now_s) == 15_000
        table.use_quotas({entity: {KEY: 200.0}})
        assert table.of("ann", "app", clock.now_s).throttle_ms(clock.now_s) == 11_000
        table.use_quotas({entity: {KEY: 250.0}})
        assert table.of("ann", "app", clock.now_s).throttle_ms(clock.now_s) == 0
        table.use_quotas({entity: {KEY: 50.0}})
        assert table.of("ann", "app", clock.now_s).throttle_ms(clock.now_s) == 40_000
        table.use_quotas({})
        assert table.of("ann", "app", clock.now_s) is None
        assert len(table) == 0

    def test_wait_is_bounded_by_the_longest_wait(self, clock):
        table = GroupTable(KEY, Windows(), longest_wait_s=1.0)
        table.use_quotas({(("user", None),): {KEY: 100.0}})
        assert table.of("ann", "app", clock.now_s).record(1e9, clock.now_s) == 1000

    def test_a_flood_of_names_takes_bounded_memory(self, table, clock):
        forgotten = []
        table.on_forgotten = forgotten.append
        table.use_quotas({(("client-id", None),): {KEY: 100.0}})
        for number in range(MAX_GROUPS + 50):
            table.of("ann", f"app-{number}", clock.now_s).record(1, clock.now_s)
        assert len(table) == MAX_GROUPS
        assert len(forgotten) == 50
        clock.advance(12)
        for number in range(MAX_GROUPS):
            table.of("ann", f"late-{number}", clock.now_s).record(1, clock.now_s)
        assert len(table) == MAX_GROUPS, "two idle groups are evicted for each new one"
        assert {use.group.client_id for use in forgotten} >= {f"app-{number}" for number in range(MAX_GROUPS)}

    def test_active_group_is_not_evicted(self, table, clock):
        table.use_quotas({(("client-id", None),): {KEY: 100.0}})
        busy = table.of("ann", "busy", clock.now_s)
        busy.record(1, clock.now_s)
        for number in range(2 * MAX_GROUPS):
            table.of("ann", f"app-{number}", clock.now_s).record(1, clock.now_s)
            if number % 100 == 0:
                assert table.of("ann", "busy", clock.now_s) is busy
