"""`ottla cluster features`: describe, upgrade and downgrade feature levels (KIP-584, KIP-1022).

This module knows the names of levels; the controller decides which changes are permitted.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

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
from ottla.common.errors import OperatorError

if TYPE_CHECKING:
    from ottla.client.wire.model import FeatureInfo, UpgradeType

F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=Group)
def features() -> None:
    """Manage feature levels."""


def _level_options(function: F) -> F:
    """Options that select features and levels."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Validate the change without applying it."),
        settings_option("--feature", help_text="Feature and level, such as group.version=1; may be repeated."),
        click.option("--metadata", metavar="VERSION", help="Metadata version, such as 4.0-IV3."),
        click.option("--release-version", metavar="VERSION", help="Default feature levels of this Kafka version."),
    ):
        function = option(function)
    return function


@features.command(examples=("ottla cluster features describe", "ottla cluster features describe --json"))
@json_option
@connection_options
def describe(as_json: bool, bootstrap_server: str) -> None:
    """Show feature levels.

    For each feature: the finalized level of the cluster and the range that the connected broker supports.
    """
    with open_cluster(bootstrap_server) as client:
        found = client.features.all()
    rows = [
        {
            "feature": name,
            "level": info.level,
            "version": _version(name, info.level),
            "supported_min": info.supported_min,
            "supported_max": info.supported_max,
        }
        for name, info in sorted(found.items())
    ]
    if as_json:
        print_json(rows)
        return
    columns = ("feature", "level", "version", "supported min", "supported max")
    right = ("level", "supported min", "supported max")
    print_table(columns, [tuple(row.values()) for row in rows], right=right)


@features.command(
    examples=(
        "ottla cluster features upgrade            # to the levels of a new cluster",
        "ottla cluster features upgrade --release-version 4.0 --dry-run",
        "ottla cluster features upgrade --metadata 4.1-IV1",
        "ottla cluster features upgrade --feature group.version=1 --feature transaction.version=2",
    )
)
@_level_options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation of an upgrade without arguments.")
@json_option
@connection_options
def upgrade(
    release_version: str | None,
    metadata: str | None,
    feature: dict[str, str],
    dry_run: bool,
    yes: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Raise feature levels.

    Run it after every node was upgraded. Without a level, features are raised to the levels that `ottla format` gives a
    new cluster, after a confirmation. Higher levels and `kraft.version` are only raised by name.
    """
    from ottla.client.wire.model import UpgradeType

    if release_version is None and metadata is None and not feature:
        wanted = _levels_of_new_clusters(bootstrap_server)
        ask = not dry_run and not yes
        raises = _update(
            bootstrap_server, wanted, operator.gt, UpgradeType.UPGRADE, dry_run=dry_run or ask, as_json=as_json
        )
        if ask and raises:
            _confirm()
            _update(bootstrap_server, wanted, operator.gt, UpgradeType.UPGRADE, dry_run=False, as_json=as_json)
        _print_dry_run(dry_run=dry_run, as_json=as_json)
        return
    wanted = _wanted(release_version, metadata, feature)
    only = operator.gt if release_version is not None else None
    _update(bootstrap_server, wanted, only, UpgradeType.UPGRADE, dry_run=dry_run, as_json=as_json)
    _print_dry_run(dry_run=dry_run, as_json=as_json)


@features.command(
    examples=(
        "ottla cluster features downgrade --feature transaction.version=1",
        "ottla cluster features downgrade --metadata 4.0-IV1 --dry-run",
        "ottla cluster features downgrade --feature group.version=0   # disables it",
    )
)
@_level_options
@click.option("--unsafe", is_flag=True, help="Allow a downgrade that loses metadata, where supported.")
@json_option
@connection_options
def downgrade(
    release_version: str | None,
    metadata: str | None,
    feature: dict[str, str],
    dry_run: bool,
    unsafe: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Lower feature levels.

    The controller rejects a level that cannot represent the existing metadata.
    """
    from ottla.client.wire.model import UpgradeType

    wanted = _wanted(release_version, metadata, feature)
    only = operator.lt if release_version is not None else None
    how = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    _update(bootstrap_server, wanted, only, how, dry_run=dry_run, as_json=as_json)
    _print_dry_run(dry_run=dry_run, as_json=as_json)


def newest_levels(supported: Iterable[Mapping[str, FeatureInfo]]) -> dict[str, int]:
    """The highest level of each feature that every node supports; `supported` has a mapping for each node."""
    nodes = list(supported)
    names = set.intersection(*(set(node) for node in nodes)) if nodes else set()
    return {name: min(node[name].supported_max for node in nodes) for name in sorted(names)}


def _levels_of_new_clusters(bootstrap_server: str) -> dict[str, int]:
    """The levels of a new cluster, as far as every node supports them; prints which levels remain above.

    Apache Kafka's `kafka-features upgrade --release-version` does the same for the levels of a release, but also raises
    kraft.version, which changes how voters are managed (KAFKA-21426). Raises OperatorError if a broker is fenced, since
    its levels are unknown.
    """
    from ottla.common.config.feature_levels import NEW_CLUSTER_LEVELS

    with open_cluster(bootstrap_server) as client:
        fenced = [str(broker.node_id) for broker in client.brokers.all() if broker.fenced]
        if fenced:
            raise OperatorError(
                f"the feature levels of fenced broker {', '.join(fenced)} are unknown: start it, or remove it with "
                "`ottla cluster decommission BROKER --unregister`"
            )
        newest = newest_levels(client.brokers.features().values())
        now = {name: info.level for name, info in client.features.all().items()}
    ceilings = NEW_CLUSTER_LEVELS
    wanted = {name: min(level, ceilings[name]) for name, level in newest.items() if name in ceilings}
    above = [
        f"--feature {name}={level}"
        for name, level in newest.items()
        if level > max(now.get(name, 0), wanted.get(name, 0))
    ]
    if above:
        click.echo(f"Higher levels are supported, and only raised by name: {' '.join(above)}", err=True)
    return wanted


def _confirm() -> None:
    """Ask on a terminal. Raises OperatorError elsewhere."""
    click.echo("Some levels can't be lowered again: see docs/reference/feature-levels.md.", err=True)
    if not sys.stdin.isatty():
        raise OperatorError("the upgrade is not confirmed: add --yes to apply it, or --dry-run")
    click.confirm("Raise these levels?", abort=True, err=True)


def _wanted(release_version: str | None, metadata: str | None, feature: Mapping[str, str]) -> dict[str, int]:
    """The levels that the options select. Raises OperatorError."""
    from ottla.common.config.feature_choice import metadata_level_named, parse_levels
    from ottla.common.config.feature_levels import (
        CHOSEN_FEATURES,
        FEATURE_LEVELS,
        METADATA_VERSION,
        release_features,
    )

    if release_version is not None:
        if metadata is not None or feature:
            raise OperatorError("--release-version sets the levels of all features: omit --metadata and --feature")
        level = metadata_level_named("--release-version", release_version)
        zero = {name: 0 for name in FEATURE_LEVELS if name not in CHOSEN_FEATURES}
        return zero | release_features(level)
    wanted = parse_levels("--feature", feature)
    if metadata is not None:
        if METADATA_VERSION in wanted:
            raise OperatorError(f"--metadata and --feature {METADATA_VERSION} set the same level: omit one of them")
        wanted[METADATA_VERSION] = metadata_level_named("--metadata", metadata)
    if not wanted:
        raise OperatorError("nothing to change: give --feature NAME=LEVEL, --metadata or --release-version")
    return wanted


def _update(
    bootstrap_server: str,
    wanted: Mapping[str, int],
    only: Callable[[int, int], bool] | None,
    how: UpgradeType,
    *,
    dry_run: bool,
    as_json: bool,
) -> bool:
    """Request the change and print it; returns whether there is any.

    `only` compares a requested level with the current one.
    """
    from ottla.client.wire.model import FeatureUpdate

    with open_cluster(bootstrap_server) as client:
        now = {name: info.level for name, info in client.features.all().items()}
        if only is not None:
            wanted = {name: level for name, level in wanted.items() if only(level, now.get(name, 0))}
        updates = [FeatureUpdate(name, level, how) for name, level in sorted(wanted.items())]
        if updates:
            client.features.update(updates, validate_only=dry_run)
    rows = [
        (name, now.get(name, 0), level, _version(name, level))
        for name, level in sorted(wanted.items())
        if level != now.get(name, 0)
    ]
    columns = ("feature", "from", "to", "version")
    if as_json:
        print_json({"dry_run": dry_run, "changes": [dict(zip(columns, row, strict=True)) for row in rows]})
        return bool(rows)
    if rows:
        print_table(columns, rows, right=("from", "to"))
    else:
        click.echo("Nothing to change.")
    return bool(rows)


def _print_dry_run(*, dry_run: bool, as_json: bool) -> None:
    if dry_run and not as_json:
        click.echo("Dry run: omit --dry-run to apply the change.", err=True)


def _version(name: str, level: int) -> str | None:
    """The name of a metadata.version level; other features have numeric levels only."""
    from ottla.common.config.feature_levels import METADATA_LEVELS, METADATA_VERSION

    known = METADATA_LEVELS.get(level) if name == METADATA_VERSION else None
    return known.name if known is not None else None
