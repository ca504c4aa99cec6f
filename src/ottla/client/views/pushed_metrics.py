"""Clients that push metrics to brokers (KIP-714), read from the Prometheus endpoints of these brokers.

Kafka has no request for pushed metrics: a broker exports them (`ottla_client_info`, `kafka_client_*`).

Invariants: a page is read in pieces and only lines about clients are kept; a page has at most `MAX_PAGE_BYTES`, a line
`MAX_LINE_BYTES`, and reading ends after `MAX_READ_S` however slowly it arrives; redirects are refused, since another
host would get the token.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.common.errors import OperatorError

TIMEOUT_S = 10
"""Time without a byte."""
MAX_READ_S = 30.0
MAX_PAGE_BYTES = 256 * 1024 * 1024
MAX_LINE_BYTES = 64 * 1024
MAX_SERIES = 5_000
"""Series of one client; a broker exports fewer."""
READ_BYTES = 64 * 1024
CLIENT_ID, INSTANCE_ID = "client_id", "client_instance_id"
_INFO = b"ottla_client_info{"
_FAMILY = b"kafka_client_"
_SAMPLE = re.compile(r"kafka_client_([a-zA-Z0-9_]+)\{(.*)\} (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


class MetricsSource(NamedTuple):
    """The metrics of a broker, and the bearer token for them."""

    url: str
    token: str | None = None


class PushedSeries(NamedTuple):
    """One value of a client; `name` is without the prefix that all have."""

    name: str
    labels: dict[str, str]
    value: str


def require_url(url: str, option: str) -> None:
    """Raise OperatorError unless it is an HTTP or HTTPS URL without user and password."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
    except ValueError:
        is_url = False
    if not is_url:
        raise OperatorError(f"{option} {url} is not an http or https URL, such as http://127.0.0.1:9404/metrics")


def pushing_clients(source: MetricsSource) -> Iterator[dict[str, str]]:
    """The labels of each client that pushes to a broker. Raises OperatorError."""
    for line in _lines(source):
        if line.startswith(_INFO):
            yield _labels(line.decode("utf-8", "replace"))


def series_of_client(source: MetricsSource, instance_id: str) -> list[PushedSeries]:
    """The series of one client, in the order of their names, at most `MAX_SERIES`. Raises OperatorError."""
    own = f'{INSTANCE_ID}="{instance_id}"'.encode()
    found: list[PushedSeries] = []
    for line in _lines(source):
        if line.startswith(_FAMILY) and own in line and len(found) < MAX_SERIES:
            match = _SAMPLE.fullmatch(line.decode("utf-8", "replace"))
            labels = {} if match is None else _labels(match[2])
            if match is not None and labels.pop(INSTANCE_ID, None) == instance_id:
                labels.pop(CLIENT_ID, None)
                found.append(PushedSeries(match[1], labels, match[3]))
    return found


def _lines(source: MetricsSource) -> Iterator[bytes]:
    from http.client import HTTPException
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *details: Any) -> None:
            return None

    headers = {} if source.token is None else {"Authorization": f"Bearer {source.token}"}
    try:
        request = Request(source.url, headers=headers)
        with build_opener(NoRedirect).open(request, timeout=TIMEOUT_S) as response:
            yield from _split(response)
    except (OSError, ValueError, HTTPException) as error:
        raise OperatorError(f"the metrics at {source.url} can't be read: {error}") from error


def _split(response: Any) -> Iterator[bytes]:
    """The lines of a response. Raises ValueError beyond a bound."""
    end_s, left, rest = time.monotonic() + MAX_READ_S, MAX_PAGE_BYTES, b""
    while data := response.read1(READ_BYTES):
        left -= len(data)
        *lines, rest = (rest + data).split(b"\n")
        if left < 0 or len(rest) > MAX_LINE_BYTES:
            raise ValueError("the page or a line of it is too long")
        if time.monotonic() > end_s:
            raise ValueError(f"the page was not complete after {MAX_READ_S:.0f} s")
        yield from lines
    yield rest


def _labels(text: str) -> dict[str, str]:
    return {name: _unescaped(value) for name, value in _LABEL.findall(text)}


def _unescaped(value: str) -> str:
    return re.sub(r"\\.", lambda match: _ESCAPED.get(match[0], match[0]), value)
