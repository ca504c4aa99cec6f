"""The settings of the metadata quorum: names, types and defaults of Apache Kafka 4.4, texts our own."""

from __future__ import annotations

from ottla.common.config.config_def import ConfigKey, ConfigType, Importance, UpdateMode, at_least


def _milliseconds(name: str, default: int, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.INT, default, doc, at_least(1), Importance.HIGH, UpdateMode.READ_ONLY)


QUORUM_CONFIGS = [
    ConfigKey(
        "controller.quorum.auto.join.enable",
        ConfigType.BOOLEAN,
        False,
        "Whether a controller that has no vote asks for one by itself, in place of what its node was with a directory "
        "that is gone. Without effect on a node that is no controller.",
        None,
        Importance.LOW,
        UpdateMode.READ_ONLY,
    ),
    _milliseconds(
        "controller.quorum.election.timeout.ms",
        1000,
        "How long a voter that knows no leader waits before it tries to become one; up to twice that, by chance.",
    ),
    _milliseconds(
        "controller.quorum.fetch.timeout.ms",
        2000,
        "How long a voter goes without an answer of the leader before it tries to become leader itself; a leader from "
        "which no majority fetched for one and a half times that resigns.",
    ),
    _milliseconds(
        "controller.quorum.election.backoff.max.ms",
        1000,
        "Longest time before a voter tries again after votes were split.",
    ),
    _milliseconds("controller.quorum.request.timeout.ms", 2000, "How long a request to another voter may take."),
    _milliseconds(
        "controller.quorum.retry.backoff.ms",
        20,
        "How long to wait after a request to the quorum failed; it grows to half a second with further failures.",
    ),
]
