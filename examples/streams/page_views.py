"""A generated day of a news site, from a seed, in three topics: impressions, page views, and the server's log.

    python page_views.py [--views 200000] [--seed 1] [--bootstrap-server 127.0.0.1:9092]

`views`        JSON, keyed by address: a line of nginx's log by the `log_format` in README.md
`impressions`  JSON, keyed by user: a page that was offered to a user on another page
`access`       the same views as lines in the combined log format, keyed by address

It is as untidy as real traffic: views come as much as five minutes late and out of order, producers send some twice
after a retry, crawlers request hundreds of missing pages, and after lunch the servers are slow and fail. After the day
come the lines of hosts that were disconnected for hours, and the first view of the next day, which moves the watermark
past the end of the day.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

DAY = np.datetime64("2026-03-02T00:00:00")
DAY_S = 86_400
NEXT_DAY_S = 36 * 3600
"""When the first view after that day is; in seconds from its midnight as all times here."""

PAGES = 400
SECTIONS = ("world", "science", "sport", "culture", "market", "weather", "letters", "puzzles")
CRAWLERS = 3
CRAWL_S = 600
SLOW_S = (14 * 3600, 14 * 3600 + 1200)
"""When the servers are slow and fail."""
MAX_LATE_S = 300
CUT_OFF_BEFORE_S = 18 * 3600
"""The latest views are older than this, so their windows are closed by then."""
NONE = -1
"""The user of a view without one, and the impression of a view that came from none."""

PARTITIONS = 6
LINES_AT_ONCE = 200_000

Ints = npt.NDArray[np.int64]
Record = tuple[bytes, bytes]
"""Key and value."""


@dataclass(frozen=True, slots=True)
class Views:
    """One entry a view, in the order of arrival."""

    number: Ints
    """Identifies a view; a view that was sent twice occurs twice."""
    at: Ints
    """Seconds from DAY."""
    arrived: Ints
    user: Ints
    client: Ints
    """Below CRAWLERS those of crawlers."""
    page: Ints
    status: Ints
    milliseconds: Ints
    size_bytes: Ints
    shown: Ints
    """Number of the impression that was followed, or NONE."""
    again: Ints
    """1 where the view came before."""

    def take(self, chosen: npt.NDArray[np.intp] | slice) -> Views:
        return Views(*(getattr(self, name)[chosen] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Impressions:
    """One entry for each page that was offered, in the order of arrival."""

    number: Ints
    at: Ints
    arrived: Ints
    user: Ints
    page: Ints


@dataclass(frozen=True, slots=True)
class Day:
    views: Views
    impressions: Impressions

    def parts(self, count: int) -> list[dict[str, Iterator[Record]]]:
        """Topic -> records in `count` parts by time of arrival; the last part arrives after the end of the day."""
        of_views, of_impressions = (
            np.searchsorted(each.arrived, _borders(self.views.arrived, count))
            for each in (self.views, self.impressions)
        )
        return [
            {
                "views": _records(partial(_view_lines, self.views), *views),
                "impressions": _records(partial(_impression_lines, self.impressions), *impressions),
                "access": _records(partial(_access_lines, self.views), *views),
            }
            for views, impressions in zip(pairwise(of_views), pairwise(of_impressions), strict=True)
        ]


def a_day(count: int, seed: int = 1) -> Day:
    """`count` views and about three quarters as many impressions."""
    rng = np.random.default_rng(seed)
    crawled, doubled, late = count // 100, count // 200, count // 1000
    users = max(count // 25, 100)
    visits = _visits(rng, count - crawled - doubled - 1, users)
    views = _joined(visits, _crawls(rng, crawled))
    impressions, shown = _impressions(rng, visits, users, count)
    fields = {name: getattr(views, name) for name in Views.__slots__} | {"number": np.arange(len(views.at))}
    fields["shown"] = np.concatenate([shown, np.full(crawled, NONE)])
    fields["arrived"] = fields["at"] + _delays(rng, len(views.at))
    chosen = rng.permutation(len(visits.at))
    cut_off = chosen[: late * 2][visits.at[chosen[: late * 2]] < CUT_OFF_BEFORE_S][:late]
    fields["arrived"][cut_off] = NEXT_DAY_S - 1
    views = Views(**fields)
    again = views.take(chosen[late * 2 : late * 2 + doubled])
    again.arrived[:] += rng.integers(1, 120, doubled)
    again.again[:] = 1
    views = _joined(views, again, _first_view(len(views.at)))
    return Day(views.take(np.argsort(views.arrived, kind="stable")), impressions)


def _borders(arrived: Ints, parts: int) -> Ints:
    """Times between parts of about the same size, of which the last part arrives on the next day."""
    within = arrived[arrived < NEXT_DAY_S - 1]
    inner = within[np.arange(1, parts) * len(within) // parts]
    return np.array([np.iinfo(np.int64).min, *inner, NEXT_DAY_S - 1, np.iinfo(np.int64).max])


def _joined(*several: Views) -> Views:
    return Views(*(np.concatenate([getattr(each, name) for each in several]) for name in Views.__slots__))


def _visits(rng: np.random.Generator, count: int, users: int) -> Views:
    """Readers: visits of some views each, most in the evening; one in five visits is not signed in."""
    lengths = rng.geometric(1 / 6, count)
    ends = np.cumsum(lengths)
    visits = int(np.searchsorted(ends, count)) + 1
    visit = np.repeat(np.arange(visits), lengths[:visits])[:count]
    first = np.flatnonzero(np.diff(visit, prepend=-1))
    pauses = rng.exponential(90, count).astype(np.int64)
    pauses[first] = 0
    passed = np.cumsum(pauses)
    weights = 1.2 - np.cos((np.arange(24) - 3) * np.pi / 12)
    hours = rng.choice(24, visits, p=weights / weights.sum())
    starts = hours * 3600 + rng.integers(0, 3600, visits)
    at = starts[visit] + passed - passed[first][visit]
    reader = _by_rank(rng, users, visits, 0.3)
    signed_in = rng.random(visits) < 0.8
    slow = (at >= SLOW_S[0]) & (at < SLOW_S[1])
    status = rng.choice([200, 304, 301, 404, 500], count, p=[0.93, 0.03, 0.01, 0.025, 0.005])
    status[slow & (rng.random(count) < 0.15)] = 503
    milliseconds = rng.lognormal(np.log(80), 0.6, count) * np.where(slow, 8, 1)
    return Views(
        number=np.zeros(count, np.int64),
        at=at,
        arrived=at,
        user=np.where(signed_in, reader, NONE)[visit],
        client=(np.where(signed_in, reader, users + rng.integers(0, users, visits)) + CRAWLERS)[visit],
        page=_by_rank(rng, PAGES, count, 1.0),
        status=status,
        milliseconds=np.clip(milliseconds.astype(np.int64), 1, MAX_MILLISECONDS),
        size_bytes=np.where(status == 304, 0, rng.integers(200, 50_000, count)),
        shown=np.full(count, NONE),
        again=np.zeros(count, np.int64),
    )


def _crawls(rng: np.random.Generator, count: int) -> Views:
    """Each crawler asks for its share within ten minutes."""
    client = np.arange(count) % CRAWLERS
    at = rng.integers(0, DAY_S - CRAWL_S, CRAWLERS)[client] + rng.integers(0, CRAWL_S, count)
    return Views(
        number=np.zeros(count, np.int64),
        at=at,
        arrived=at,
        user=np.full(count, NONE),
        client=client,
        page=rng.integers(0, PAGES, count),
        status=rng.choice([200, 404], count, p=[0.3, 0.7]),
        milliseconds=rng.integers(5, 50, count),
        size_bytes=rng.integers(200, 2_000, count),
        shown=np.full(count, NONE),
        again=np.zeros(count, np.int64),
    )


def _first_view(number: int) -> Views:
    """Of the next day."""
    one = {name: np.zeros(1, np.int64) for name in Views.__slots__}
    one |= {"number": one["number"] + number, "at": one["at"] + NEXT_DAY_S, "arrived": one["arrived"] + NEXT_DAY_S}
    one |= {"client": one["client"] + CRAWLERS, "status": one["status"] + 200, "shown": one["shown"] + NONE}
    return Views(**one)


def _impressions(rng: np.random.Generator, visits: Views, users: int, count: int) -> tuple[Impressions, Ints]:
    """(impressions, the one that each view followed): a third of them were, by a view within five minutes."""
    followed = np.flatnonzero((visits.user != NONE) & (rng.random(len(visits.at)) < 0.3))
    unseen = count // 2
    at = np.concatenate([visits.at[followed] - rng.integers(1, 300, len(followed)), rng.choice(visits.at, unseen)])
    user = np.concatenate([visits.user[followed], rng.integers(0, users, unseen)])
    page = np.concatenate([visits.page[followed], _by_rank(rng, PAGES, unseen, 0.7)])
    number = np.arange(len(at))
    shown = np.full(len(visits.at), NONE)
    shown[followed] = number[: len(followed)]
    arrived = at + _delays(rng, len(at))
    first = (len(number), NEXT_DAY_S, NEXT_DAY_S, 0, 0)
    columns = [np.append(column, one) for column, one in zip((number, at, arrived, user, page), first, strict=True)]
    order = np.argsort(columns[2], kind="stable")
    return Impressions(*(column[order] for column in columns)), shown


def _by_rank(rng: np.random.Generator, kinds: int, count: int, steepness: float) -> Ints:
    """Zipf's law: the k-th most popular has a share of 1/k, to the power of `steepness`."""
    shares = np.arange(1, kinds + 1) ** -steepness
    return rng.choice(kinds, count, p=shares / shares.sum())


def _delays(rng: np.random.Generator, count: int) -> Ints:
    """Seconds until arrival: a moment for most, minutes for views without a connection."""
    delays = rng.exponential(1, count).astype(np.int64)
    offline = rng.random(count) < 0.02
    delays[offline] += rng.integers(0, MAX_LATE_S, int(offline.sum()))
    return delays


MAX_MILLISECONDS = 60_000
_PAGE_NAMES = pa.array(["/", *(f"/{SECTIONS[rank % len(SECTIONS)]}/{rank}" for rank in range(1, PAGES))])
_SECONDS = pa.array([f"{number / 1000:.3f}" for number in range(MAX_MILLISECONDS + 1)])
_BROWSERS = pa.array(
    [
        "ExampleBot/2.1 (+http://www.example.com/bot.html)",
        "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148",
    ]
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _records(lines: Callable[[slice], tuple[pa.Array, pa.Array]], start: int, end: int) -> Iterator[Record]:
    """The entries from `start` to before `end`, made into keys and values a few at a time."""
    for begin in range(start, end, LINES_AT_ONCE):
        keys, values = lines(slice(begin, min(begin + LINES_AT_ONCE, end)))
        yield from zip(keys.cast(pa.binary()).to_pylist(), values.cast(pa.binary()).to_pylist(), strict=True)


def _view_lines(views: Views, chosen: slice) -> tuple[pa.Array, pa.Array]:
    some = views.take(chosen)
    user, client = _names("reader-", some.user), _addresses(some.client)
    return client, _glued(
        '{"id":"', _names("view-", some.number), '","at":"', _times(some.at), '","user":"', user, '","client":"',
        client, '","page":"', _PAGE_NAMES.take(pa.array(some.page)), '","status":', _text(some.status), ',"seconds":',
        _SECONDS.take(pa.array(some.milliseconds)), ',"bytes":', _text(some.size_bytes), ',"shown":"',
        _names("shown-", some.shown), '"}',
    )  # fmt: skip


def _impression_lines(impressions: Impressions, chosen: slice) -> tuple[pa.Array, pa.Array]:
    user = _names("reader-", impressions.user[chosen])
    return user, _glued(
        '{"id":"', _names("shown-", impressions.number[chosen]), '","at":"', _times(impressions.at[chosen]),
        '","user":"', user, '","page":"', _PAGE_NAMES.take(pa.array(impressions.page[chosen])), '"}',
    )  # fmt: skip


def _access_lines(views: Views, chosen: slice) -> tuple[pa.Array, pa.Array]:
    """The log is shipped once, so no line is there twice."""
    some = views.take(chosen)
    some = some.take(np.flatnonzero(some.again == 0))
    client = _addresses(some.client)
    browser = np.where(some.client < CRAWLERS, 0, 1 + some.client % (len(_BROWSERS) - 1))
    return client, _glued(
        client, " - - [", _times(some.at, as_log=True), '] "GET ', _PAGE_NAMES.take(pa.array(some.page)), ' HTTP/1.1" ',
        _text(some.status), " ", _text(some.size_bytes), ' "-" "', _BROWSERS.take(pa.array(browser)), '"',
    )  # fmt: skip


def _glued(*parts: str | pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _text(numbers: Ints) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def _names(prefix: str, numbers: Ints) -> pa.Array:
    return pc.if_else(pa.array(numbers != NONE), _glued(prefix, _text(numbers)), "")


def _addresses(clients: Ints) -> pa.Array:
    """Of crawlers in a network of their own."""
    readers = _glued("10.", _text(clients >> 16), ".", _text(clients >> 8 & 255), ".", _text(clients & 255))
    return pc.if_else(pa.array(clients < CRAWLERS), _glued("203.0.113.", _text(clients + 1)), readers)


def _times(seconds: Ints, *, as_log: bool = False) -> pa.Array:
    """Each second that occurs is written once."""
    unique, which = np.unique(seconds, return_inverse=True)
    texts = np.datetime_as_string(DAY + unique.astype("timedelta64[s]"))
    if as_log:
        named = [f"{text[8:10]}/{_MONTHS[int(text[5:7]) - 1]}/{text[:4]}:{text[11:]} +0000" for text in texts]
    else:
        named = [f"{text}+00:00" for text in texts]
    return pa.array(named).take(pa.array(which))


def produce(bootstrap_servers: str, topics: Mapping[str, Iterator[Record]]) -> dict[str, int]:
    """All records, by an idempotent producer; gives the number for each topic. Raises RuntimeError if some are lost."""
    from confluent_kafka import Producer

    settings = {"compression.type": "zstd", "enable.idempotence": True, "linger.ms": 20, "batch.num.messages": 100_000}
    producer = Producer({"bootstrap.servers": bootstrap_servers, **settings, "queue.buffering.max.messages": 500_000})
    counts = {}
    for topic, records in topics.items():
        count = 0
        for key, value in records:
            count += 1
            while True:
                try:
                    producer.produce(topic, value, key)
                except BufferError:
                    producer.poll(0.1)
                else:
                    break
        counts[topic] = count
    if left := producer.flush(60):
        raise RuntimeError(f"{left:,} records were not delivered to {bootstrap_servers} within a minute")
    return counts


def create_topics(bootstrap_servers: str, *names: str) -> None:
    """Those that are not there yet."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    missing = set(names) - set(admin.list_topics(timeout=10).topics)
    for done in admin.create_topics([NewTopic(name, PARTITIONS) for name in missing]).values() if missing else ():
        done.result(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--views", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    arguments = parser.parse_args()
    day = a_day(arguments.views, arguments.seed)
    today, next_day = day.parts(1)
    create_topics(arguments.bootstrap_server, *today)
    for name, part in (("the day", today), ("records after its end", next_day)):
        counts = produce(arguments.bootstrap_server, part)
        print(f"{name}: " + ", ".join(f"{count:,} to {topic}" for topic, count in counts.items()))


if __name__ == "__main__":
    main()
