"""Settings of a client metrics subscription (resource type CLIENT_METRICS, KIP-714).

A subscription exists while it has a setting. Checks and messages are those of Apache Kafka 4.x. Patterns of `match` are
compiled by RE2, which rejects lookaround and backreferences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.common.config.config_def import (
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ConfigValue,
    UpdateMode,
    between,
    key_table,
    render,
)
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.patterns import Matcher, compile_pattern

INTERVAL = "interval.ms"
METRICS = "metrics"
MATCH = "match"
ALL_METRICS = "*"
"""Entry of `metrics` that selects all metrics."""
DEFAULT_INTERVAL_MS = 300_000
MIN_INTERVAL_MS, MAX_INTERVAL_MS = 100, 3_600_000

MATCH_KEYS = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""Attributes of a client that `match` can name."""


def _key(name: str, kind: ConfigType, default: ConfigValue, doc: str) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, update_mode=UpdateMode.CLUSTER_WIDE)


CLIENT_METRICS_CONFIGS: Mapping[str, ConfigKey] = key_table(
    [
        _key(
            INTERVAL, ConfigType.INT, DEFAULT_INTERVAL_MS, "Interval in which matching clients push their metrics."
        )._replace(validator=between(MIN_INTERVAL_MS, MAX_INTERVAL_MS)),
        _key(
            METRICS, ConfigType.LIST, (), "Prefixes of the names of metrics to push. * selects all, an empty list none."
        ),
        _key(
            MATCH,
            ConfigType.LIST,
            (),
            "Patterns such as client_id=app-.*, each a regular expression for the whole value. A client has to match "
            f"all of them; an empty list matches every client. Names: {', '.join(MATCH_KEYS)}.",
        ),
    ]
)


def validate_client_metrics(name: str, values: Mapping[str, str]) -> None:
    """Check all settings of a subscription; raises KafkaError with Apache Kafka's message."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for key in values:
        if key not in CLIENT_METRICS_CONFIGS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
    for key in (METRICS, MATCH):
        list_value(key, values)
    interval_ms(values)
    matchers(list_value(MATCH, values))


def interval_ms(values: Mapping[str, str]) -> int:
    """Return the push interval of a subscription. Raises KafkaError."""
    text = values.get(INTERVAL)
    if text is None:
        return DEFAULT_INTERVAL_MS
    value = CLIENT_METRICS_CONFIGS[INTERVAL]._replace(validator=None).parse(text)
    if not isinstance(value, int) or not MIN_INTERVAL_MS <= value <= MAX_INTERVAL_MS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {value} for {INTERVAL}, interval must be between {MIN_INTERVAL_MS} and {MAX_INTERVAL_MS} "
            "(1 hour)",
        )
    return value


def list_value(name: str, values: Mapping[str, str]) -> tuple[str, ...]:
    """Return `metrics` or `match` of a subscription, without duplicates. Raises KafkaError INVALID_CONFIG."""
    value = CLIENT_METRICS_CONFIGS[name].parse(values.get(name, ""))
    if not isinstance(value, tuple):
        raise TypeError(f"{name} is {value!r}")
    if "" in value:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Configuration '{name}' values must not be empty.")
    return tuple(dict.fromkeys(value))


def matchers(patterns: Sequence[str]) -> dict[str, Matcher]:
    """Return the compiled patterns of `match` by attribute; the last one of an attribute counts.

    Raises KafkaError INVALID_CONFIG.
    """
    found: dict[str, Matcher] = {}
    for pattern in patterns:
        # As Java's split: empty parts at the end do not count.
        parts = pattern.rstrip("=").split("=")
        key = parts[0].strip()
        if len(parts) != 2 or key not in MATCH_KEYS:
            raise _illegal(pattern)
        try:
            found[key] = compile_pattern(parts[1].strip(), MATCH)
        except KafkaError as error:
            raise _illegal(pattern) from error
    return found


def _illegal(pattern: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")


def describe_client_metrics(values: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every setting of a subscription, by name, for DescribeConfigs."""
    return [_described(CLIENT_METRICS_CONFIGS[name], values.get(name)) for name in sorted(CLIENT_METRICS_CONFIGS)]


def _described(key: ConfigKey, value: str | None) -> ConfigEntry:
    source = ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
    own = () if value is None else (ConfigSynonym(key.name, value, source),)
    return ConfigEntry(
        key.name,
        render(key.default) if value is None else value,
        key.type,
        source if own else ConfigSource.DEFAULT_CONFIG,
        key.sensitive,
        read_only=False,
        doc=key.doc,
        synonyms=own,
    )
