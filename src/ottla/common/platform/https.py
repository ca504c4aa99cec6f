"""Small documents behind URLs in settings: an issuer's keys and tokens. For files see `files`.

Invariant: a document comes over TLS, or from this machine; a request with a secret follows no redirect.
"""

from __future__ import annotations

from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from ottla.common.errors import OperatorError

TIMEOUT_S = 10.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def is_private(url: str) -> bool:
    """Return whether a third party can neither read nor change the document of `url` on its way."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)


def fetch(
    url: str, what: str, limit: int, tls: HTTPSHandler, headers: Mapping[str, str] = {}, body: bytes | None = None
) -> bytes:
    """Return the response to a GET of `url`, or a POST of `body`: at most `limit` bytes; `what` names the setting.

    `tls` has the trusted certificates. Blocks, for at most `TIMEOUT_S` at each step. Raises OperatorError, for an
    HTTP error `IssuerStatusError`.
    """
    request = Request(url, body, dict(headers), method="GET" if body is None else "POST")
    try:
        with build_opener(tls, _Redirects).open(request, timeout=TIMEOUT_S) as answer:
            data: bytes = answer.read(limit + 1)
    except HTTPError as error:
        error.close()
        raise IssuerStatusError(
            f"{what}: the issuer returned HTTP {error.code}; check the URL, the client id, its secret and the scope",
            error.code,
        ) from None
    except (OSError, ValueError, HTTPException) as error:  # includes URLError
        raise OperatorError(f"{what} can't be read: {getattr(error, 'reason', None) or error}") from error
    if len(data) > limit:
        raise OperatorError(f"{what}: the document is larger than {limit} bytes; check the URL")
    return data


class IssuerStatusError(OperatorError):
    """The issuer returned an HTTP error; `status` is its code."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class _Redirects(HTTPRedirectHandler):
    """Redirects of a request without a secret, to TLS only; any other redirect is an error."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        if req.data is not None or urlsplit(newurl).scheme != "https":
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)
