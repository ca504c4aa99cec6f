"""Generated page views in combined log format, with the distribution of real traffic, reproducible by seed.

Pages and clients follow Zipf's law (the k-th most popular gets a share of 1/k), views follow the hours of a day.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

PAGE_COUNT = 400
CLIENT_COUNT = 5_000
CHUNK = 10_000
START = datetime(2026, 3, 2, tzinfo=UTC)
DEFAULT_SEED = 20260302

_SECTIONS = ("products", "articles", "docs", "search", "users", "images", "cart", "help")
_STATUS_CODES = (200, 200, 200, 200, 200, 200, 200, 304, 301, 404, 500)
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Safari/605.1.15",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148",
    "ExampleBot/2.1 (+http://www.example.com/bot.html)",
)


def page_views(count: int, seed: int = DEFAULT_SEED) -> Iterator[bytes]:
    """`count` lines without line ends, over one day, in order of time."""
    rng = random.Random(seed)
    pages = _pages(rng)
    clients = [f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(1, 255)}" for _ in range(CLIENT_COUNT)]
    page_weights, client_weights = _zipf(PAGE_COUNT), _zipf(CLIENT_COUNT)
    times = _times(count)
    made = 0
    while made < count:
        size = min(CHUNK, count - made)
        chosen = zip(
            rng.choices(clients, cum_weights=client_weights, k=size),
            rng.choices(pages, cum_weights=page_weights, k=size),
            rng.choices(_STATUS_CODES, k=size),
            rng.choices(_AGENTS, k=size),
            itertools.islice(times, size),
            strict=True,
        )
        for client, page, status, agent, instant in chosen:
            size_bytes = 0 if status == 304 else rng.randrange(200, 50_000)
            yield (
                f'{client} - - [{instant}] "GET {page} HTTP/1.1" {status} {size_bytes} '
                f'"http://www.example.com/" "{agent}"'
            ).encode()
        made += size


def _pages(rng: random.Random) -> list[str]:
    pages = ["/", "/favicon.ico", "/style.css"]
    while len(pages) < PAGE_COUNT:
        section = _SECTIONS[rng.randrange(len(_SECTIONS))]
        pages.append(f"/{section}/{len(pages)}" if len(pages) % 5 else f"/{section}?page={len(pages)}")
    return pages


def _zipf(count: int) -> list[float]:
    """Cumulative weights 1, 1 + 1/2, 1 + 1/2 + 1/3, ..."""
    return list(itertools.accumulate(1 / rank for rank in range(1, count + 1)))


def _times(count: int) -> Iterator[str]:
    """The log's time field for each of `count` views: few at night, most in the evening."""
    weights = [1.2 - math.cos((hour - 3) * math.pi / 12) for hour in range(24)]
    total = sum(weights)
    passed = 0
    for hour in range(24):
        until = count if hour == 23 else round(count * sum(weights[: hour + 1]) / total)
        for number in range(until - passed):
            instant = START + timedelta(hours=hour, seconds=3600 * number // (until - passed))
            yield instant.strftime("%d/%b/%Y:%H:%M:%S +0000")
        passed = until
