"""Options of a Kerberos login module: effective values, and one sentence for each mistake."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.common.errors import OperatorError
from ottla.security.sasl.kerberos_login import keys_of_service, login_of

BY_KEYTAB = {"useKeyTab": "true", "keyTab": "KEYTAB", "principal": "ann@R"}


@pytest.fixture
def keytab(tmp_path: Path) -> str:
    path = tmp_path / "a.keytab"
    path.write_bytes(b"\x05\x02")
    return str(path)


def without(name: str) -> dict[str, str]:
    return {key: text for key, text in BY_KEYTAB.items() if key != name}


@pytest.mark.parametrize(
    ("options", "service", "words"),
    [
        (BY_KEYTAB, "", "the service in F is not set: set it to the service name of the brokers"),
        (BY_KEYTAB, "kafka/host", "the service in F is kafka/host: set it"),
        (BY_KEYTAB, "two words", "the service in F is two words: set it"),
        (BY_KEYTAB | {"serviceName": "other"}, "kafka", "but JAAS has serviceName=other: set both to the same"),
        ({}, "kafka", "JAAS has no ticket source: set useKeyTab=true with keyTab="),
        ({}, "kafka", "useTicketCache=true; password prompts are not supported"),
        (BY_KEYTAB | {"useKeyTab": "false"}, "kafka", "JAAS has no ticket source: set useKeyTab=true with keyTab="),
        (without("keyTab"), "kafka", 'JAAS has useKeyTab=true but no keytab: add keyTab="'),
        (without("principal"), "kafka", 'has a keytab but no principal: add principal="'),
        (BY_KEYTAB | {"keyTab": "/not/there"}, "kafka", "the keytab /not/there, which can't be read: No such file"),
    ],
)
def test_each_mistake_is_reported_in_one_sentence(
    keytab: str, options: Mapping[str, str], service: str, words: str
) -> None:
    given = {name: keytab if text == "KEYTAB" else text for name, text in options.items()}
    with pytest.raises(OperatorError) as caught:
        login_of("JAAS", given, service, "the service in F")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("given", "named"), [("kafka", ""), ("", "kafka"), ("kafka", "kafka")])
def test_service_name_comes_from_setting_or_login_module(keytab: str, given: str, named: str) -> None:
    options = BY_KEYTAB | {"keyTab": keytab} | ({"serviceName": named} if named else {})
    assert login_of("JAAS", options, given, "the service").service == "kafka"
    assert keys_of_service("JAAS", options | {"principal": "kafka/h@R"}, given) == ("kafka/h@R", keytab)


def test_a_keytab_counts_before_a_cache(keytab: str) -> None:
    login = login_of("JAAS", BY_KEYTAB | {"keyTab": keytab, "useTicketCache": "true"}, "kafka", "the service")
    assert (login.principal, login.keytab, login.ticket_cache) == ("ann@R", keytab, "")
    assert login.source == f"ann@R with the keytab {keytab}"


@pytest.mark.parametrize(
    ("options", "cache"),
    [
        ({}, ""),
        ({"ticketCache": "/tmp/cache"}, "FILE:/tmp/cache"),
        ({"ticketCache": "FILE:/tmp/cache"}, "FILE:/tmp/cache"),
        ({"ticketCache": "KCM:"}, "KCM:"),
    ],
)
def test_a_cache_is_this_users_unless_one_is_named(options: dict[str, str], cache: str) -> None:
    login = login_of("JAAS", {"useTicketCache": "TRUE", **options}, "kafka", "the service")
    assert (login.principal, login.keytab, login.ticket_cache) == ("", "", cache)


@pytest.mark.parametrize("named", [{}, {"serviceName": "other"}])
def test_a_service_of_another_name_than_its_principal_is_refused(named: dict[str, str]) -> None:
    options = BY_KEYTAB | {"principal": "kafka/h@R", **named}
    with pytest.raises(OperatorError, match="is other, but the principal in JAAS is kafka/h@R"):
        keys_of_service("JAAS", options, "other")
