"""`ottla config`: describe and alter the configs of topics, groups and brokers."""

from __future__ import annotations

from collections.abc import Mapping

import click

from ottla.cli.command import (
    Group,
    connection_options,
    json_option,
    open_cluster,
    print_json,
    print_table,
    settings_option,
)
from ottla.cli.ignored_settings import write_ignored
from ottla.cli.settings import known_settings, names_explained
from ottla.client.wire.model import ConfigOperation, ResourceType
from ottla.common.config.ignored_settings import read_ignored
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.suggestion import did_you_mean

RESOURCE = click.Choice(["topic", "broker", "group"])
WIDTH = 100
CLUSTER_DEFAULT = "default"
"""The name that stands for the defaults of all brokers."""


@click.group(cls=Group)
def config() -> None:
    """Describe and alter the configs of topics, groups and brokers."""


@config.command(
    examples=(
        "ottla config describe topic clicks",
        "ottla config describe topic clicks --changed --json",
        "ottla config describe broker 1 --key log.segment.bytes",
    )
)
@click.argument("resource", type=RESOURCE)
@click.argument("name")
@click.option("--changed", is_flag=True, help="Only configs that somebody set.")
@click.option("--key", "keys", multiple=True, metavar="NAME", help="Only this config; may be repeated.")
@click.option("--doc", is_flag=True, help="Say what each config does.")
@json_option
@connection_options
def describe(
    resource: str, name: str, changed: bool, keys: tuple[str, ...], doc: bool, as_json: bool, bootstrap_server: str
) -> None:
    """Show the configs of a topic, a group, a broker (by its id), or the defaults of all brokers (broker default)."""
    resource_type, resource_name = _resource(resource, name)
    with open_cluster(bootstrap_server) as cluster:
        if resource_type is ResourceType.TOPIC:
            cluster.topic(name)
        entries = cluster.describe_configs(resource_type, resource_name, keys or None)
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
        "ottla config alter topic clicks --set retention.ms=86400000",
        "ottla config alter topic clicks --append cleanup.policy=compact --delete segment.bytes",
        "ottla config alter group readers --set consumer.heartbeat.interval.ms=10000",
        "ottla config alter broker default --set log.retention.ms=604800000",
    )
)
@click.argument("resource", type=RESOURCE)
@click.argument("name")
@settings_option("--set", "set_", help_text="Set a config; may be repeated.")
@click.option("--delete", multiple=True, metavar="NAME", help="Back to the default; may be repeated.")
@settings_option("--append", help_text="Add to a config that is a list.")
@settings_option("--subtract", help_text="Take from a config that is a list.")
@click.option("--dry-run", is_flag=True, help="Let the broker check the change without making it.")
@json_option
@connection_options
def alter(
    resource: str,
    name: str,
    set_: Mapping[str, str],
    delete: tuple[str, ...],
    append: Mapping[str, str],
    subtract: Mapping[str, str],
    dry_run: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Set and delete configs of a topic, a group, a broker, or all brokers; what isn't named stays as it is."""
    changes: list[tuple[str, ConfigOperation, str | None]] = []
    changes += [(key, ConfigOperation.SET, value) for key, value in set_.items()]
    changes += [(key, ConfigOperation.DELETE, None) for key in delete]
    changes += [(key, ConfigOperation.APPEND, value) for key, value in append.items()]
    changes += [(key, ConfigOperation.SUBTRACT, value) for key, value in subtract.items()]
    if not changes:
        raise click.UsageError("nothing to alter: give --set, --delete, --append or --subtract")
    resource_type, resource_name = _resource(resource, name)
    with open_cluster(bootstrap_server) as cluster:
        if resource_type is ResourceType.TOPIC:
            cluster.topic(name)
        with names_explained(resource_type, [key for key, _, _ in changes]):
            cluster.alter_configs(resource_type, resource_name, changes, validate_only=dry_run)
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
@click.option("--data-dir", required=True, metavar="DIR", help="A data directory of the node (one of log.dirs).")
@click.option("--ignore", multiple=True, metavar="NAME", help="A dynamic setting, or quotas, or all; may be repeated.")
@click.option("--end", is_flag=True, help="Ignore nothing from the next start on.")
@json_option
def recover(data_dir: str, ignore: tuple[str, ...], end: bool, as_json: bool) -> None:
    """Let a node start without dynamic settings or quotas that lock everybody out.

    No broker is asked and no metadata is changed: run it on the host, start the node again, correct the settings with
    `ottla config alter` or `ottla quota remove`, then use --end and start the node once more. Without --ignore and
    --end it shows what is ignored.
    """
    if ignore and end:
        raise click.UsageError("give --ignore or --end, not both")
    ignored = write_ignored(data_dir, ignore) if ignore or end else read_ignored([data_dir])
    if as_json:
        print_json({"data_dir": data_dir, "ignored": sorted(ignored)})
        return
    click.echo(f"Ignored from the next start on: {', '.join(sorted(ignored)) or 'nothing'}.")
    if ignore:
        click.echo("Start the node, correct the settings, then use --end and start it again.")


def _resource(resource: str, name: str) -> tuple[ResourceType, str]:
    if resource == "topic":
        return ResourceType.TOPIC, name
    if resource == "group":
        return ResourceType.GROUP, name
    return ResourceType.BROKER, "" if name == CLUSTER_DEFAULT else name
