"""GSSAPI by RFC 4752, with a fake ticket context: `compat/java/test_kerberos.py` has a KDC."""

from __future__ import annotations

import pytest

from ottla.security.sasl.kerberos import MAX_CHALLENGE_BYTES, MAX_STEPS, GssapiClient, GssapiServer
from ottla.security.sasl.kerberos_names import PrincipalRules
from ottla.security.sasl.mechanism import AuthenticationFailed

RULES = PrincipalRules(["DEFAULT"], "R")
OFFER = b"\x01\0\0\0"


class Known:
    """A context that is complete after a number of tokens, and answers each; wrapped messages are marked."""

    def __init__(self, tokens: int = 1, answer: bytes = b"to the client", principal: str = "ann@R") -> None:
        self.complete = False
        self._left = tokens
        self._answer = answer
        self._principal = principal

    def step(self, token: bytes) -> bytes:
        if token != b"ticket":
            raise AuthenticationFailed("no ticket")
        self._left -= 1
        self.complete = self._left <= 0
        return self._answer

    def initiator(self) -> str:
        assert self.complete
        return self._principal

    def wrap(self, message: bytes) -> bytes:
        assert self.complete
        return b"w" + message

    def unwrap(self, token: bytes) -> bytes:
        if token[:1] != b"w":
            raise AuthenticationFailed("changed")
        return token[1:]


def offered(context: Known) -> GssapiServer:
    """A server that has offered its layers."""
    server = GssapiServer(context, RULES)
    assert server.evaluate(b"ticket") == b"to the client"
    assert server.evaluate(b"") == b"w" + OFFER
    assert not server.complete
    return server


@pytest.mark.parametrize("authorization", [b"", b"ann@R", b"ann"])
def test_client_authenticates_as_its_tickets_principal(authorization: bytes) -> None:
    server = offered(Known())
    assert server.evaluate(b"w" + OFFER + authorization) == b""
    assert (server.name, server.complete, server.expires_ms, server.by_token) == ("ann", True, None, False)


def test_buffer_size_without_a_layer_is_ignored() -> None:
    """Java's client sends the size in its settings."""
    server = offered(Known())
    server.evaluate(b"w\x01\x01\x00\x00ann@R")
    assert server.name == "ann"


def test_layer_offer_follows_at_once_without_a_server_token() -> None:
    server = GssapiServer(Known(answer=b""), RULES)
    assert server.evaluate(b"ticket") == b"w" + OFFER
    assert server.evaluate(b"w" + OFFER) == b""
    assert server.name == "ann"


def test_a_context_may_take_more_tokens_but_not_many() -> None:
    server = GssapiServer(Known(tokens=2), RULES)
    assert [server.evaluate(b"ticket") for _ in range(2)] == [b"to the client"] * 2
    assert server.evaluate(b"") == b"w" + OFFER
    endless = GssapiServer(Known(tokens=100), RULES)
    for _ in range(MAX_STEPS):
        endless.evaluate(b"ticket")
    with pytest.raises(AuthenticationFailed, match="no context"):
        endless.evaluate(b"ticket")


@pytest.mark.parametrize(
    "choice",
    [
        b"",
        OFFER,
        b"w",
        b"w\x01\0\0",
        b"w\x00\0\0\0",
        b"w\x02\0\0\0",
        b"w\x04\0\0\0",
        b"w\x03\0\0\0",
        b"w" + OFFER + b"bob@R",
        b"w" + OFFER + b"bob",
        b"w" + OFFER + b"ann@OTHER",
        b"w" + OFFER + b"ann\0",
        b"w" + OFFER + b"\xff",
        b"w" + OFFER + b"x" * 5000,
    ],
)
def test_other_layer_choices_fail(choice: bytes) -> None:
    server = offered(Known())
    with pytest.raises(AuthenticationFailed):
        server.evaluate(choice)
    assert (server.name, server.complete) == ("", False)


def test_layer_choice_before_the_offer_fails() -> None:
    server = GssapiServer(Known(), RULES)
    with pytest.raises(AuthenticationFailed):
        server.evaluate(b"w" + OFFER)
    server = GssapiServer(Known(), RULES)
    server.evaluate(b"ticket")
    with pytest.raises(AuthenticationFailed):
        server.evaluate(b"w" + OFFER)
    assert not server.complete


@pytest.mark.parametrize("principal", ["ann@OTHER", "a/b/c@R", "ann"])
def test_ticket_without_a_matching_rule_is_rejected(principal: str) -> None:
    server = offered(Known(principal=principal))
    with pytest.raises(AuthenticationFailed, match=r"rule|form"):
        server.evaluate(b"w" + OFFER)
    assert not server.complete


class Coming:
    """The initiator for a `Known` acceptor, complete after a number of tokens."""

    def __init__(self, tokens: int = 1, last: bytes = b"") -> None:
        self.complete = False
        self._left = tokens
        self._last = last
        self._begun = False

    def step(self, token: bytes) -> bytes:
        assert not self.complete
        if not self._begun:
            assert token == b""
            self._begun = True
            return b"ticket"
        if token != b"to the client":
            raise AuthenticationFailed("no server that could read the ticket")
        self._left -= 1
        self.complete = self._left <= 0
        return self._last if self.complete else b"ticket"

    def wrap(self, message: bytes) -> bytes:
        assert self.complete
        return b"w" + message

    def unwrap(self, token: bytes) -> bytes:
        assert len(token) <= MAX_CHALLENGE_BYTES
        if not self.complete or token[:1] != b"w":
            raise AuthenticationFailed("changed")
        return token[1:]


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_client_and_server_complete_the_exchange(tokens: int) -> None:
    server, client = GssapiServer(Known(tokens), RULES), GssapiClient(Coming(tokens))
    message: bytes | None = client.first()
    while message is not None:
        message = client.evaluate(server.evaluate(message))
    assert (server.name, server.complete, client.mechanism) == ("ann", True, "GSSAPI")


def at_the_offer() -> GssapiClient:
    client = GssapiClient(Coming())
    assert client.first() == b"ticket"
    assert client.evaluate(b"to the client") == b""
    return client


@pytest.mark.parametrize("offer", [b"\x01\0\0\0", b"\x07\0\xff\xff", b"\x03\xff\xff\xff"])
def test_client_chooses_no_layer_and_no_authorization_id(offer: bytes) -> None:
    client = at_the_offer()
    assert client.evaluate(b"w" + offer) == b"w" + OFFER
    assert client.evaluate(b"") is None


@pytest.mark.parametrize(
    "offer",
    [
        b"",
        OFFER,
        b"w",
        b"w\x01\0\0",
        b"w" + OFFER + b"\0",
        b"w\x00\0\0\0",
        b"w\x02\0\xff\xff",
        b"w\x06\0\xff\xff",
        b"w" + OFFER + bytes(MAX_CHALLENGE_BYTES),
    ],
)
def test_a_client_refuses_any_other_offer(offer: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        at_the_offer().evaluate(offer)


@pytest.mark.parametrize("token", [b"", b"w" + OFFER, b"something", bytes(MAX_CHALLENGE_BYTES + 1)])
def test_client_rejects_an_offer_without_mutual_authentication(token: bytes) -> None:
    client = GssapiClient(Coming())
    client.first()
    with pytest.raises(AuthenticationFailed):
        client.evaluate(token)


def test_endless_server_exchange_is_aborted() -> None:
    client = GssapiClient(Coming(tokens=100))
    client.first()
    for _ in range(MAX_STEPS - 1):
        client.evaluate(b"to the client")
    with pytest.raises(AuthenticationFailed, match="no context"):
        client.evaluate(b"to the client")
    client = at_the_offer()
    client.evaluate(b"w" + OFFER)
    with pytest.raises(AuthenticationFailed, match="after the end"):
        client.evaluate(b"more")
