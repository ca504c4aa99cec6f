"""`ottla client-metrics`: subscriptions of client metrics, and the clients that push them (KIP-714)."""

from __future__ import annotations

import click

from ottla.cli.command import (
    Group,
    connection_options,
    json_option,
    notify,
    open_cluster,
    print_json,
    print_table,
)
from ottla.cli.metrics_token import read_token
from ottla.common.errors import OperatorError

COLUMNS = ("client_id", "client_software_name", "client_software_version", "client_source_address", "group_id")


@click.group(cls=Group, name="client-metrics")
def client_metrics() -> None:
    """Manage metrics that clients push."""


@client_metrics.command(name="list", examples=("ottla client-metrics list", "ottla client-metrics list --json"))
@json_option
@connection_options
def list_(as_json: bool, bootstrap_server: str) -> None:
    """List subscriptions.

    Create and change one with `ottla config alter client-metrics`. Warns about brokers that receive no metrics.
    """
    with open_cluster(bootstrap_server) as cluster:
        found = cluster.client_metrics.all()
        deaf = [each.broker_id for each in cluster.client_metrics.receivers() if not each.receives]
    if found and deaf:
        notify(
            f"these brokers receive no client metrics: {', '.join(map(str, deaf))}; start them with --metrics-port, "
            "and install ottla[telemetry] there"
        )
    if as_json:
        print_json([each._asdict() for each in found])
        return
    print_table(("name", "interval ms", "metrics", "match"), found, right=("interval ms",))


@client_metrics.command(examples=("ottla client-metrics delete producers",))
@click.argument("name", metavar="NAME")
@json_option
@connection_options
def delete(name: str, as_json: bool, bootstrap_server: str) -> None:
    """Delete a subscription.

    Clients stop pushing its metrics at their next request.
    """
    with open_cluster(bootstrap_server) as cluster:
        if not cluster.client_metrics.delete(name):
            raise OperatorError(f"the subscription {name!r} does not exist: `ottla client-metrics list` shows all")
    if as_json:
        print_json({"name": name, "deleted": True})
    else:
        click.echo(f"Deleted client metrics subscription {name}.")


@client_metrics.command(
    examples=(
        "ottla client-metrics clients --url http://127.0.0.1:9404/metrics",
        "ottla client-metrics clients --url https://kafka-1:9404/metrics --token-file ./metrics.token",
    )
)
@click.option(
    "--url", "urls", multiple=True, required=True, metavar="URL", help="Metrics of a broker; may be repeated."
)
@click.option("--token-file", metavar="FILE", help="File with the bearer token of the metrics.")
@json_option
def clients(urls: tuple[str, ...], token_file: str | None, as_json: bool) -> None:
    """List clients that push metrics.

    Reads the Prometheus endpoint of brokers. A client pushes to one broker at a time.
    """
    from ottla.client.views.pushed_metrics import MetricsSource, pushing_clients, require_url

    token = None if token_file is None else read_token(token_file, "--token-file")
    for url in urls:
        require_url(url, "--url")
    found = [row for url in urls for row in pushing_clients(MetricsSource(url, token))]
    found.sort(key=lambda row: (row.get("client_id", ""), row.get("client_instance_id", "")))
    if as_json:
        print_json(found)
        return
    rows = [[*(row.get(name) for name in COLUMNS), row.get("client_instance_id")] for row in found]
    print_table(("client id", "software", "version", "address", "group", "instance id"), rows)
