"""`ottla cluster features` on a real broker: describe, upgrade, downgrade and rejections."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from ottla.cli.cluster import cluster
from ottla.cli.features import newest_levels
from ottla.client.wire.model import FeatureInfo

from .conftest import Run

CONFIGS: Mapping[str, str] = {}


def levels(run: Run) -> dict[str, int]:
    rows = json.loads(run(cluster, "features", "describe", "--json").stdout)
    return {row["feature"]: row["level"] for row in rows}


def changes(run: Run, *arguments: str) -> list[tuple[str, int, int]]:
    result = json.loads(run(cluster, "features", *arguments, "--json").stdout)
    assert result["dry_run"] == ("--dry-run" in arguments)
    return [(row["feature"], row["from"], row["to"]) for row in result["changes"]]


@pytest.fixture(autouse=True)
def as_at_first(run: Run) -> None:
    """Reset the levels to those of a new cluster."""
    run(cluster, "features", "upgrade", "--feature", "transaction.version=2", "--feature", "group.version=1")


def test_levels_are_shown_in_columns(run: Run) -> None:
    lines = run(cluster, "features", "describe").stdout.splitlines()
    assert lines[0].split() == ["FEATURE", "LEVEL", "VERSION", "SUPPORTED", "MIN", "SUPPORTED", "MAX"]
    assert "metadata.version                     25  4.0-IV3              7             33" in lines
    assert lines[1].split() == ["eligible.leader.replicas.version", "1", "-", "0", "1"]


def test_a_level_goes_down_and_up_again(run: Run) -> None:
    assert changes(run, "downgrade", "--feature", "transaction.version=1") == [("transaction.version", 2, 1)]
    assert levels(run)["transaction.version"] == 1
    result = run(cluster, "features", "upgrade", "--feature", "transaction.version=2").stdout
    assert result.splitlines()[1].split() == ["transaction.version", "1", "2", "-"]
    assert levels(run)["transaction.version"] == 2
    again = run(cluster, "features", "upgrade", "--feature", "transaction.version=2").stdout
    assert again == "Nothing to change.\n"


def test_a_release_moves_all_features_and_a_dry_run_none(run: Run) -> None:
    before = levels(run)
    assert changes(run, "upgrade", "--release-version", "4.2", "--dry-run") == [("metadata.version", 25, 29)]
    assert changes(run, "upgrade", "--metadata", "4.1-IV0", "--dry-run") == [("metadata.version", 25, 26)]
    lower = changes(run, "downgrade", "--release-version", "4.0-IV2", "--dry-run")
    assert lower == [("eligible.leader.replicas.version", 1, 0), ("metadata.version", 25, 24)]
    result = run(cluster, "features", "downgrade", "--release-version", "4.0-IV2", "--dry-run")
    assert "Dry run: " in result.stderr
    assert levels(run) == before


def test_upgrade_without_level_raises_to_that_of_new_clusters(run: Run) -> None:
    before = levels(run)
    unchanged = run(cluster, "features", "upgrade")
    assert unchanged.stdout == "Nothing to change.\n"
    assert unchanged.stderr == (
        "Higher levels are supported, and only raised by name: --feature metadata.version=33 "
        "--feature share.version=2\n"
    )
    run(cluster, "features", "downgrade", "--feature", "group.version=0")
    asked = run(cluster, "features", "upgrade", exit_code=2)
    assert ["group.version", "0", "1", "-"] in [line.split() for line in asked.stdout.splitlines()]
    assert "not confirmed: add --yes" in asked.stderr
    assert levels(run)["group.version"] == 0
    assert changes(run, "upgrade", "--yes") == [("group.version", 0, 1)]
    assert levels(run) == before


def test_newest_levels_are_those_that_all_nodes_support() -> None:
    new = {"a": FeatureInfo(1, 0, 3), "b": FeatureInfo(1, 0, 1), "c": FeatureInfo(0, 0, 1)}
    old = {"a": FeatureInfo(1, 0, 2), "b": FeatureInfo(1, 0, 1)}
    assert newest_levels([new, old]) == {"a": 2, "b": 1}
    assert newest_levels([]) == {}


@pytest.mark.parametrize(
    ("arguments", "message", "exit_code"),
    [
        (("downgrade",), "nothing to change: give --feature NAME=LEVEL", 2),
        (("upgrade", "--release-version", "4.0", "--metadata", "4.0"), "omit --metadata and --feature", 2),
        (("upgrade", "--metadata", "4.0", "--feature", "metadata.version=25"), "set the same level", 2),
        (("upgrade", "--metadata", "2.8"), "use one from 3.3-IV3 to 4.4-IV2, or a release like 4.0", 2),
        (("upgrade", "--feature", "group.version=one"), "names no level: those known here are 0 to 1", 2),
        (("upgrade", "--feature", "group.version=2"), "Local controller only supports versions 0-1", 1),
        (("downgrade", "--feature", "kraft.version=0"), "Can't downgrade the version of this feature", 1),
        (("downgrade", "--metadata", "4.0-IV0"), "Refusing to perform the requested downgrade", 1),
        (("downgrade", "--metadata", "4.0-IV0", "--unsafe"), "Unsafe metadata downgrade is not supported", 1),
        (("downgrade", "--feature", "transaction.version=3"), "only supports versions 0-2", 1),
    ],
)
def test_rejected_feature_changes_report_reason(
    run: Run, arguments: tuple[str, ...], message: str, exit_code: int
) -> None:
    before = levels(run)
    assert message in run(cluster, "features", *arguments, exit_code=exit_code).output
    assert levels(run) == before
