"""Permissions under the same ACLs: each API with Apache Kafka's StandardAuthorizer and with Ottla's.

Every user of `differential_rights` sends all requests, and differences fail the test, as in `test_differential`:
visible resources, error codes of refused requests, and the reported authorized operations. Then logins by SASL/PLAIN
are compared: valid, invalid, complete and out of order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import differential_rights as rights
import pytest
from differential_pair import Difference, Pair
from differential_wire import CLOSED, User

NOT_COMPARED = re.compile(
    r"(.*\.)?("
    r"error_message"  # Apache Kafka's text is longer, or absent
    r"|token_id|hmac|(issue|expiry|max)_timestamp|log_end_offset|high_watermark"  # specific to each broker
    r"|configs|aborted_transactions|protocol_name"  # an empty list, or text, where null is possible
    r")"
)
ECHOED = ("join_group", "member_id")
"""Ottla returns the member id in a refused JoinGroup, Apache Kafka does not."""

CLOSED_AT_ONCE = {"versions between", "another request between", "two handshakes"}
"""Unexpected requests in a login: Apache Kafka responds before it closes the connection, and reads any request for it.
"""


@pytest.fixture(scope="module")
def pair(java_classpath: str) -> Iterator[Pair]:
    with Pair(java_classpath, rights.configs()) as running:
        rights.prepare(running)
        yield running


def differences(pair: Pair) -> list[Difference]:
    """Returns the new differences that are not intended."""
    found = [
        each for each in pair.differences if not NOT_COMPARED.fullmatch(each.path) and (each.api, each.path) != ECHOED
    ]
    pair.differences.clear()
    return found


@pytest.mark.promise("S2")
@pytest.mark.parametrize("user", rights.USERS, ids=lambda user: f"{user.name}-{user.host}")
def test_rights(pair: Pair, user: User) -> None:
    with pair.acting(user):
        for case, api, version, body in rights.rows(user.name):
            pair.ask(case, api, version, body)
    pair.settle()
    found = differences(pair)
    assert not found, "\n" + "\n".join(map(str, found))


@pytest.mark.parametrize("case", rights.LOGINS)
def test_logins(pair: Pair, case: str) -> None:
    with pair.acting(None):
        for api, version, body in rights.LOGINS[case]:
            pair.ask(case, api, version, body)
    # The list of APIs is compared elsewhere.
    found = [each for each in differences(pair) if each.api != "api_versions" or not each.path]
    assert [each for each in found if each.ottla != CLOSED] == []
    assert bool(found) is (case in CLOSED_AT_ONCE)
