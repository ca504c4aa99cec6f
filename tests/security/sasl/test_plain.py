"""PLAIN: name and password, and their JAAS configuration."""

from __future__ import annotations

import pytest

from ottla.common.errors import OperatorError
from ottla.security.sasl.jaas import PLAIN_MODULE, parse_jaas
from ottla.security.sasl.mechanism import AuthenticationFailed
from ottla.security.sasl.plain import PlainClient, PlainServer

USERS = {"ann": "secret", "bob": "sécret"}


@pytest.mark.parametrize("name", USERS)
def test_correct_password_authenticates(name: str) -> None:
    served = PlainServer(USERS)
    client = PlainClient(name, USERS[name])
    assert served.evaluate(client.first()) == b""
    assert (served.name, served.complete) == (name, True)
    assert client.evaluate(b"") is None
    assert PlainServer(USERS).evaluate(f"{name}\0{name}\0{USERS[name]}".encode()) == b""


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0ann",
        b"\0ann\0",
        b"\0\0secret",
        b"\0ann\0secret\0",
        b"\0ann\0secre",
        b"\0ann\0secretx",
        b"\0nobody\0secret",
        b"\0nobody\0",
        b"bob\0ann\0secret",
        b"\0ann\0\xff",
        b"\0" * 5000,
    ],
)
def test_wrong_credentials_are_rejected(message: bytes) -> None:
    served = PlainServer(USERS)
    with pytest.raises(AuthenticationFailed) as caught:
        served.evaluate(message)
    assert not served.complete
    assert "ecre" not in str(caught.value)


def test_a_login_module_is_read_as_kafka_writes_it() -> None:
    text = (
        f'{PLAIN_MODULE} required\n  username="admin" password=\'ad"min\'\n  user_ann="a\\"b\\\\;" user_bob=bare '
        '"user_c d"="\\u0041\\101";'
    )
    module = parse_jaas("s", text)
    assert module.name == PLAIN_MODULE
    assert module.options["username"] == "admin"
    assert module.options["password"] == 'ad"min'
    assert module.users() == {"ann": 'a"b\\;', "bob": "bare", "c d": "u0041A"}
    assert "admin" not in repr(module)
    assert parse_jaas("s", f"{PLAIN_MODULE} required;").options == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        f"{PLAIN_MODULE} needed a=secret;",
        f'{PLAIN_MODULE} required a="secret"',
        f'{PLAIN_MODULE} required a="secret;',
        f"{PLAIN_MODULE} required secret;",
        f"{PLAIN_MODULE} required a=secret; {PLAIN_MODULE} required b=c;",
    ],
)
def test_another_text_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(OperatorError, match=r"^listener\.name\.x\.plain\.sasl\.jaas\.config is not a login") as caught:
        parse_jaas("listener.name.x.plain.sasl.jaas.config", text)
    assert "secret" not in str(caught.value)
