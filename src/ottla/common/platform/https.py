"""Small documents behind URLs that settings name: an issuer's keys and tokens. Those in files: `files`.

Invariant: what is asked for comes by TLS all the way, or from this machine; a request that brings a secret follows
nobody elsewhere.
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
    """Whether nobody reads or changes on the way what is behind `url`."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)


def fetch(
    url: str, what: str, limit: int, tls: HTTPSHandler, headers: Mapping[str, str] = {}, body: bytes | None = None
) -> bytes:
    """What a GET of `url` gives, or a POST of `body`: at most `limit` bytes; `what` names the setting in messages.

    `tls` says who is trusted. Blocks, for `TIMEOUT_S` at each step. Raises OperatorError.
    """
    request = Request(url, body, dict(headers), method="GET" if body is None else "POST")
    try:
        with build_opener(tls, _Redirects).open(request, timeout=TIMEOUT_S) as answer:
            data: bytes = answer.read(limit + 1)
    except HTTPError as error:
        error.close()
        raise OperatorError(f"{what}: the issuer answers {error.code}; check who asks, and for what") from None
    except (OSError, ValueError, HTTPException) as error:  # URLError is of the first
        raise OperatorError(f"{what} can't be read: {getattr(error, 'reason', None) or error}") from error
    if len(data) > limit:
        raise OperatorError(f"{what} leads to more than {limit} bytes, which is too much")
    return data


class _Redirects(HTTPRedirectHandler):
    """Of a request without a secret, to TLS; the answer to any other is the redirect itself, an error."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        if req.data is not None or urlsplit(newurl).scheme != "https":
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)
