"""GSSAPI (RFC 4752), both sides: a client presents a ticket of Kerberos, and the server proves that it could read it.

    client's token -> server's token -> (empty) -> offered layers -> chosen layer and authorization id -> done

The only offered layer is none, as in Apache Kafka: a listener of SASL_SSL has TLS. A client accepts no other. The
context that requests and reads tickets is an argument (`kerberos_tickets`).

Invariants: the user comes from the ticket alone; a client with another authorization id is refused. A client
accepts no offer before the server has proved that it could read the ticket.
"""

from __future__ import annotations

from typing import Protocol

from ottla.security.sasl.kerberos_names import PrincipalRules
from ottla.security.sasl.mechanism import GSSAPI, AuthenticationFailed

NO_LAYER = 1
"""The bit of RFC 4752 for authentication without a layer."""
_OFFER = bytes((NO_LAYER, 0, 0, 0))
"""No layer, with a buffer size of 0."""
MAX_STEPS = 4
"""Maximum of tokens until there is a context; Kerberos needs one, or two if clocks differ."""
_MAX_AUTHORIZATION_BYTES = 1024
MAX_CHALLENGE_BYTES = 64 * 1024
"""Maximum size of a server's token; Kerberos tokens have a few hundred bytes."""


class AcceptingContext(Protocol):
    """Acceptor side of a GSS-API context (RFC 2743). Its methods raise AuthenticationFailed."""

    @property
    def complete(self) -> bool:
        """Whether the client is authenticated and keys are established."""
        ...

    def step(self, token: bytes) -> bytes:
        """The response to the client's token, possibly empty; may block on files."""
        ...

    def initiator(self) -> str:
        """The client's principal, with its realm, once `complete`."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """Protect the integrity of `message` for the client."""
        ...

    def unwrap(self, token: bytes) -> bytes:
        """Verify and return the client's message."""
        ...


class InitiatingContext(Protocol):
    """Initiator side of a GSS-API context (RFC 2743). Its methods raise AuthenticationFailed."""

    @property
    def complete(self) -> bool:
        """Whether the server is authenticated and keys are established."""
        ...

    def step(self, token: bytes) -> bytes:
        """The response to the server's token, which is empty at first."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """Protect the integrity of `message` for the server."""
        ...

    def unwrap(self, token: bytes) -> bytes:
        """Verify and return the server's message."""
        ...


class GssapiClient:
    """One exchange on the client, as the user of its ticket. Implements `ClientMechanism`."""

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
                raise AuthenticationFailed("the server sent a token after the end of the exchange")
            return None
        if len(challenge) > MAX_CHALLENGE_BYTES:
            raise AuthenticationFailed(f"the server sent a token of {len(challenge)} bytes, which is too large")
        if not self._context.complete:
            return self._step(challenge)
        offer = self._context.unwrap(challenge)
        if len(offer) != len(_OFFER):
            raise AuthenticationFailed(f"the server's layer offer has {len(offer)} bytes, expected 4")
        if not offer[0] & NO_LAYER:
            raise AuthenticationFailed("the server requires a SASL security layer, which is not supported; use TLS")
        self._chose = True
        return self._context.wrap(_OFFER)

    def _step(self, token: bytes) -> bytes:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise AuthenticationFailed(f"no context after {MAX_STEPS} tokens")
        said = self._context.step(token)
        if not said and not self._context.complete:
            raise AuthenticationFailed("the context is incomplete, but has no further token")
        return said


class GssapiServer:
    """One exchange on the server. Implements `ServerMechanism`; `evaluate` may block on files."""

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
                raise AuthenticationFailed(f"no context after {MAX_STEPS} tokens")
            token = self._context.step(response)
            if token or not self._context.complete:
                return token
        elif response:
            raise AuthenticationFailed("the client sent a token before layers were offered")
        self._offered = True
        return self._context.wrap(_OFFER)

    def _chosen(self, message: bytes) -> bytes:
        if len(message) < len(_OFFER) or len(message) > len(_OFFER) + _MAX_AUTHORIZATION_BYTES:
            raise AuthenticationFailed(f"the client's layer choice has an invalid size of {len(message)} bytes")
        if message[0] != NO_LAYER:
            raise AuthenticationFailed("the client chose a layer that was not offered")
        principal = self._context.initiator()
        try:
            authorization = message[len(_OFFER) :].decode()
            name = self._rules.name(principal)
        except UnicodeDecodeError:
            raise AuthenticationFailed("the client's authorization id is not valid UTF-8") from None
        except ValueError as error:
            raise AuthenticationFailed(f"{error}: {principal[:200]!r}") from None
        if authorization not in ("", principal, name):
            raise AuthenticationFailed("the client requested another user's authorization id")
        self.name, self.complete = name, True
        return b""
