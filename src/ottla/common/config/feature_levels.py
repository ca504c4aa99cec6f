"""Cluster features and their levels: name of each level, release that made it the default, dependencies.

Source: `MetadataVersion` and `Feature` of Apache Kafka 4.4 (KIP-584, KIP-778, KIP-1022). A level of `metadata.version`
switches records and behaviour for the whole cluster. So a controller writes records of the finalized level, not of the
highest level of its own node. The effects of each level are listed in docs/reference/feature-levels.md.

Levels below 3.3-IV3 are not supported; Apache Kafka 4 does not read them either.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

METADATA_VERSION = "metadata.version"
GROUP_VERSION = "group.version"
"""Level 1: the consumer protocol (KIP-848)."""
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"
"""Level 1: eligible leader replicas, which may lead without being in the ISR (KIP-966)."""
TRANSACTION_VERSION = "transaction.version"
"""Level 1: tagged fields in the transaction log; level 2: an epoch for each transaction (KIP-890)."""
SHARE_VERSION = "share.version"
"""Level 1: share groups (KIP-932); level 2: their dead letters (KIP-1191)."""
KRAFT_VERSION = "kraft.version"
"""Level 1: the metadata log contains the voters (KIP-853). No FeatureLevelRecord sets it."""


class MetadataLevel(NamedTuple):
    """One level: `name` as in tools; `changes_metadata`: the level before cannot represent its records."""

    level: int
    name: str
    changes_metadata: bool


METADATA_LEVELS: Mapping[int, MetadataLevel] = {
    row[0]: MetadataLevel(*row)
    for row in (
        (7, "3.3-IV3", True),
        (8, "3.4-IV0", True),
        (9, "3.5-IV0", False),
        (10, "3.5-IV1", False),
        (11, "3.5-IV2", True),
        (12, "3.6-IV0", False),
        (13, "3.6-IV1", True),
        (14, "3.6-IV2", True),
        (15, "3.7-IV0", True),
        (16, "3.7-IV1", False),
        (17, "3.7-IV2", True),
        (18, "3.7-IV3", False),
        (19, "3.7-IV4", False),
        (20, "3.8-IV0", False),
        (21, "3.9-IV0", False),
        (22, "4.0-IV0", False),
        (23, "4.0-IV1", True),
        (24, "4.0-IV2", False),
        (25, "4.0-IV3", False),
        (26, "4.1-IV0", False),
        (27, "4.1-IV1", False),
        (28, "4.2-IV0", False),
        (29, "4.2-IV1", False),
        (30, "4.3-IV0", True),
        (31, "4.4-IV0", False),
        (32, "4.4-IV1", True),
        (33, "4.4-IV2", True),
    )
}
"""Levels in ascending order, without gaps."""

LOWEST_LEVEL, HIGHEST_LEVEL = min(METADATA_LEVELS), max(METADATA_LEVELS)
METADATA_VERSION_LEVEL = 25
"""4.0-IV3, the level of a new cluster: some behaviour of higher levels is not implemented."""

MIGRATING_BROKERS = 8
"""Broker registrations include whether the broker is on ZooKeeper; here it never is."""
SCRAM_CREDENTIALS = 11
"""SCRAM credentials of users (KIP-900)."""
SAME_EPOCH_WHERE_ISR_SHRINKS = 12
"""Removing a replica from the ISR does not raise the leader epoch, the only fence of older brokers (KAFKA-15021)."""
DELEGATION_TOKENS = 14
"""Delegation tokens (KIP-900)."""
CONTROLLER_REGISTRATION = 15
"""Registration of controllers (KIP-919)."""
DIRECTORY_ASSIGNMENT = 17
"""Log directories in registrations and partitions (KIP-858)."""
ELIGIBLE_LEADERS = 23
"""Eligible leader replicas in records (KIP-966)."""
CORDONED_DIRECTORIES = 30
"""Cordoned log directories in registrations (KIP-1066)."""
CIDR_ACLS = 32
"""Networks as hosts of ACLs (KIP-1276)."""
CONTROLLER_UNREGISTRATION = 33
"""Unregistration of controllers."""


def metadata_changed(low: int, high: int) -> bool:
    """Return whether a level above `low`, up to `high`, writes records that `low` cannot represent."""
    return any(METADATA_LEVELS[level].changes_metadata for level in range(low + 1, high + 1))


def metadata_level_of(version: str) -> MetadataLevel | None:
    """Return the level of a name (`4.0-IV3`), or the newest of a release (`4.0`, `4.0.1`), or None."""
    release = ".".join(version.split(".")[:2])
    found = None
    for row in METADATA_LEVELS.values():
        if row.name == version or ("-" not in version and row.name.startswith(f"{release}-")):
            found = row
    return found


class FeatureLevel(NamedTuple):
    """A level above 0 of a feature."""

    level: int
    since: int
    """Level of metadata.version from which on new clusters have it."""
    needs: Mapping[str, int] = MappingProxyType({})
    """Minimum levels of other features."""


FEATURE_LEVELS: Mapping[str, tuple[FeatureLevel, ...]] = {
    GROUP_VERSION: (FeatureLevel(1, since=22),),
    ELIGIBLE_LEADER_REPLICAS_VERSION: (FeatureLevel(1, since=26, needs={METADATA_VERSION: ELIGIBLE_LEADERS}),),
    TRANSACTION_VERSION: (FeatureLevel(1, since=24), FeatureLevel(2, since=24)),
    SHARE_VERSION: (FeatureLevel(1, since=28), FeatureLevel(2, since=31)),
}
"""Features other than metadata.version that can be raised."""

CHOSEN_FEATURES = frozenset({SHARE_VERSION})
"""Features that are only raised by name: their behaviour is not complete yet."""

NEW_CLUSTER_LEVELS: Mapping[str, int] = {
    METADATA_VERSION: METADATA_VERSION_LEVEL,
    **{name: rows[-1].level for name, rows in FEATURE_LEVELS.items() if name not in CHOSEN_FEATURES},
}
"""Features of a new cluster, unless it was formatted with others."""


def release_features(metadata_level: int) -> dict[str, int]:
    """Return the features of a new Apache Kafka cluster at that level; those at 0 are omitted."""
    levels = {METADATA_VERSION: metadata_level}
    for name, rows in FEATURE_LEVELS.items():
        level = max((row.level for row in rows if row.since <= metadata_level), default=0)
        if level and name not in CHOSEN_FEATURES:
            levels[name] = level
    return levels


def unmet_need(features: Mapping[str, int]) -> tuple[str, int, str, int] | None:
    """Return the first feature of `features` (levels by name) with an unmet dependency.

    As (name, its level, name of the dependency, required level of it).
    """
    for name, rows in FEATURE_LEVELS.items():
        level = features.get(name, 0)
        for row in rows:
            for other, needed in row.needs.items():
                if row.level == level and features.get(other, 0) < needed:
                    return name, level, other, needed
    return None
