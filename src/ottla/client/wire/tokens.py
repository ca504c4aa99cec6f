"""OAUTHBEARER tokens for tools, by Kafka's client properties: from a file, or from an issuer's URL.

A token is reused until four fifths of its lifetime are over. Secrets are sent only to `https:` or to this machine.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from urllib.request import HTTPSHandler

from ottla.common.errors import OperatorError
from ottla.common.platform.files import read_file
from ottla.common.platform.https import fetch, is_private
from ottla.security.sasl.refresh import renewal_s
from ottla.security.sasl.token_source import (
    MAX_ANSWER_BYTES,
    URL,
    credentials,
    ends_of,
    grant_request,
    granted_token,
    issuer_tls,
    path_of,
    token_in_file,
)


class TokenSource:
    """Returns a valid token; also the callback `oauth_cb` of confluent-kafka."""

    def __init__(self, properties: Mapping[str, str], options: Mapping[str, str], place: str) -> None:
        """From client properties in `place`, and the options of their login module. Raises OperatorError."""
        url, what = properties.get(URL, "").strip(), f"{URL} in {place}"
        if not url:
            raise OperatorError(f"OAUTHBEARER needs a token: set {what} to a file: or https: URL")
        self._path = path_of(url)
        if self._path is None:
            if not is_private(url):
                raise OperatorError(f"{what} must start with file: or https:")
            self._request = grant_request(credentials(properties.get, options, what))
            self._tls = HTTPSHandler(context=issuer_tls(options, f"sasl.jaas.config in {place}", read_file))
        self._url = url
        self._what = what
        self._token = ""
        self._ends_s = self._again_s = 0.0

    def token(self) -> str:
        """A token; blocks if a new one is needed. Raises OperatorError."""
        now_s = time.time()
        if now_s >= self._again_s:
            self._token = self._ask() if self._path is None else token_in_file(self._path, self._what, read_file)
            self._ends_s = ends_of(self._token, now_s)
            self._again_s = renewal_s(now_s, self._ends_s)
        return self._token

    def __call__(self, _config: str) -> tuple[str, float]:
        """The token and its expiry time in seconds since the Unix epoch."""
        return self.token(), self._ends_s

    def _ask(self) -> str:
        answer = fetch(self._url, self._what, MAX_ANSWER_BYTES, self._tls, *self._request)
        return granted_token(answer, self._what)
