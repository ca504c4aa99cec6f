"""Broker settings that limit the number of objects in the metadata, which every node stores. Specific to Ottla.

Size limits of single names and values are constants: see `ottla.metadata.bounds`.
"""

from __future__ import annotations

from ottla.common.config.config_def import ConfigKey, ConfigType, Importance, UpdateMode, at_least

MAX_ACLS = "metadata.max.acls"
MAX_CLIENT_METRICS = "metadata.max.client.metrics"
MAX_CLIENT_QUOTAS = "metadata.max.client.quotas"
MAX_TOKENS = "metadata.max.delegation.tokens"
MAX_TOKENS_PER_OWNER = "metadata.max.delegation.tokens.per.owner"
MAX_GROUP_CONFIGS = "metadata.max.group.configs"
MAX_SCRAM_CREDENTIALS = "metadata.max.scram.credentials"


def _most(name: str, default: int, subject: str) -> ConfigKey:
    doc = f"Maximum number of {subject} in the cluster's metadata. Specific to Ottla."
    return ConfigKey(name, ConfigType.INT, default, doc, at_least(1), Importance.LOW, UpdateMode.READ_ONLY)


BOUND_CONFIGS = [
    _most(MAX_ACLS, 100_000, "ACLs"),
    _most(MAX_CLIENT_METRICS, 1_000, "client metrics subscriptions"),
    _most(MAX_CLIENT_QUOTAS, 100_000, "client quota entities"),
    _most(MAX_TOKENS, 100_000, "delegation tokens"),
    _most(MAX_TOKENS_PER_OWNER, 1_000, "delegation tokens of one owner"),
    _most(MAX_GROUP_CONFIGS, 100_000, "groups with their own settings"),
    _most(MAX_SCRAM_CREDENTIALS, 100_000, "SCRAM credentials"),
]
