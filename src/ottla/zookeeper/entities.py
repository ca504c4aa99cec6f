"""Configs, quotas and credentials: their znodes below `/config`, and their format.

The znode of a user contains its quotas and its SCRAM credentials (KIP-55, KIP-84), as names and strings. Configs of
groups and client metrics, which Apache Kafka 3.9 does not have in this mode, are in folders next to them.
"""

from __future__ import annotations

import math
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import ProtocolError
from ottla.metadata.image import ConfigResource, MetadataImage, QuotaEntity, ScramKey, quota_entity
from ottla.protocol.znodes import paths
from ottla.security.sasl.credentials import BY_NAME, BY_NUMBER, ScramCredential

USER, CLIENT_ID, IP = "user", "client-id", "ip"

CONFIG_FOLDERS: Mapping[ConfigResourceType, str] = {
    ConfigResourceType.TOPIC: paths.CONFIG_TOPICS,
    ConfigResourceType.BROKER: paths.CONFIG_BROKERS,
    ConfigResourceType.CLIENT_METRICS: paths.CONFIG_CLIENT_METRICS,
    ConfigResourceType.GROUP: paths.CONFIG_GROUPS,
}
LIMIT_FOLDERS: Mapping[str, str] = {
    USER: paths.CONFIG_USERS,
    CLIENT_ID: paths.CONFIG_CLIENTS,
    IP: paths.CONFIG_IPS,
}

_FRACTIONS = frozenset({"request_percentage", "controller_mutation_rate"})
"""Quotas that Apache Kafka writes with a decimal point; it rejects a point in any other."""
_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_CREDENTIAL = re.compile(
    r"salt=([A-Za-z0-9+/=]{1,400}),stored_key=([A-Za-z0-9+/=]{1,400}),server_key=([A-Za-z0-9+/=]{1,400}),"
    r"iterations=([1-9][0-9]{0,8})",
    re.ASCII,
)


def resource_path(resource: ConfigResource) -> str:
    """Path of the configs of a resource; raises KafkaError INVALID_REQUEST for a name that is invalid in ZooKeeper."""
    return paths.entity(CONFIG_FOLDERS[resource.type], resource.name or None)


def entity_path(entity: QuotaEntity) -> str:
    """Path of the quotas of an entity; raises KafkaError INVALID_REQUEST for a name that is invalid in ZooKeeper."""
    parts = dict(entity)
    if USER in parts and CLIENT_ID in parts:
        return paths.user_client(parts[USER], parts[CLIENT_ID])
    ((kind, name),) = entity
    return paths.entity(LIMIT_FOLDERS[kind], name)


def user_entity(name: str) -> QuotaEntity:
    """The entity of a user, which shares a znode with the user's credentials."""
    return quota_entity([(USER, name)])


def entity_values(image: MetadataImage, entity: QuotaEntity) -> dict[str, str]:
    """All values in the znode of an entity: its quotas, and for a plain user entity its credentials."""
    values = {name: _limit_text(name, limit) for name, limit in image.client_quotas.get(entity, {}).items()}
    user = _user_of(entity)
    if user is not None:
        for mechanism in BY_NAME.values():
            credential = image.scram_credential(user, mechanism)
            if credential is not None:
                values[mechanism.mechanism_name] = _credential_text(credential)
    return values


class EntityValues(NamedTuple):
    """The parsed content of an entity's znode."""

    limits: Mapping[str, float]
    credentials: Mapping[ScramKey, ScramCredential]


def parse_entity(path: str, entity: QuotaEntity, values: Mapping[str, str]) -> EntityValues:
    """Inverse of `entity_values`; raises ProtocolError for a quota that is not a number, or a credential without a
    user.
    """
    limits: dict[str, float] = {}
    credentials: dict[ScramKey, ScramCredential] = {}
    user = _user_of(entity)
    for name, text in values.items():
        mechanism = BY_NAME.get(name)
        if mechanism is None:
            limits[name] = _limit(path, name, text)
        elif user is not None:
            credentials[user, mechanism.number] = _credential(path, name, text)
        else:
            raise ProtocolError(f"znode {path} has a credential, but does not belong to a user")
    return EntityValues(limits, credentials)


def changed_entities(old: MetadataImage, new: MetadataImage) -> Iterator[QuotaEntity]:
    """Entities with changed quotas or credentials, each once."""
    found: dict[QuotaEntity, None] = {}
    if old.client_quotas is not new.client_quotas:
        for entity in {**old.client_quotas, **new.client_quotas}:
            if old.client_quotas.get(entity) != new.client_quotas.get(entity):
                found[entity] = None
    if old.scram_credentials is not new.scram_credentials:
        for key in {**old.scram_credentials, **new.scram_credentials}:
            if key[1] in BY_NUMBER and old.scram_credentials.get(key) != new.scram_credentials.get(key):
                found[user_entity(key[0])] = None
    yield from found


def _user_of(entity: QuotaEntity) -> str | None:
    """The user of a plain user entity, which may have credentials; None for clients, addresses and the default."""
    kind, name = entity[0]
    return name if len(entity) == 1 and kind == USER else None


def _limit_text(name: str, limit: float) -> str:
    return str(int(limit)) if limit.is_integer() and name not in _FRACTIONS else repr(limit)


def _limit(path: str, name: str, text: str) -> float:
    limit = float(text) if _NUMBER.fullmatch(text) else math.inf
    if math.isinf(limit):
        raise ProtocolError(f"znode {path} has a quota {name[:100]!r} that is not a number")
    return limit


def _credential_text(credential: ScramCredential) -> str:
    salt, stored_key, server_key = (
        b64encode(part).decode() for part in (credential.salt, credential.stored_key, credential.server_key)
    )
    return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={credential.iterations}"


def _credential(path: str, name: str, text: str) -> ScramCredential:
    match = _CREDENTIAL.fullmatch(text)
    if match is None:
        raise ProtocolError(f"znode {path} has no valid credential {name}")
    try:
        salt, stored_key, server_key = (b64decode(part, validate=True) for part in match.groups()[:3])
    except ValueError as error:
        raise ProtocolError(f"znode {path} has no valid credential {name}") from error
    return ScramCredential(salt, stored_key, server_key, int(match[4]))
