"""Generated server logs: lines of an access log and status documents of a proxy, equal for equal seeds.

Addresses and host names are those reserved for documentation (RFC 5737, RFC 3849, RFC 2606). The lines contain
typical irregularities: missing sizes, escaped quotes, requests that are not HTTP, times out of order.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2015, 5, 18, 7, 5, tzinfo=UTC)
AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:30.0) Gecko/20100101 Firefox/30.0",
    "Mozilla/5.0 (compatible; Examplebot/2.1; +http://www.example.com/bot.html)",
    'Example \\"Reader\\" 4.2 (feeds)',
    "-",
)
PATHS = ("/", "/index.html", "/images/logo.png", "/blog/tags/log?flav=rss20", "/blog/a%20b", "/files/archive.tar.gz")
ODD_REQUESTS = ("-", "GET /", "\\x16\\x03\\x01", 'GET /\\"quoted\\" HTTP/1.1')
SCANNER = "203.0.113.9"
"""Requests missing pages so often that it causes alerts."""


def access_lines(count: int, seed: int = 1) -> list[bytes]:
    """`count` lines in the combined format, a few in the common one, over about eight hours."""
    rng = random.Random(seed)
    clients = [f"192.0.2.{number}" for number in range(60)] + [f"2001:db8::{number:x}" for number in range(20)]
    lines = []
    for number in range(count):
        at = START + timedelta(seconds=number * 28_800 // count + rng.randint(-30, 30))
        if count * 2 // 5 <= number < count // 2:
            lines.append(_line(rng, SCANNER, START + timedelta(seconds=11_520 + number % 400), 404))
        else:
            lines.append(_line(rng, rng.choice(clients), at, rng.choice((200, 200, 200, 206, 301, 304, 404, 500))))
    return lines


def _line(rng: random.Random, client: str, at: datetime, status: int) -> bytes:
    size = "-" if status == 304 else str(rng.randrange(100_000))
    request = f"GET {rng.choice(PATHS)} HTTP/1.{rng.randint(0, 1)}"
    if rng.random() < 0.02:
        request, status = rng.choice(ODD_REQUESTS), 400
    line = f'{client} - - [{at:%d/%b/%Y:%H:%M:%S} +0000] "{request}" {status} {size}'
    if rng.random() > 0.05:
        line += f' "{rng.choice(("-", "http://www.example.org/search?q=log"))}" "{rng.choice(AGENTS)}"'
    return line.encode()


def status_documents(count: int, seed: int = 1) -> list[bytes]:
    """`count` nested documents, one a minute, by two workers in turn; fields that only some documents have."""
    return [json.dumps(document, separators=(",", ":")).encode() for document in _documents(count, random.Random(seed))]


def _documents(count: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    total, refused = 18_000_000, 2_800
    for number in range(count):
        total += rng.randrange(1, 1_000)
        refused += rng.randrange(3)
        yield {
            "version": 6,
            "address": "192.0.2.64",
            "timestamp": 1_446_249_499_322 + number * 61_000,
            "pid": 64_856 + number % 2,
            "connections": {"accepted": total // 2, "dropped": 0, "active": rng.randrange(1, 9)},
            "requests": {"total": total, "current": rng.randrange(4)},
            "server_zones": {
                f"{name}.example.org": {
                    "processing": rng.randrange(2),
                    "responses": {"2xx": total // 3, "4xx": refused, "5xx": 5},
                    "sent": total * 4_321,
                }
                for name in ("www", "files")
            },
            "upstreams": {
                "backend": {
                    "peers": [
                        {"id": peer, "server": f"198.51.100.{peer}:8080", "backup": bool(peer)}
                        | ({"max_conns": 42} if peer else {})
                        | {"health_checks": {"checks": number, "fails": 0} | ({"last_passed": True} if number else {})}
                        for peer in range(3)
                    ],
                    "keepalive": 0,
                }
            },
        }
