"""Settings of the metadata quorum: names, types and defaults of Apache Kafka 4.4, texts our own."""

from __future__ import annotations

from ottla.common.config.config_def import ConfigKey, ConfigType, Importance, UpdateMode, at_least


def _milliseconds(name: str, default: int, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.INT, default, doc, at_least(1), Importance.HIGH, UpdateMode.READ_ONLY)


QUORUM_CONFIGS = [
    ConfigKey(
        "controller.quorum.auto.join.enable",
        ConfigType.BOOLEAN,
        False,
        "Let a controller that is not a voter add itself to the quorum and replace the voter entry of its lost data "
        "directory. No effect without the controller role.",
        None,
        Importance.LOW,
        UpdateMode.READ_ONLY,
    ),
    _milliseconds(
        "controller.quorum.election.timeout.ms",
        1000,
        "Time without a known leader after which a voter starts an election; randomized up to twice this value.",
    ),
    _milliseconds(
        "controller.quorum.fetch.timeout.ms",
        2000,
        "Time without a response from the leader after which a voter starts an election. A leader resigns if no "
        "majority fetches for one and a half times this time.",
    ),
    _milliseconds(
        "controller.quorum.election.backoff.max.ms",
        1000,
        "Maximum backoff of a voter before it starts another election after a split vote.",
    ),
    _milliseconds("controller.quorum.request.timeout.ms", 2000, "Timeout of a request to another voter."),
    _milliseconds(
        "controller.quorum.retry.backoff.ms",
        20,
        "Backoff after a failed request to the quorum; it grows to half a second with further failures.",
    ),
]
