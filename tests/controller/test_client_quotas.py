"""Client quotas in the controller: alter, reject, describe."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.controller.client_quotas import describe_client_quotas, handle_alter_client_quotas
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredEntity,
    AlterQuotaOperation,
    AlterQuotasEntry,
)
from ottla.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, QuotaFilterComponent

from .world import CountedText, World, refused

Entity = dict[str, str | None]
ALICE: Entity = {"user": "alice"}
APP: Entity = {"client-id": "app"}


def entry(entity: Entity | list[tuple[str, str | None]], *operations: tuple[str, float | None]) -> AlterQuotasEntry:
    parts = list(entity.items()) if isinstance(entity, dict) else entity
    return AlterQuotasEntry(
        entity=[AlteredEntity(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[AlterQuotaOperation(key=key, value=value or 0.0, remove=value is None) for key, value in operations],
    )


def alter(world: World, *entries: AlterQuotasEntry, validate_only: bool = False) -> list[Any]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    results: list[Any] = world.run(lambda image, _: handle_alter_client_quotas(image, request)).entries
    assert [each.entity for each in results] == [each.entity for each in entries]
    return results


def described(world: World, *filters: tuple[str, int, str | None], strict: bool = False) -> list[tuple[Any, Any]]:
    components = [QuotaFilterComponent(entity_type=kind, match_type=how, match=name) for kind, how, name in filters]
    response = describe_client_quotas(world.image, DescribeClientQuotasRequest(components=components, strict=strict))
    assert response.entries is not None
    return [
        (
            {part.entity_type: part.entity_name for part in each.entity},
            {value.key: value.value for value in each.values},
        )
        for each in response.entries
    ]


@pytest.fixture
def world() -> World:
    return World()


def test_limits_are_set_changed_and_removed(world: World) -> None:
    first = entry(ALICE, ("producer_byte_rate", 1024.0), ("request_percentage", 12.5))
    assert [each.error_code for each in alter(world, first, entry(APP, ("consumer_byte_rate", 7.0)))] == [0, 0]
    assert described(world) == [
        (ALICE, {"producer_byte_rate": 1024.0, "request_percentage": 12.5}),
        (APP, {"consumer_byte_rate": 7.0}),
    ]
    before = world.image.offset
    alter(world, entry(ALICE, ("producer_byte_rate", 1024.0), ("controller_mutation_rate", None)))
    assert world.image.offset == before, "nothing changes, so nothing is written"
    alter(world, entry(ALICE, ("producer_byte_rate", None), ("request_percentage", 50.0)))
    assert described(world, ("user", 0, "alice")) == [(ALICE, {"request_percentage": 50.0})]
    alter(
        world, entry(ALICE, ("request_percentage", None)), entry(APP, ("consumer_byte_rate", 8.0)), validate_only=True
    )
    assert len(described(world)) == 2
    alter(world, entry(ALICE, ("request_percentage", None)))
    assert described(world) == [(APP, {"consumer_byte_rate": 7.0})]


@pytest.mark.parametrize(
    ("entity", "operations", "words"),
    [
        ({}, [("producer_byte_rate", 1.0)], "Invalid empty client quota entity"),
        ({"cook": "alice"}, [("producer_byte_rate", 1.0)], "Unhandled client quota entity type: cook"),
        ({"user": ""}, [("producer_byte_rate", 1.0)], "Empty user not supported"),
        ([("user", "a"), ("user", "b")], [("producer_byte_rate", 1.0)], "duplicate entity entry user"),
        ({"ip": "10.0.0.1", "user": "a"}, [("connection_creation_rate", 1.0)], "should not be combined"),
        ({"ip": "not-an-address"}, [("connection_creation_rate", 1.0)], "is not a valid IP"),
        ({"ip": "10.0.0.1"}, [("producer_byte_rate", 1.0)], "Invalid configuration key producer_byte_rate"),
        (ALICE, [("connection_creation_rate", 1.0)], "Invalid configuration key connection_creation_rate"),
        (ALICE, [("producer_byte_rate", 0.0)], "must be greater than 0"),
        (ALICE, [("request_percentage", -1.0)], "must be greater than 0"),
        (ALICE, [("request_percentage", math.nan)], "must be greater than 0"),
        (ALICE, [("producer_byte_rate", 1.5)], "cannot be a fractional value"),
        (ALICE, [("producer_byte_rate", 1e19)], "too large for a LONG"),
        (ALICE, [("producer_byte_rate", math.inf)], "too large for a LONG"),
        ({"ip": None}, [("connection_creation_rate", 3e9)], "too large for an INT"),
        (ALICE, [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)], "Duplicate quota key producer_byte_rate"),
    ],
)
def test_invalid_quotas_are_rejected_as_a_whole(world: World, entity: Any, operations: Any, words: str) -> None:
    bad = entry(entity, ("request_percentage" if entity == ALICE else operations[0][0], 5.0), *operations[1:])
    bad.ops = entry({}, *operations).ops
    good = entry({"client-id": None}, ("consumer_byte_rate", 1.0))
    results = alter(world, bad, good)
    assert [each.error_code for each in results] == [ErrorCode.INVALID_REQUEST, 0]
    assert words in results[0].error_message
    assert results[1].error_message is None
    assert described(world) == [({"client-id": None}, {"consumer_byte_rate": 1.0})]


def test_duplicate_entity_is_rejected(world: World) -> None:
    both: Entity = {"user": "alice", "client-id": "app"}
    turned = dict(reversed(both.items()))
    results = alter(world, entry(both, ("producer_byte_rate", 1.0)), entry(turned, ("producer_byte_rate", 2.0)))
    assert [each.error_code for each in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert described(world) == []


class TestFilters:
    @pytest.fixture
    def world(self) -> World:
        world = World()
        both: Entity = {"user": "alice", "client-id": "app"}
        entities: list[Entity] = [ALICE, {"user": None}, both, APP, {"client-id": None}]
        alter(world, *(entry(entity, ("producer_byte_rate", 1.0)) for entity in entities))
        alter(world, entry({"ip": "::1"}, ("connection_creation_rate", 1.0)))
        return world

    @pytest.mark.parametrize(
        ("filters", "strict", "count"),
        [
            ([], False, 6),
            ([], True, 0),
            ([("user", 0, "alice")], False, 2),
            ([("user", 0, "alice")], True, 1),
            ([("user", 1, None)], False, 1),
            ([("user", 2, None)], False, 3),
            ([("user", 2, None)], True, 2),
            ([("user", 2, None), ("client-id", 2, None)], True, 1),
            ([("user", 0, "bob")], False, 0),
            ([("ip", 2, None)], True, 1),
        ],
    )
    def test_what_matches(self, world: World, filters: Any, strict: bool, count: int) -> None:
        assert len(described(world, *filters, strict=strict)) == count

    @pytest.mark.parametrize(
        ("filters", "code"),
        [
            ([("", 0, "a")], ErrorCode.INVALID_REQUEST),
            ([("user", 0, "a"), ("user", 0, "b")], ErrorCode.INVALID_REQUEST),
            ([("cook", 0, "a")], ErrorCode.UNSUPPORTED_VERSION),
            ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
            ([("user", 1, "a")], ErrorCode.INVALID_REQUEST),
            ([("user", 2, "a")], ErrorCode.INVALID_REQUEST),
            ([("user", 9, None)], ErrorCode.INVALID_REQUEST),
            ([("user", 2, None), ("ip", 2, None)], ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_invalid_filters_are_rejected(self, world: World, filters: Any, code: ErrorCode) -> None:
        refused(code, lambda: described(world, *filters))


def test_large_entity_is_rejected_in_linear_time(world: World) -> None:
    """All of one type: each was compared with each, for seconds."""
    parts: list[tuple[str, str | None]] = [(CountedText("user"), f"u{number}") for number in range(5_000)]
    CountedText.compared = 0
    (result,) = alter(world, entry(parts, ("producer_byte_rate", 1.0)))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "duplicate entity entry user" in result.error_message
    assert CountedText.compared < 10 * len(parts)
