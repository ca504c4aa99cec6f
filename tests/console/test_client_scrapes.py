"""Metrics of clients from endpoints that are slow, down, too large or hostile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.views import pushed_metrics
from ottla.client.views.pushed_metrics import MetricsSource, PushedSeries, require_url
from ottla.common.errors import OperatorError
from ottla.console.client_scrapes import LIST_S, ClientScrapes

from .browsing import ManualClock
from .metrics_server import MetricsServer, info, sample, serving
from .test_parts import ATTACKS

DOWN = MetricsSource("http://127.0.0.1:1/metrics")


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with serving() as server:
        server.text = info("app", "one", group_id="readers")
        yield server


def scrapes(*sources: MetricsSource, clock: ManualClock | None = None) -> ClientScrapes:
    return ClientScrapes(sources, clock or ManualClock())


def test_endpoint_that_is_down_hides_no_other(server: MetricsServer) -> None:
    found = scrapes(DOWN, MetricsSource(server.url)).clients()
    assert [(each.client_id, each.instance_id, each.labels) for each in found.clients] == [
        ("app", "one", {"group_id": "readers"})
    ]
    (problem,) = found.problems
    assert problem.startswith(f"the metrics at {DOWN.url} can't be read: ")


def test_list_is_reused_for_some_seconds(server: MetricsServer) -> None:
    clock = ManualClock()
    console = scrapes(MetricsSource(server.url), clock=clock)
    for _ in range(3):
        console.clients()
    assert len(server.tokens) == 1
    clock.now_s += LIST_S
    console.clients()
    assert len(server.tokens) == 2


def test_token_goes_to_the_named_host_only(server: MetricsServer) -> None:
    with serving() as other:
        source = MetricsSource(server.url, "secret")
        scrapes(source).clients()
        server.target = other.url
        found = scrapes(source).clients()
    assert server.tokens == ["Bearer secret"] * 2
    assert other.tokens == []
    assert "302" in found.problems[0]


@pytest.mark.parametrize(
    ("bound", "value", "reason"),
    [
        ("MAX_PAGE_BYTES", 100, "is too long"),
        ("MAX_LINE_BYTES", 100, "is too long"),
        ("MAX_READ_S", -1.0, "was not complete"),
    ],
)
def test_page_beyond_a_bound_is_not_read_to_its_end(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch, bound: str, value: float, reason: str
) -> None:
    monkeypatch.setattr(pushed_metrics, bound, value)
    server.text = "x" * 1_000
    (problem,) = scrapes(MetricsSource(server.url)).clients().problems
    assert reason in problem


@pytest.mark.parametrize("attack", [*ATTACKS, 'a"} 1\nkafka_client_x{client_instance_id="one"} 2'])
def test_labels_are_read_back_exactly(server: MetricsServer, attack: str) -> None:
    server.text = info(attack, "one", client_software_name=attack)
    server.text += sample("sent_total", attack, "one", 5, {"t": attack})
    server.text += sample("sent_total", attack, "two", 7, {})
    console = scrapes(MetricsSource(server.url))
    (client,) = console.clients().clients
    assert (client.client_id, client.labels) == (attack, {"client_software_name": attack})
    assert console.series(client) == [PushedSeries("sent_total", {"t": attack}, "5")]


@pytest.mark.parametrize("url", ["ftp://a/metrics", "http://", "http://user:secret@a/metrics", "metrics", "http://[a"])
def test_url_that_is_not_of_http_is_refused(url: str) -> None:
    with pytest.raises(OperatorError, match="--metrics-url"):
        require_url(url, "--metrics-url")
