"""Usage and throttle times of clients, from the Prometheus metrics of the brokers.

Kafka has no request for them: a broker measures them for clients with quotas and exports them as metrics
(`kafka_server_produce_byte_rate` and others, with the labels `user` and `client_id`).

Invariants: a response is bounded by `MAX_TEXT_BYTES`; lines that are not samples of these metrics are ignored.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.client.wire.connection import parse_bootstrap_servers
from ottla.common.errors import OttlaError
from ottla.common.platform.endpoint import format_address

MAX_TEXT_BYTES = 64 * 1024 * 1024
_SAMPLE = re.compile(rb"kafka_server_(produce|fetch|request)_(byte_rate|request_time|throttle_time)\{([^}\n]*)\} (\S+)")
_LABEL = re.compile(rb'(user|client_id)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


class MetricsUnreachable(OttlaError):
    """The metrics of a broker could not be read; the message names the address and the reason."""


class ClientUsage(NamedTuple):
    """One user, client id, or both; sums over all brokers, except the throttle time: that of the slowest."""

    user: str
    client_id: str
    produced_bytes_per_s: float = 0.0
    fetched_bytes_per_s: float = 0.0
    request_percent: float = 0.0
    throttle_ms: float = 0.0


def metrics_addresses(text: str) -> list[tuple[str, int]]:
    """The addresses in `HOST:PORT,...`. Raises OperatorError."""
    return parse_bootstrap_servers(text, default_port=None)


def read_metrics(address: tuple[str, int], token: str | None, timeout_s: float) -> bytes:
    """The metrics of one broker as text. Raises MetricsUnreachable."""
    place = format_address(*address)
    connection = http.client.HTTPConnection(*address, timeout=timeout_s)
    try:
        connection.request("GET", "/metrics", headers={} if token is None else {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        if response.status != http.client.OK:
            hint = ": give the token with --metrics-token-file" if response.status == http.client.UNAUTHORIZED else ""
            raise MetricsUnreachable(f"metrics of {place}: HTTP status {response.status}{hint}")
        text = response.read(MAX_TEXT_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        raise MetricsUnreachable(f"metrics of {place}: {error or type(error).__name__}") from error
    finally:
        connection.close()
    if len(text) > MAX_TEXT_BYTES:
        raise MetricsUnreachable(f"metrics of {place}: the response is longer than {MAX_TEXT_BYTES} bytes")
    return text


def client_usages(texts: Iterable[bytes]) -> list[ClientUsage]:
    """The clients in the metrics of several brokers."""
    found: dict[tuple[str, str], ClientUsage] = {}
    for text in texts:
        for kind, measure, labels, number in _SAMPLE.findall(text):
            names = {name.decode(): _unescape(value.decode(errors="replace")) for name, value in _LABEL.findall(labels)}
            key = names.get("user", ""), names.get("client_id", "")
            try:
                value = float(number)
            except ValueError:
                continue
            if value == value and any(key):
                found[key] = _add(found.get(key, ClientUsage(*key)), kind, measure, value)
    return list(found.values())


def _add(usage: ClientUsage, kind: bytes, measure: bytes, value: float) -> ClientUsage:
    if measure == b"throttle_time":
        return usage._replace(throttle_ms=max(usage.throttle_ms, value))
    if kind == b"produce":
        return usage._replace(produced_bytes_per_s=usage.produced_bytes_per_s + value)
    if kind == b"fetch":
        return usage._replace(fetched_bytes_per_s=usage.fetched_bytes_per_s + value)
    return usage._replace(request_percent=usage.request_percent + value)


def _unescape(text: str) -> str:
    return re.sub(r"\\.", lambda match: _ESCAPES.get(match[0], match[0]), text)


def read_usages(
    addresses: Sequence[tuple[str, int]], token: str | None, timeout_s: float
) -> tuple[list[ClientUsage], list[str]]:
    """The clients of all brokers, and a sentence for each broker whose metrics could not be read."""
    texts, problems = [], []
    for address in addresses:
        try:
            texts.append(read_metrics(address, token, timeout_s))
        except MetricsUnreachable as error:
            problems.append(str(error))
    return client_usages(texts), problems
