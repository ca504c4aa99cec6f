"""Differential cases of client quotas: valid and invalid AlterClientQuotas, and DescribeClientQuotas."""

from __future__ import annotations

from typing import Any

from differential_pair import Pair

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
RATE = ("producer_byte_rate", 1024.0)


def _entity(*parts: tuple[str, str | None]) -> list[dict[str, Any]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in parts]


def _operations(*limits: tuple[str, float | None]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in limits]


def _lift(pair: Pair, *limits: tuple[list[dict[str, Any]], str]) -> None:
    """Remove quotas that apply to all clients: Apache Kafka would throttle the requests of other tests."""
    rows = [{"entity": entity, "ops": _operations((key, None))} for entity, key in limits]
    pair.ask("lift", "alter_client_quotas", 1, {"entries": rows, "validate_only": False})
    pair.settle()


def alter_client_quotas(pair: Pair, versions: list[int]) -> None:
    """Invalid entities and quotas; quotas that are added, changed and removed."""
    for version in versions:

        def ask(case: str, *entries: tuple[list[dict[str, Any]], list[dict[str, Any]]], version: int = version) -> None:
            rows = [{"entity": entity, "ops": operations} for entity, operations in entries]
            for validate_only in (True, False):
                body = {"entries": rows, "validate_only": validate_only}
                pair.ask(f"{case}, {validate_only}", "alter_client_quotas", version, body)

        user, client, address = ("user", "alice"), ("client-id", "app"), ("ip", "10.0.0.1")
        ask("none")
        ask("no entity", (_entity(), _operations(RATE)))
        for kind in ("cook", "", "USER", "broker"):
            ask(f"kind {kind!r}", (_entity((kind, "a")), _operations(RATE)))
        ask("empty name", (_entity(("user", "")), _operations(RATE)))
        ask("empty client", (_entity(("client-id", "")), _operations(RATE)))
        ask("address and user", (_entity(address, user), _operations(("connection_creation_rate", 1.0))))
        ask("rate of an address", (_entity(address), _operations(RATE)))
        ask("connections of a user", (_entity(user), _operations(("connection_creation_rate", 1.0))))
        for key in ("", "no.such", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"):
            for value in (1.0, 0.0, -1.0, 1.5, 1e19, 1e-7):
                ask(f"{key} {value}", (_entity(user), _operations((key, value))))
        for value in (1.0, 0.0, 2.5, 3e9):
            ask(f"connections {value}", (_entity(("ip", None)), _operations(("connection_creation_rate", value))))
        ask("both", (_entity(user, client), _operations(RATE, ("request_percentage", 12.5))))
        ask("defaults", (_entity(("user", None), ("client-id", None)), _operations(RATE)))
        ask("several", (_entity(user), _operations(RATE)), (_entity(client), _operations(("no.such", 1.0))))
        ask("nothing to do", (_entity(user), _operations()))
        ask("remove a missing quota", (_entity(user), _operations(("no.such", None))))
        ask("remove", (_entity(user), _operations(("producer_byte_rate", None))))
    all_clients = _entity(("user", None), ("client-id", None))
    _lift(pair, (all_clients, "producer_byte_rate"), (_entity(("ip", None)), "connection_creation_rate"))


def describe_client_quotas(pair: Pair, versions: list[int]) -> None:
    """Filters of every kind over some entities, and invalid filters."""
    user, client = ("user", "seen"), ("client-id", "seen")
    entities = [_entity(user), _entity(("user", None)), _entity(user, client), _entity(client)]
    rows = [{"entity": entity, "ops": _operations(RATE)} for entity in entities]
    rows.append({"entity": _entity(("ip", "10.9.8.7")), "ops": _operations(("connection_creation_rate", 3.0))})
    pair.ask("set up", "alter_client_quotas", 1, {"entries": rows, "validate_only": False})
    pair.settle()
    for version in versions:

        def ask(case: str, *filters: tuple[str, int, str | None], version: int = version) -> None:
            components = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in filters]
            for strict in (False, True):
                body = {"components": components, "strict": strict}
                pair.ask(f"{case}, {strict}", "describe_client_quotas", version, body)

        ask("everything")
        ask("a user", ("user", EXACT, "seen"))
        ask("another user", ("user", EXACT, "nobody"))
        ask("default user", ("user", DEFAULT, None))
        ask("users", ("user", SPECIFIED, None))
        ask("users and clients", ("user", SPECIFIED, None), ("client-id", SPECIFIED, None))
        ask("a user's clients", ("user", EXACT, "seen"), ("client-id", SPECIFIED, None))
        ask("a client", ("client-id", EXACT, "seen"))
        ask("addresses", ("ip", SPECIFIED, None))
        ask("an address", ("ip", EXACT, "10.9.8.7"))
        ask("no kind", ("", EXACT, "a"))
        ask("kind", ("cook", EXACT, "a"))
        ask("twice", ("user", EXACT, "a"), ("user", DEFAULT, None))
        ask("exact match of null", ("user", EXACT, None))
        ask("default with a name", ("user", DEFAULT, "a"))
        ask("any with a name", ("user", SPECIFIED, "a"))
        ask("match type 3", ("user", 3, None))
        ask("match type -1", ("user", -1, None))
        ask("address and user", ("ip", SPECIFIED, None), ("user", SPECIFIED, None))
    _lift(pair, (_entity(("user", None)), "producer_byte_rate"))


def describe_user_scram_credentials(pair: Pair, versions: list[int]) -> None:
    """All kinds of requests, while no user has SCRAM credentials."""
    for version in versions:
        for names in (None, [], ["alice"], ["alice", "bob"], ["alice", "alice"], [""], ["ü"]):
            users = None if names is None else [{"name": name} for name in names]
            pair.ask(f"{names}", "describe_user_scram_credentials", version, {"users": users})
