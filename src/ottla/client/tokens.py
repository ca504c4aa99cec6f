"""Tokens of OAUTHBEARER for tools, by Kafka's client properties: from a file, or from an issuer behind a URL.

A token is kept until four fifths of its life are over. What is secret is sent to `https:`, or to this machine.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ottla.common.errors import OperatorError
from ottla.common.files import read_file
from ottla.security.sasl.oauthbearer import MAX_TOKEN_CHARS
from ottla.security.sasl.token_source import (
    CLIENT_ID,
    CLIENT_SECRET,
    SCOPE,
    URL,
    Credentials,
    expires_s,
    grant_request,
    granted_token,
    path_of,
    token_in_file,
)

FETCH_TIMEOUT_S = 10.0
LIFE_S = 300.0
"""Of a token that does not say when it ends, until it is asked for again."""
USED_SHARE = 0.8
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class TokenSource:
    """Gives a token that is valid now; also the callback `oauth_cb` of confluent-kafka."""

    def __init__(self, url: str, credentials: Credentials | None, what: str) -> None:
        """`what` names the setting in messages. Raises OperatorError."""
        self._path = path_of(url)
        if self._path is None:
            parts = urlsplit(url)
            if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
                raise OperatorError(f"{what} has to begin with file: or https:")
            if credentials is None:
                raise OperatorError(
                    f"{what} names an issuer, who has to be told who asks: set {CLIENT_ID} and {CLIENT_SECRET}"
                )
        self._url = url
        self._credentials = credentials
        self._what = what
        self._token = ""
        self._ends_s = self._again_s = 0.0

    def token(self) -> str:
        """Blocks where there is none that is young enough. Raises OperatorError."""
        now_s = time.time()
        if now_s >= self._again_s:
            self._token = self._read() if self._path is not None else self._ask()
            self._ends_s = expires_s(self._token) or now_s + LIFE_S
            self._again_s = now_s + USED_SHARE * (self._ends_s - now_s)
        return self._token

    def __call__(self, _config: str) -> tuple[str, float]:
        """Token, and when it ends in seconds since the Unix epoch."""
        return self.token(), self._ends_s

    def _read(self) -> str:
        return token_in_file(self._path or "", self._what, read_file)

    def _ask(self) -> str:
        headers, body = grant_request(self._credentials or Credentials("", ""))
        request = Request(self._url, body, headers, method="POST")
        try:
            with build_opener(_NoRedirect).open(request, timeout=FETCH_TIMEOUT_S) as answer:
                return granted_token(answer.read(4 * MAX_TOKEN_CHARS), self._what)
        except HTTPError as error:
            raise OperatorError(
                f"{self._what}: the issuer answers {error.code}; check who asks, and for what"
            ) from error
        except (OSError, URLError, ValueError) as error:
            raise OperatorError(f"{self._what} can't be asked: {getattr(error, 'reason', None) or error}") from error


class _NoRedirect(HTTPRedirectHandler):
    """A secret goes to whom it is for."""

    def redirect_request(self, *_arguments: object) -> None:
        return None


def token_source(properties: Mapping[str, str], options: Mapping[str, str], path: str) -> TokenSource:
    """By the client properties of the file `path`, and the options of their login module. Raises OperatorError."""
    what = f"{URL} in {path}"
    url = properties.get(URL, "").strip()
    if not url:
        raise OperatorError(f"OAUTHBEARER needs a token: set {what} to a file: or https: URL")
    client_id = properties.get(CLIENT_ID) or options.get("clientId")
    client_secret = properties.get(CLIENT_SECRET) or options.get("clientSecret")
    scope = properties.get(SCOPE) or options.get("scope") or ""
    credentials = Credentials(client_id, client_secret, scope) if client_id and client_secret else None
    return TokenSource(url, credentials, what)
