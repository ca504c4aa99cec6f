"""Settings of sign-in with OpenID Connect: client properties `oidc.*`, which only the operator's file can contain.

The names are the console's own: Apache Kafka's `sasl.oauthbearer.*` describe a client with a token of its own, which
would make every browser act as one user.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from ottla.common.errors import OperatorError
from ottla.common.platform.files import read_file
from ottla.common.platform.https import is_private
from ottla.security.sasl.token_source import issuer_tls

PREFIX = "oidc."
ISSUER = PREFIX + "issuer"
CLIENT_ID = PREFIX + "client.id"
SECRET_FILE = PREFIX + "client.secret.file"
SCOPE = PREFIX + "scope"
USER_CLAIM = PREFIX + "user.claim"
NAMES = (ISSUER, CLIENT_ID, SECRET_FILE, SCOPE, USER_CLAIM)
_REQUIRED = NAMES[:3]
_TLS = PREFIX + "ssl."
MAX_SECRET_BYTES = 4 * 1024


class OpenIdSettings(NamedTuple):
    """The issuer, and the console as its client. `place` is the source, for messages."""

    issuer: str
    client_id: str
    client_secret: str
    scope: str = "openid"
    user_claim: str = "sub"
    """Claim of the ID token with the name of the user, as `sasl.oauthbearer.sub.claim.name` of the brokers."""
    tls: ssl.SSLContext | None = None
    """Trust in the issuer; None for the certificates of the system."""
    place: str = ""

    def __repr__(self) -> str:
        """A representation without the secret."""
        return f"<OpenIdSettings {self.issuer} {self.client_id}>"

    @property
    def setting(self) -> str:
        """The setting of the issuer, for messages."""
        return f"{ISSUER} in {self.place}"


def read_openid(properties: Mapping[str, str], place: str) -> OpenIdSettings | None:
    """The settings in client properties; None without any. Reads the file of the secret. Raises OperatorError."""
    given = {name: text.strip() for name, text in properties.items() if name.startswith(PREFIX)}
    if not given:
        return None
    unknown = sorted(name for name in given if name not in NAMES and not name.startswith(_TLS))
    if unknown:
        raise OperatorError(f"{unknown[0]} in {place} is not a setting: use {', '.join(NAMES)} or {_TLS}truststore.*")
    missing = [name for name in _REQUIRED if not given.get(name)]
    if missing:
        raise OperatorError(f"{missing[0]} in {place} is missing: sign-in with an issuer needs {', '.join(_REQUIRED)}")
    issuer, scope = given[ISSUER], given.get(SCOPE) or "openid"
    parts = urlsplit(issuer)
    if not is_private(issuer) or not parts.hostname or parts.query or parts.fragment:
        raise OperatorError(f"{ISSUER} in {place} is {issuer}: set it to the https: URL of the issuer")
    if "openid" not in scope.split():
        raise OperatorError(f"{SCOPE} in {place} is {scope}: add openid, without which the issuer names no user")
    return OpenIdSettings(
        issuer,
        given[CLIENT_ID],
        _secret(given[SECRET_FILE], place),
        scope,
        given.get(USER_CLAIM) or "sub",
        issuer_tls({n.removeprefix(PREFIX): text for n, text in given.items() if n.startswith(_TLS)}, place, read_file),
        place,
    )


def _secret(path: str, place: str) -> str:
    try:
        secret = read_file(path, MAX_SECRET_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(
            f"{SECRET_FILE} in {place} names {path}, which can't be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    if not secret or not secret.isprintable():
        raise OperatorError(f"{SECRET_FILE} in {place} names {path}, which does not contain a secret on one line")
    return secret
