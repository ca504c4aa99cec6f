"""Tickets of Kerberos, read by the library `gssapi`, the extra of that name, with the keys of a keytab.

The keytab is read again for each client, so that new keys need no restart; krb5.conf is that of the machine, or the
one that KRB5_CONFIG names. Nobody asks a KDC: the ticket says who the client is.
"""

from __future__ import annotations

from typing import Any

from ottla.common.errors import OperatorError
from ottla.security.sasl.mechanism import AuthenticationFailed


class Acceptor:
    """Makes contexts for clients of one service."""

    def __init__(self, setting: str, principal: str, keytab: str) -> None:
        """With the keys of `principal` in the file `keytab`, both of `setting`. Raises OperatorError."""
        try:
            import gssapi
        except ImportError as error:
            raise OperatorError(
                "GSSAPI needs a library that is not there: pip install 'ottla[gssapi]', which needs gcc and the "
                "headers of MIT Kerberos (libkrb5-dev)"
            ) from error
        self._gssapi = gssapi
        try:
            # A ticket is all that counts: with other mechanisms to choose from the client would negotiate.
            self._credentials = gssapi.Credentials(
                name=gssapi.Name(principal, gssapi.NameType.kerberos_principal),
                usage="accept",
                mechs=[gssapi.MechType.kerberos],
                store={"keytab": f"FILE:{keytab}"},
            )
        except gssapi.exceptions.GSSError as error:
            raise OperatorError(
                f"{setting}: the keytab {keytab} has no keys of {principal} that can be read ({_words(error)}); make "
                "it by ktadd -k of kadmin"
            ) from error

    @property
    def default_realm(self) -> str:
        """That of krb5.conf, empty where there is none."""
        gssapi = self._gssapi
        try:
            name = gssapi.Name("x", gssapi.NameType.kerberos_principal).canonicalize(gssapi.MechType.kerberos)
        except gssapi.exceptions.GSSError:
            return ""
        return str(name).partition("@")[2]

    def context(self) -> Context:
        """For one client."""
        return Context(self._gssapi, self._credentials)


class Context:
    """Implements `ottla.security.sasl.kerberos.AcceptingContext`."""

    __slots__ = ("_context", "_credentials", "_gssapi", "_initiator", "complete")

    def __init__(self, gssapi: Any, credentials: Any) -> None:
        self._gssapi = gssapi
        self._credentials = credentials
        self._context: Any = None
        self._initiator: Any = None
        self.complete = False

    def step(self, token: bytes) -> bytes:
        """See `AcceptingContext`."""
        try:
            done = self._gssapi.raw.accept_sec_context(token, self._credentials, self._context)
        except self._gssapi.exceptions.GSSError as error:
            raise self._failed(error) from None
        self._context, self._initiator, self.complete = done.context, done.initiator_name, not done.more_steps
        return done.token or b""

    def initiator(self) -> str:
        """See `AcceptingContext`."""
        shown: bytes = self._gssapi.raw.display_name(self._initiator, False).name
        try:
            return shown.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("the client's principal is no UTF-8") from None

    def wrap(self, message: bytes) -> bytes:
        """See `AcceptingContext`."""
        try:
            wrapped: bytes = self._gssapi.raw.wrap(self._context, message, False).message
        except self._gssapi.exceptions.GSSError as error:
            raise self._failed(error) from None
        return wrapped

    def unwrap(self, token: bytes) -> bytes:
        """See `AcceptingContext`."""
        try:
            message: bytes = self._gssapi.raw.unwrap(self._context, token).message
        except self._gssapi.exceptions.GSSError as error:
            raise self._failed(error) from None
        return message

    def _failed(self, error: Exception) -> AuthenticationFailed:
        return AuthenticationFailed(f"the ticket, or what came with it, does not count: {_words(error)}")


def _words(error: Exception) -> str:
    """What the library says, in which names of a client may stand: printable, and bounded."""
    return ascii(str(error)[:300])[1:-1]
