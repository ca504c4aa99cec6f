"""Dynamic broker settings of Apache Kafka that have no effect here: validated, stored and described.

Names, types, defaults and bounds are those of Apache Kafka 4.4. `unsupported_configs.STORED_CONFIGS` has the reasons. A
setting that gains an effect moves to the `config_keys_*` module of its area.
"""

from __future__ import annotations

from ottla.common.config.config_def import (
    MAX_LONG,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    UpdateMode,
    Validator,
    at_least,
)

_DOC = "Accepted without effect; a warning at the start gives the reason."
_BOOLEAN, _INT, _LONG, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
)

_ROWS: tuple[tuple[str, ConfigType, ConfigValue, Validator | None], ...] = (
    ("background.threads", _INT, 10, at_least(1)),
    ("config.providers", _LIST, (), None),
    ("follower.fetch.last.tiered.offset.enable", _BOOLEAN, False, None),
    ("group.coordinator.cached.buffer.max.bytes", _INT, 1048588, at_least(512 * 1024)),
    ("group.streams.assignment.interval.ms", _INT, 1000, at_least(0)),
    ("log.remote.copy.lag.bytes", _LONG, -1, at_least(-1)),
    ("log.remote.copy.lag.ms", _LONG, 0, at_least(-1)),
    ("metric.reporters", _LIST, (), None),
    ("num.io.threads", _INT, 8, at_least(1)),
    ("num.network.threads", _INT, 3, at_least(1)),
    ("num.recovery.threads.per.data.dir", _INT, 2, at_least(1)),
    ("num.replica.fetchers", _INT, 1, at_least(1)),
    ("remote.fetch.max.wait.ms", _INT, 500, at_least(1)),
    ("remote.list.offsets.request.timeout.ms", _LONG, 30_000, at_least(1)),
    ("remote.log.index.file.cache.total.size.bytes", _LONG, 1024**3, at_least(1)),
    ("remote.log.manager.copier.thread.pool.size", _INT, 10, at_least(1)),
    ("remote.log.manager.copy.max.bytes.per.second", _LONG, MAX_LONG, at_least(1)),
    ("remote.log.manager.expiration.thread.pool.size", _INT, 10, at_least(1)),
    ("remote.log.manager.fetch.max.bytes.per.second", _LONG, MAX_LONG, at_least(1)),
    ("remote.log.manager.follower.thread.pool.size", _INT, 2, at_least(1)),
    ("remote.log.reader.threads", _INT, 10, at_least(1)),
    ("share.coordinator.cached.buffer.max.bytes", _INT, 1048588, at_least(512 * 1024)),
)
_HIDDEN: tuple[tuple[str, ConfigType, ConfigValue, Validator | None], ...] = (
    ("group.consumer.assignor.offload.enable", _BOOLEAN, True, None),
    ("group.share.assignor.offload.enable", _BOOLEAN, True, None),
    ("group.streams.assignor.offload.enable", _BOOLEAN, True, None),
)
"""Settings that Apache Kafka accepts and does not show."""


def _kept(rows: tuple[tuple[str, ConfigType, ConfigValue, Validator | None], ...], internal: bool) -> list[ConfigKey]:
    mode = UpdateMode.CLUSTER_WIDE
    return [
        ConfigKey(name, kind, default, _DOC, validator, Importance.MEDIUM, mode, internal=internal)
        for name, kind, default, validator in rows
    ]


STORED_KEYS = [
    *_kept(_ROWS, internal=False),
    *_kept(_HIDDEN, internal=True),
]
