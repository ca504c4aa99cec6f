"""Kerberos tickets through the library `gssapi` (extra `gssapi`): requested, and read with the keys of a keytab.

krb5.conf is that of the machine, or the one in KRB5_CONFIG. An acceptor needs no KDC: the ticket names the client. The
keytab is read for each client, so that new keys need no restart. An initiator requests a ticket for each target host
with its initial ticket; both stay in memory.

Invariants: only `Initiator.take` and `Tickets.fetch` contact a KDC, and may block as long as MIT Kerberos does; a
context for a host with a valid ticket does not. The library writes no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.common.errors import OperatorError
from ottla.security.sasl.kerberos_login import KerberosLogin
from ottla.security.sasl.mechanism import AuthenticationFailed

_STATUS = re.compile(r"Major \(\d+\): (.*), Minor \(\d+\): (.*)", re.DOTALL)
_MARGIN_S = 1.0
"""A ticket that ends this soon is treated as expired: it has to arrive in time."""


def _library() -> Any:
    try:
        import gssapi
    except ImportError as error:
        raise OperatorError(
            "GSSAPI needs the library gssapi: run pip install 'ottla[gssapi]', which needs gcc and the headers of "
            "MIT Kerberos (libkrb5-dev)"
        ) from error
    return gssapi


def _keys(gssapi: Any, setting: str, principal: str, keytab: str) -> Any:
    try:
        # Kerberos only: with other mechanisms to choose from the client would negotiate.
        return gssapi.Credentials(
            name=gssapi.Name(principal, gssapi.NameType.kerberos_principal),
            usage="accept",
            mechs=[gssapi.MechType.kerberos],
            store={"keytab": f"FILE:{keytab}"},
        )
    except gssapi.exceptions.GSSError as error:
        raise OperatorError(
            f"{setting}: the keytab {keytab} has no keys of {principal} that can be read ({_words(error)}); create it "
            "with ktadd -k of kadmin"
        ) from error


class Acceptor:
    """Creates contexts for clients of one service."""

    def __init__(self, setting: str, principal: str, keytab: str) -> None:
        """Use the keys of `principal` in the file `keytab`, both from `setting`. Raises OperatorError."""
        self._gssapi = gssapi = _library()
        self._credentials = _keys(gssapi, setting, principal, keytab)

    @property
    def default_realm(self) -> str:
        """The default realm of krb5.conf, empty without one."""
        gssapi = self._gssapi
        try:
            name = gssapi.Name("x", gssapi.NameType.kerberos_principal).canonicalize(gssapi.MechType.kerberos)
        except gssapi.exceptions.GSSError:
            return ""
        return str(name).partition("@")[2]

    def context(self) -> AcceptedContext:
        """A context for one client."""
        return AcceptedContext(self._gssapi, self._credentials)


class Initiator:
    """Requests tickets for one login."""

    def __init__(self, login: KerberosLogin, now_s: Callable[[], float]) -> None:
        """`now_s` returns seconds since the Unix epoch. Does not contact the KDC. Raises OperatorError."""
        self._gssapi = gssapi = _library()
        if login.keytab:
            _keys(gssapi, login.setting, login.principal, login.keytab)
        self._login = login
        self._now_s = now_s
        self._name: Any = None
        if login.principal:
            self._name = gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)
        self._caches: dict[str, float] = {}
        """In memory, with the end of each initial ticket. The library frees none, so caches are reused."""

    def take(self) -> Tickets:
        """Request an initial ticket by the keytab, or read the ticket cache. Raises OperatorError."""
        if not self._login.keytab:
            return self._taken({"ccache": self._login.ticket_cache} if self._login.ticket_cache else {})
        now_s = self._now_s()
        used = next((cache for cache, ends_s in self._caches.items() if ends_s < now_s), None)
        if used is not None:
            try:
                return self._by_keytab(used)
            except OperatorError:
                pass  # for a cache with an expired ticket the library reports only that it is expired
        login = self._login
        return self._by_keytab(f"MEMORY:{login.principal} {login.setting} {len(self._caches)}")

    def _by_keytab(self, cache: str) -> Tickets:
        self._taken({"client_keytab": f"FILE:{self._login.keytab}", "ccache": cache})
        # Without the keytab: with it the library would contact the KDC on its own, during a login.
        tickets = self._taken({"ccache": cache})
        self._caches[cache] = tickets.ends_s
        return tickets

    def _taken(self, store: dict[str, str]) -> Tickets:
        gssapi = self._gssapi
        try:
            credentials = gssapi.Credentials(
                name=self._name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=store or None
            )
            # Also contacts the KDC without a ticket.
            ends_s = self._now_s() + credentials.lifetime
        except gssapi.exceptions.GSSError as error:
            way_out = "its keys, krb5.conf and the KDC" if self._login.keytab else "klist, or create one with kinit"
            raise OperatorError(
                f"{self._login.setting}: no ticket of {self._login.source} ({_words(error)}); check {way_out}"
            ) from error
        return Tickets(gssapi, self._login, credentials, ends_s, self._now_s)


class Tickets:
    """Tickets of one user, based on an initial one that ends at `ends_s`, in seconds since the Unix epoch."""

    def __init__(
        self, gssapi: Any, login: KerberosLogin, credentials: Any, ends_s: float, now_s: Callable[[], float]
    ) -> None:
        self._gssapi = gssapi
        self._login = login
        self._credentials = credentials
        self._now_s = now_s
        self._hosts: dict[str, _Host] = {}
        self.ends_s = ends_s

    def last(self, host: str) -> bool:
        """Whether there is a valid ticket for the service on `host`."""
        known = self._hosts.get(host)
        return known is not None and self._now_s() < known.ends_s - _MARGIN_S

    def fetch(self, host: str) -> None:
        """Request a ticket for the service on `host`. Raises OperatorError."""
        service = self._login.service
        gssapi = self._gssapi
        try:
            name = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
            lifetime_s = self._begin(name, None, None).lifetime
        except gssapi.exceptions.GSSError as error:
            raise OperatorError(
                f"{self._login.setting}: the KDC issued {self._login.source} no ticket for {service}/{host} "
                f"({_words(error)})"
            ) from error
        self._hosts[host] = _Host(name, self._now_s() + lifetime_s)

    def context(self, host: str) -> InitiatedContext:
        """A context for the service on `host`, for which there is a ticket."""
        name = self._hosts[host].name
        return InitiatedContext(self._gssapi, lambda context, token: self._begin(name, context, token))

    def _begin(self, name: Any, context: Any, token: bytes | None) -> Any:
        gssapi = self._gssapi
        flags = [gssapi.RequirementFlag.mutual_authentication, gssapi.RequirementFlag.integrity]
        return gssapi.raw.init_sec_context(
            name, self._credentials, context, gssapi.MechType.kerberos, flags, input_token=token
        )


class _Host(NamedTuple):
    name: Any
    ends_s: float


class _Context:
    """Common part of both sides of a context."""

    __slots__ = ("_context", "_gssapi", "complete")

    def __init__(self, gssapi: Any) -> None:
        self._gssapi = gssapi
        self._context: Any = None
        self.complete = False

    def wrap(self, message: bytes) -> bytes:
        """See `AcceptingContext`."""
        try:
            wrapped: bytes = self._gssapi.raw.wrap(self._context, message, False).message
        except self._gssapi.exceptions.GSSError as error:
            raise _failed(error) from None
        return wrapped

    def unwrap(self, token: bytes) -> bytes:
        """See `AcceptingContext`."""
        try:
            message: bytes = self._gssapi.raw.unwrap(self._context, token).message
        except self._gssapi.exceptions.GSSError as error:
            raise _failed(error) from None
        return message


class AcceptedContext(_Context):
    """Implements `ottla.security.sasl.kerberos.AcceptingContext`."""

    __slots__ = ("_credentials", "_initiator")

    def __init__(self, gssapi: Any, credentials: Any) -> None:
        super().__init__(gssapi)
        self._credentials = credentials
        self._initiator: Any = None

    def step(self, token: bytes) -> bytes:
        """See `AcceptingContext`."""
        try:
            done = self._gssapi.raw.accept_sec_context(token, self._credentials, self._context)
        except self._gssapi.exceptions.GSSError as error:
            raise _failed(error) from None
        self._context, self._initiator, self.complete = done.context, done.initiator_name, not done.more_steps
        return done.token or b""

    def initiator(self) -> str:
        """See `AcceptingContext`."""
        shown: bytes = self._gssapi.raw.display_name(self._initiator, False).name
        try:
            return shown.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("the client's principal is not valid UTF-8") from None


class InitiatedContext(_Context):
    """Implements `ottla.security.sasl.kerberos.InitiatingContext`."""

    __slots__ = ("_begin",)

    def __init__(self, gssapi: Any, begin: Callable[[Any, bytes | None], Any]) -> None:
        super().__init__(gssapi)
        self._begin = begin

    def step(self, token: bytes) -> bytes:
        """See `InitiatingContext`."""
        try:
            done = self._begin(self._context, token or None)
        except self._gssapi.exceptions.GSSError as error:
            raise _failed(error) from None
        self._context, self.complete = done.context, not done.more_steps
        return done.token or b""


def _failed(error: Exception) -> AuthenticationFailed:
    return AuthenticationFailed(f"the ticket or its token is invalid: {_words(error)}")


def _words(error: Exception) -> str:
    """The library's error text, which may contain foreign names: printable and bounded."""
    text = str(error)
    status = _STATUS.fullmatch(text)
    if status is not None:
        major, minor = status.groups()
        text = major if minor in ("", "Success") else minor
    return ascii(text[:300])[1:-1]
