"""Feature levels on a command line: by release, by metadata version, or as NAME=LEVEL."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.common.config.config_def import MAX_SHORT
from ottla.common.config.feature_levels import (
    FEATURE_LEVELS,
    HIGHEST_LEVEL,
    LOWEST_LEVEL,
    METADATA_LEVELS,
    METADATA_VERSION,
    NEW_CLUSTER_LEVELS,
    metadata_level_of,
    release_features,
    unmet_need,
)
from ottla.common.errors import OperatorError

MAX_LEVEL = MAX_SHORT
"""Limit of the wire format."""
MAX_DIGITS = 5


def metadata_level_named(option: str, version: str) -> int:
    """Return the metadata.version level for `version` of `option` (`4.0-IV3`, `4.0`); raises OperatorError."""
    found = metadata_level_of(version)
    if found is None:
        lowest, highest = METADATA_LEVELS[LOWEST_LEVEL].name, METADATA_LEVELS[HIGHEST_LEVEL].name
        raise OperatorError(
            f"{option} {version} is not a metadata version: use one from {lowest} to {highest}, or a release like 4.0"
        )
    return found.level


def parse_levels(option: str, named: Mapping[str, str]) -> dict[str, int]:
    """Return the levels of `option` by feature; raises OperatorError for invalid levels."""
    for name, text in named.items():
        if not (text.isascii() and text.isdigit()) or len(text) > MAX_DIGITS or int(text) > MAX_LEVEL:
            raise OperatorError(f"{option} {name}={text} names no level: {_levels(name)}")
    return {name: int(text) for name, text in named.items()}


def _levels(name: str) -> str:
    """Describe the known levels; a cluster may be newer."""
    if name == METADATA_VERSION:
        return f"those known here are {LOWEST_LEVEL} to {HIGHEST_LEVEL}"
    if name in FEATURE_LEVELS:
        return f"those known here are 0 to {FEATURE_LEVELS[name][-1].level}"
    return f"a level is an integer from 0 to {MAX_LEVEL}"


def first_levels(release_version: str | None, named: Mapping[str, str]) -> dict[str, int]:
    """Return the features of a cluster formatted with these options, without those at 0; raises OperatorError."""
    levels = dict(NEW_CLUSTER_LEVELS)
    if release_version is not None:
        levels = release_features(metadata_level_named("--release-version", release_version))
    chosen = parse_levels("--feature", named)
    for name, level in chosen.items():
        if name == METADATA_VERSION:
            raise OperatorError(f"--feature {name}={level} is named by --release-version, which takes its version")
        rows = FEATURE_LEVELS.get(name)
        if rows is None:
            raise OperatorError(f"--feature {name} is none that can be chosen: those are {', '.join(FEATURE_LEVELS)}")
        if level > rows[-1].level:
            raise OperatorError(f"--feature {name}={level} is not there: it has the levels 0 to {rows[-1].level}")
    levels = {name: level for name, level in (levels | chosen).items() if level}
    unmet = unmet_need(levels)
    if unmet is not None:
        name, level, other, needed = unmet
        raise OperatorError(
            f"{name} {level} needs {other} {needed} ({METADATA_LEVELS[needed].name}): choose a higher "
            f"--release-version, or --feature {name}=0"
        )
    return levels
