"""Sources of a client's tokens: a file, or the response of an issuer (KIP-768, KIP-1139).

Requests to an issuer follow OAuth's client credentials grant (RFC 6749, 4.4). This module builds requests and parses
responses; its caller reads files and connects. The truststore for the issuer is an option of the login module, such as
`ssl.truststore.location`, as in Apache Kafka.

Not supported: other grants, with assertions (`sasl.oauthbearer.assertion.*`), and `sasl.oauthbearer.header.urlencode`.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlencode, urlsplit

from ottla.common.errors import OperatorError
from ottla.security.contexts import ReadFile, TlsSettings, client_context, read_material
from ottla.security.sasl.oauthbearer import MAX_TOKEN_CHARS

URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE = "sasl.oauthbearer.scope"

LIFE_S = 300.0
"""Refresh interval of a token without an expiry."""
MAX_ANSWER_BYTES = 4 * MAX_TOKEN_CHARS

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
"""As allowed in an HTTP header (RFC 6750); a control character would begin a field of its own in the exchange."""


class Credentials(NamedTuple):
    """Client credentials for an issuer."""

    client_id: str
    client_secret: str
    scope: str = ""

    def __repr__(self) -> str:
        return f"Credentials({self.client_id!r})"


def credentials(get: Callable[[str], str | None], options: Mapping[str, str], what: str) -> Credentials:
    """Credentials from settings, else from a login module's options, as before KIP-1139. Raises OperatorError."""
    client_id = get(CLIENT_ID) or options.get("clientId")
    client_secret = get(CLIENT_SECRET) or options.get("clientSecret")
    if not client_id or not client_secret:
        raise OperatorError(f"{what} names an issuer that needs credentials: set {CLIENT_ID} and {CLIENT_SECRET}")
    return Credentials(client_id, client_secret, get(SCOPE) or options.get("scope") or "")


def issuer_tls(options: Mapping[str, str], place: str, read: ReadFile) -> ssl.SSLContext | None:
    """TLS context for an issuer by the options `ssl.*` of the login module in `place`; None, for the system's trusted
    certificates, without such options. Raises OperatorError."""
    given = {name: text for name, text in options.items() if name.startswith("ssl.")}
    if not given:
        return None
    settings = TlsSettings.parse(given, place)
    return client_context(settings, read_material(settings, read))


def checked_token(text: str, what: str) -> str:
    """A valid token; `what` names its source. Raises OperatorError, which does not show the token."""
    token = text.strip()
    if len(token) > MAX_TOKEN_CHARS or not _TOKEN.fullmatch(token):
        raise OperatorError(f"{what} does not contain a token of at most {MAX_TOKEN_CHARS} characters")
    return token


def path_of(url: str) -> str | None:
    """The path of a file: URL; None for other URLs."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else None


def token_in_file(path: str, what: str, read: Callable[[str, int], bytes]) -> str:
    """Read the token in a file; `read` returns a file of limited size. Raises OperatorError."""
    try:
        data = read(path, MAX_TOKEN_CHARS + 1024)
    except OSError as error:
        raise OperatorError(f"{what} names {path}, which can't be read: {error.strerror}") from error
    return checked_token(data.decode("latin-1"), f"{path} of {what}")


def grant_request(credentials: Credentials) -> tuple[dict[str, str], bytes]:
    """Headers and body of the request to an issuer."""
    secret = f"{credentials.client_id}:{credentials.client_secret}".encode()
    headers = {
        "Authorization": f"Basic {base64.b64encode(secret).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    fields = {"grant_type": "client_credentials"}
    if credentials.scope:
        fields["scope"] = credentials.scope
    return headers, urlencode(fields).encode()


def granted_token(answer: bytes, what: str) -> str:
    """The token in an issuer's response. Raises OperatorError."""
    try:
        token = json.loads(answer)["access_token"]
    except (ValueError, TypeError, KeyError, RecursionError):
        token = None
    if not isinstance(token, str):
        raise OperatorError(f"{what} returned no access_token; set it to the issuer's token endpoint")
    return checked_token(token, what)


def ends_of(token: str, now_s: float) -> float:
    """Expiry of a token received at `now_s`, in seconds since the Unix epoch."""
    end_s = expires_s(token)
    return now_s + LIFE_S if end_s is None else end_s


def expires_s(token: str) -> float | None:
    """Expiry of a JWT, in seconds since the Unix epoch; None if it has none that can be parsed."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        end = claims["exp"]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return None
    if isinstance(end, bool) or not isinstance(end, int | float) or not end < 2**40:
        return None
    return max(0.0, float(end))
