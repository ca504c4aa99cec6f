"""GSSAPI (RFC 4752), both sides: a client shows a ticket of Kerberos, and the server that it could read it.

    client's token -> server's token -> (empty) -> offer of layers -> choice of a layer, and as whom -> done

The only layer on offer is none, as in Apache Kafka: a listener of SASL_SSL has TLS. A client takes no other. What takes
and reads tickets is an argument (`kerberos_tickets`).

Invariants: who the user is comes from the ticket alone; a client that asks to act for another one is refused. A client
believes no offer before the server has shown that it could read the ticket.
"""

from __future__ import annotations

from typing import Protocol

from ottla.security.sasl.kerberos_names import PrincipalRules
from ottla.security.sasl.mechanism import GSSAPI, AuthenticationFailed

NO_LAYER = 1
"""The bit of RFC 4752 for authentication alone."""
_OFFER = bytes((NO_LAYER, 0, 0, 0))
"""And no bytes that the server would take in any other layer."""
MAX_STEPS = 4
"""Tokens until there is a context; Kerberos needs one, and two where clocks differ."""
_MAX_AUTHORIZATION_BYTES = 1024
MAX_CHALLENGE_BYTES = 64 * 1024
"""Of a server; tokens of Kerberos have a few hundred."""


class AcceptingContext(Protocol):
    """The side of a GSS-API context that is come to (RFC 2743). Its methods raise AuthenticationFailed."""

    @property
    def complete(self) -> bool:
        """Whether the client is known, and keys are agreed on."""
        ...

    def step(self, token: bytes) -> bytes:
        """What to answer to the client's token, empty where there is nothing; may wait for files."""
        ...

    def initiator(self) -> str:
        """The client's principal, with its realm, once `complete`."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """`message` so that the client sees that nobody changed it."""
        ...

    def unwrap(self, token: bytes) -> bytes:
        """The client's message, which nobody changed."""
        ...


class InitiatingContext(Protocol):
    """The side of a GSS-API context that comes to another (RFC 2743). Its methods raise AuthenticationFailed."""

    @property
    def complete(self) -> bool:
        """Whether the server has shown who it is, and keys are agreed on."""
        ...

    def step(self, token: bytes) -> bytes:
        """What to say to the server's token, which is empty in the beginning."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """`message` so that the server sees that nobody changed it."""
        ...

    def unwrap(self, token: bytes) -> bytes:
        """The server's message, which nobody changed."""
        ...


class GssapiClient:
    """One exchange on the client, as whom its ticket says. Implements `ClientMechanism`."""

    mechanism = GSSAPI

    def __init__(self, context: InitiatingContext) -> None:
        self._context = context
        self._steps = 0
        self._chose = False

    def first(self) -> bytes:
        """See `ClientMechanism`."""
        return self._step(b"")

    def evaluate(self, challenge: bytes) -> bytes | None:
        """See `ClientMechanism`."""
        if self._chose:
            if challenge:
                raise AuthenticationFailed("the server said something after the end")
            return None
        if len(challenge) > MAX_CHALLENGE_BYTES:
            raise AuthenticationFailed(f"the server sent a token of {len(challenge)} bytes")
        if not self._context.complete:
            return self._step(challenge)
        offer = self._context.unwrap(challenge)
        if len(offer) != len(_OFFER):
            raise AuthenticationFailed(f"the server's offer of layers has {len(offer)} bytes")
        if not offer[0] & NO_LAYER:
            raise AuthenticationFailed("the server wants a layer of SASL, and there is none here; use TLS")
        self._chose = True
        return self._context.wrap(_OFFER)

    def _step(self, token: bytes) -> bytes:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise AuthenticationFailed(f"{MAX_STEPS} tokens led to no context")
        said = self._context.step(token)
        if not said and not self._context.complete:
            raise AuthenticationFailed("there is no context, and nothing to say")
        return said


class GssapiServer:
    """One exchange on the server. Implements `ServerMechanism`; `evaluate` may wait for files."""

    def __init__(self, context: AcceptingContext, rules: PrincipalRules) -> None:
        self._context = context
        self._rules = rules
        self._steps = 0
        self._offered = False
        self.name = ""
        self.complete = False
        self.expires_ms: int | None = None
        self.by_token = False

    def evaluate(self, response: bytes) -> bytes:
        """See `ServerMechanism`."""
        if self._offered:
            return self._chosen(self._context.unwrap(response))
        if not self._context.complete:
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise AuthenticationFailed(f"{MAX_STEPS} tokens led to no context")
            token = self._context.step(response)
            if token or not self._context.complete:
                return token
        elif response:
            raise AuthenticationFailed("the client said something before layers were offered")
        self._offered = True
        return self._context.wrap(_OFFER)

    def _chosen(self, message: bytes) -> bytes:
        if len(message) < len(_OFFER) or len(message) > len(_OFFER) + _MAX_AUTHORIZATION_BYTES:
            raise AuthenticationFailed(f"the choice of a layer has {len(message)} bytes")
        if message[0] != NO_LAYER:
            raise AuthenticationFailed("the client wants a layer that was not offered")
        principal = self._context.initiator()
        try:
            authorization = message[len(_OFFER) :].decode()
            name = self._rules.name(principal)
        except UnicodeDecodeError:
            raise AuthenticationFailed("as whom the client wants to act is no UTF-8") from None
        except ValueError as error:
            raise AuthenticationFailed(f"{error}: {principal[:200]!r}") from None
        if authorization not in ("", principal, name):
            raise AuthenticationFailed("the client wants to act for another user")
        self.name, self.complete = name, True
        return b""
