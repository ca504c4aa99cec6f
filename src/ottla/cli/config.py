"""`ottla config`: configs of topics, brokers, groups and client metrics subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ottla.cli.command import (
    Group,
    connection_options,
    json_option,
    open_cluster,
    parse_assignments,
    print_json,
    print_table,
    settings_option,
)
from ottla.cli.ignored_settings import write_ignored
from ottla.cli.settings import known_settings, names_explained, warn_of_unknown
from ottla.common.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.client.wire.model import ConfigOperation, ResourceType

RESOURCE = click.Choice(["topic", "broker", "group", "client-metrics"])
WIDTH = 100
CLUSTER_DEFAULT = "default"
"""Name of the cluster-wide broker defaults."""


@click.group(cls=Group, aliases={"set": "alter", "get": "describe"})
def config() -> None:
    """Manage configs of topics, brokers and groups."""


@config.command(
    examples=(
        "ottla config describe topic clicks",
        "ottla config describe topic clicks --changed --json",
        "ottla config describe broker 1 --key log.segment.bytes",
    )
)
@click.argument("resource", type=RESOURCE)
@click.argument("name")
@click.option("--changed", is_flag=True, help="Only configs that are not defaults.")
@click.option("--key", "keys", multiple=True, metavar="NAME", help="Config name; may be repeated  [default: all]")
@click.option("--doc", is_flag=True, help="Show the documentation of each config.")
@json_option
@connection_options
def describe(
    resource: str, name: str, changed: bool, keys: tuple[str, ...], doc: bool, as_json: bool, bootstrap_server: str
) -> None:
    """Show configs.

    NAME is a topic, a group, a client metrics subscription, a broker id, or default for the cluster-wide broker
    defaults.
    """
    from ottla.client.wire.model import ResourceType
    from ottla.common.suggestion import did_you_mean

    resource_type, resource_name = _resource(resource, name)
    with open_cluster(bootstrap_server) as cluster:
        if resource_type is ResourceType.TOPIC:
            cluster.topics.get(name)
        entries = cluster.configs.describe(resource_type, resource_name, keys or None)
    for key in keys:
        if key not in {entry.name for entry in entries}:
            hint = did_you_mean(key, known_settings(resource_type))
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"a {resource} has no config {key}{hint}")
    if changed:
        entries = [entry for entry in entries if not entry.is_default]
    if as_json:
        print_json(
            [
                {
                    "name": entry.name,
                    "value": entry.value,
                    "source": entry.source,
                    "read_only": entry.read_only,
                    "sensitive": entry.is_sensitive,
                    **({"doc": entry.documentation} if doc else {}),
                }
                for entry in entries
            ]
        )
        return
    print_table(
        ("config", "source", "value"),
        [(entry.name, entry.source, "(hidden)" if entry.is_sensitive else entry.value) for entry in entries],
    )
    if doc:
        for entry in entries:
            text = click.wrap_text(entry.documentation or "-", WIDTH, initial_indent="  ", subsequent_indent="  ")
            click.echo(f"\n{entry.name}\n{text}")


@config.command(
    examples=(
        "ottla config alter topic clicks retention.ms=86400000      # or with --set",
        "ottla config alter topic clicks --append cleanup.policy=compact --delete segment.bytes",
        "ottla config alter group readers --set consumer.heartbeat.interval.ms=10000",
        "ottla config alter broker default --set log.retention.ms=604800000",
        "ottla config alter client-metrics producers --set metrics=org.apache.kafka.producer. "
        "--set interval.ms=60000 --set match=client_id=app-.*",
    )
)
@click.argument("resource", type=RESOURCE)
@click.argument("name")
@click.argument("assignments", metavar="[CONFIG=VALUE]...", nargs=-1, callback=parse_assignments)
@settings_option("--set", "set_", help_text="Config to set; may be repeated.")
@click.option("--delete", multiple=True, metavar="NAME", help="Config to reset to its default; may be repeated.")
@settings_option("--append", help_text="Values to add to a list config.")
@settings_option("--subtract", help_text="Values to remove from a list config.")
@click.option("--dry-run", is_flag=True, help="Validate the change without applying it.")
@json_option
@connection_options
def alter(
    resource: str,
    name: str,
    assignments: Mapping[str, str],
    set_: Mapping[str, str],
    delete: tuple[str, ...],
    append: Mapping[str, str],
    subtract: Mapping[str, str],
    dry_run: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Set and delete configs.

    NAME is a topic, a group, a client metrics subscription, a broker id, or default for all brokers. Other configs are
    left unchanged. Setting a config of a client metrics subscription creates it.
    """
    from ottla.client.wire.model import ConfigOperation, ResourceType

    changes: list[tuple[str, ConfigOperation, str | None]] = []
    changes += [(key, ConfigOperation.SET, value) for key, value in {**assignments, **set_}.items()]
    changes += [(key, ConfigOperation.DELETE, None) for key in delete]
    changes += [(key, ConfigOperation.APPEND, value) for key, value in append.items()]
    changes += [(key, ConfigOperation.SUBTRACT, value) for key, value in subtract.items()]
    if not changes:
        raise click.UsageError("nothing to alter: give CONFIG=VALUE, --set, --delete, --append or --subtract")
    resource_type, resource_name = _resource(resource, name)
    with open_cluster(bootstrap_server) as cluster:
        if resource_type is ResourceType.TOPIC:
            cluster.topics.get(name)
        with names_explained(resource_type, [key for key, _, _ in changes]):
            cluster.configs.alter(resource_type, resource_name, changes, validate_only=dry_run)
    warn_of_unknown(resource_type, [key for key, operation, _ in changes if operation is not ConfigOperation.DELETE])
    if as_json:
        done = [
            {"config": key, "operation": operation.name.lower(), "value": value} for key, operation, value in changes
        ]
        print_json({"resource": resource, "name": name, "executed": not dry_run, "changes": done})
    else:
        click.echo(f"{'Would alter' if dry_run else 'Altered'} {resource} {name}.")


@config.command(
    examples=(
        "ottla config recover --data-dir /var/lib/ottla --ignore max.connections --ignore quotas",
        "ottla config recover --data-dir /var/lib/ottla --ignore all",
        "ottla config recover --data-dir /var/lib/ottla --end",
    )
)
@click.option("--data-dir", required=True, metavar="DIR", help="Data directory of the node, one of log.dirs.")
@click.option(
    "--ignore", multiple=True, metavar="NAME", help="Dynamic config name, or quotas, or all; may be repeated."
)
@click.option("--end", is_flag=True, help="Stop ignoring settings at the next start.")
@json_option
def recover(data_dir: str, ignore: tuple[str, ...], end: bool, as_json: bool) -> None:
    """Ignore dynamic settings at startup.

    Use it when dynamic configs or quotas lock out all clients. The command runs offline on the host of the node, and
    does not change metadata. Start the node, correct the settings with `ottla config alter` or `ottla quota remove`,
    then run this command with --end and restart the node. Without --ignore and --end it shows the ignored settings.
    """
    from ottla.common.config.ignored_settings import read_ignored

    if ignore and end:
        raise click.UsageError("give --ignore or --end, not both")
    ignored = write_ignored(data_dir, ignore) if ignore or end else read_ignored([data_dir])
    if as_json:
        print_json({"data_dir": data_dir, "ignored": sorted(ignored)})
        return
    click.echo(f"Ignored from the next start: {', '.join(sorted(ignored)) or 'nothing'}.")
    if ignore:
        click.echo("Start the node, correct the settings, then run this command with --end and restart the node.")


def _resource(resource: str, name: str) -> tuple[ResourceType, str]:
    from ottla.client.wire.model import ResourceType

    if resource == "topic":
        return ResourceType.TOPIC, name
    if resource == "group":
        return ResourceType.GROUP, name
    if resource == "client-metrics":
        return ResourceType.CLIENT_METRICS, name
    return ResourceType.BROKER, "" if name == CLUSTER_DEFAULT else name
