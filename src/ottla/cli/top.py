"""`ottla top`: brokers, topics by rate, groups by lag and slow clients, refreshed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from ottla.cli.command import (
    CLIENT_ID,
    Command,
    connection_options,
    print_json,
    print_table,
    run_until_terminated,
    security,
)
from ottla.cli.metrics_token import read_token
from ottla.cli.times import Seconds
from ottla.common.errors import OperatorError

if TYPE_CHECKING:
    from ottla.cli.top_views import TopReading, View
    from ottla.client.admin.cluster import Cluster

VIEW_NAMES = ("brokers", "topics", "groups", "clients")
TIMEOUT_S = 3.0
"""Limit of one request, so that a broker that hangs delays a refresh by seconds only."""


@click.command(
    cls=Command,
    examples=(
        "ottla top -b localhost:9092                 # 1-4 or Tab changes the view, s the order, q quits",
        "ottla top --view groups --interval 5",
        "ottla top --metrics localhost:9404          # also clients with quotas and their throttle times",
        "ottla top --once --view topics              # one table, for a pipe",
        "ottla top --json | jq .records_per_s        # one line of JSON for each refresh",
    ),
)
@click.option("--view", "view_name", type=click.Choice(VIEW_NAMES), help="First view  [default: topics; once: all]")
@click.option(
    "--interval", "interval_s", type=Seconds(0.1), default=2.0, show_default=True, help="Seconds per refresh."
)
@click.option("--once", is_flag=True, help="Print the values of one interval and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each refresh.")
@click.option("--metrics", "metrics_text", metavar="HOST:PORT,...", help="Metrics ports of the brokers, for clients.")
@click.option(
    "--metrics-token-file", type=click.Path(dir_okay=False), metavar="FILE", help="File with the token for metrics."
)
@connection_options
def top(
    view_name: str | None,
    interval_s: float,
    once: bool,
    as_json: bool,
    metrics_text: str | None,
    metrics_token_file: str | None,
    bootstrap_server: str,
) -> None:
    """Show the activity of a cluster, refreshed.

    Rates and lag are computed from offsets, so every Kafka-compatible cluster works. A broker that does not respond is
    named above the table, and the display recovers with it. Keys: 1 to 4 or Tab change the view, s the order, r
    reverses it, j and k scroll, Space pauses, q quits.
    """
    interactive = not once and not as_json
    if interactive and not (sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"):
        raise OperatorError("ottla top needs a terminal: use --once or --json for a pipe or a file")
    from ottla.cli.top_views import TOPICS, VIEWS  # imported here: help needs no client
    from ottla.client.admin.cluster import Cluster
    from ottla.client.views.client_usage import metrics_addresses

    if not once:
        run_until_terminated()
    addresses = None if metrics_text is None else metrics_addresses(metrics_text)
    token = None if metrics_token_file is None else read_token(metrics_token_file, "--metrics-token-file")
    chosen = [view for view in VIEWS if view_name in (None, view.name)]
    with Cluster(bootstrap_server, client_id=CLIENT_ID, timeout_s=TIMEOUT_S, security=security()) as cluster:
        read = reader(cluster, addresses, token)
        first = read()
        if interactive:
            from ottla.cli.top_screen import ScreenState
            from ottla.cli.top_session import run_session

            run_session(read, first, interval_s, ScreenState(TOPICS if view_name is None else chosen[0]))
            return
        for reading in _refreshes(read, interval_s, once=once):
            _print(reading, chosen, as_json=as_json)


def reader(cluster: Cluster, addresses: list[tuple[str, int]] | None, token: str | None) -> Callable[[], TopReading]:
    """A function that reads the cluster; its rates cover the time since the call before."""
    from ottla.cli.top_views import TopReading
    from ottla.client.views.activity import ActivityTracker
    from ottla.client.views.client_usage import read_usages

    tracker = ActivityTracker()
    turn = 0

    def read() -> TopReading:
        nonlocal turn
        activity = tracker.update(cluster.activity.read(turn), time.monotonic())
        turn += 1
        if addresses is None:
            return TopReading(activity, None, activity.problems)
        usages, problems = read_usages(addresses, token, TIMEOUT_S)
        return TopReading(activity, usages, [*activity.problems, *problems])

    return read


def _refreshes(read: Callable[[], TopReading], interval_s: float, *, once: bool) -> Iterator[TopReading]:
    while True:
        time.sleep(interval_s)
        yield read()
        if once:
            return


def _print(reading: TopReading, views: list[View], *, as_json: bool) -> None:
    from ottla.cli.top_views import LEFT, plain_rows, summary
    from ottla.cli.top_views import as_json as json_values

    if as_json:
        print_json(json_values(reading, views), indent=None)
        return
    click.echo(summary(reading))
    for problem in reading.problems:
        click.echo(f"! {problem}")
    for view in views:
        if view.rows(reading) is None:
            click.echo(f"\n{view.absent}")
            continue
        click.echo("")
        titles = [column.title for column in view.columns]
        print_table(titles, plain_rows(view, reading), right=[title for title in titles if title not in LEFT])
