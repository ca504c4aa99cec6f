"""AlterClientQuotas and DescribeClientQuotas: quotas of users, client ids and IP addresses (KIP-546, KIP-599, KIP-612).

An entity is a user, a client id, both, or an IP address; the name None is the default for entities without a quota of
their own. Checks, codes and messages are those of Apache Kafka 4.x. An entity changes as a whole or not at all.

Left out: enforcement (`quota`); host names instead of IP addresses, since a state machine can't resolve names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from enum import IntEnum

from ottla.common.config.config_keys_bounds import MAX_CLIENT_QUOTAS
from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller.result import ControllerResult, check_record_count
from ottla.metadata.bounds import MAX_NAME_BYTES, check_count, is_too_long
from ottla.metadata.image import MetadataImage, QuotaEntity, quota_entity
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.metadata.snapshot import client_quota_record
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterQuotasEntry,
    AlterQuotasResult,
)
from ottla.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedEntity,
    DescribedQuota,
    DescribeQuotasEntry,
    QuotaFilterComponent,
)
from ottla.protocol.messages.metadata_records import ClientQuotaRecord
from ottla.quota.limits import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)

ENTITY_TYPES = (USER, CLIENT_ID, IP)
_FRACTION = 1e-6
"""Tolerance for integer values, which are transferred as floating-point numbers."""


class MatchType(IntEnum):
    """How a filter compares one component of an entity."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


# -- altering ----------------------------------------------------------------------------------------------------------


def handle_alter_client_quotas(
    image: MetadataImage, request: AlterClientQuotasRequest, limit: int = 100_000
) -> ControllerResult[AlterClientQuotasResponse]:
    """Change quotas per entity; `validate_only` returns the same results without records.

    `limit` is the maximum number of entities of a cluster.
    """
    added = 0
    response = AlterClientQuotasResponse()
    records: list[ApiMessageAndVersion] = []
    entities = [entity_of(entry) for entry in request.entries]
    counts = Counter(entities)
    for entry, entity in zip(request.entries, entities, strict=True):
        result = AlterQuotasResult(error_message=None, entity=entry.entity)
        response.entries.append(result)
        try:
            if counts[entity] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {_shown(entity)}")
            changes = _changes(image, entity, entry)
            check_record_count(len(records) + len(changes))
            if changes and entity not in image.client_quotas:
                check_count(len(image.client_quotas) + added, limit, "client quota entities", MAX_CLIENT_QUOTAS)
                added += 1
            records += changes
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    return ControllerResult([] if request.validate_only else records, response)


def entity_of(entry: AlterQuotasEntry) -> QuotaEntity:
    """Return the entity of an entry. An entity with too many components, which is rejected, is cut off."""
    return quota_entity((part.entity_type, part.entity_name) for part in entry.entity[: len(ENTITY_TYPES) + 1])


def _shown(entity: QuotaEntity) -> str:
    return f"ClientQuotaEntity(entries={{{', '.join(f'{kind}={name}' for kind, name in entity)}}})"


def _changes(image: MetadataImage, entity: QuotaEntity, entry: AlterQuotasEntry) -> list[ApiMessageAndVersion]:
    """Return the records for the changed quotas only. Raises KafkaError INVALID_REQUEST."""
    checks = _checks_of(entity)
    current = image.client_quotas.get(entity, {})
    wanted: dict[str, float | None] = {}
    for operation in entry.ops:
        if operation.key in wanted:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Duplicate quota key {operation.key} not updating quota for this entity {_shown(entity)}",
            )
        if not operation.remove:
            _check_value(checks, operation.key, operation.value)
        wanted[operation.key] = None if operation.remove else operation.value
    changed = {key: value for key, value in wanted.items() if value != current.get(key)}
    return [versioned(_record(entity, key, value)) for key, value in changed.items()]


def _record(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    record = client_quota_record(entity, key, value or 0.0)
    record.remove = value is None
    return record


def _check_whole(largest: int, kind: str) -> Callable[[str, float], None]:
    def check(key: str, value: float) -> None:
        if value > largest:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Proposed value for {key} is too large for {kind}.")
        if value % 1.0 > _FRACTION:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} cannot be a fractional value.")

    return check


def _check_nothing(_key: str, _value: float) -> None:
    """Accept any positive number."""


_RATES: Mapping[str, Callable[[str, float], None]] = {
    PRODUCER_BYTE_RATE: _check_whole(2**63 - 1, "a LONG"),
    CONSUMER_BYTE_RATE: _check_whole(2**63 - 1, "a LONG"),
    REQUEST_PERCENTAGE: _check_nothing,
    CONTROLLER_MUTATION_RATE: _check_nothing,
}
_RATES_OF_ADDRESSES: Mapping[str, Callable[[str, float], None]] = {
    CONNECTION_CREATION_RATE: _check_whole(2**31 - 1, "an INT")
}


def _check_value(checks: Mapping[str, Callable[[str, float], None]], key: str, value: float) -> None:
    check = checks.get(key)
    if check is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
    if not value > 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    check(key, value)


def _checks_of(entity: QuotaEntity) -> Mapping[str, Callable[[str, float], None]]:
    """Return the valid quota keys of the entity with their checks. Raises KafkaError INVALID_REQUEST for an invalid
    entity."""
    kinds = [kind for kind, _ in entity]
    problem = None
    if not kinds:
        problem = "Invalid empty client quota entity"
    for kind, name in entity:
        if kind not in ENTITY_TYPES:
            problem = f"Unhandled client quota entity type: {kind}"
        elif kinds.count(kind) > 1:
            problem = f"Invalid client quota entity, duplicate entity entry {kind}"
        elif name == "":
            problem = f"Empty {kind} not supported"
        elif is_too_long(name):
            problem = f"The {kind} is longer than {MAX_NAME_BYTES} bytes."
    if problem is None and IP in kinds:
        if len(kinds) > 1:
            problem = "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        elif not _is_address(entity[0][1]):
            problem = f"{entity[0][1]} is not a valid IP or resolvable host."
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    return _RATES_OF_ADDRESSES if IP in kinds else _RATES


def _is_address(name: str | None) -> bool:
    from ipaddress import ip_address  # here, since a start does without it

    try:
        return name is None or bool(ip_address(name))
    except ValueError:
        return False


# -- describing --------------------------------------------------------------------------------------------------------


def describe_client_quotas(image: MetadataImage, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """Return the entities that match every component, and with `strict` have no other component.

    Raises KafkaError INVALID_REQUEST, UNSUPPORTED_VERSION.
    """
    matches = {component.entity_type: _matcher(component) for component in _checked(request)}
    entries: list[DescribeQuotasEntry] = []
    for entity, quotas in image.client_quotas.items():
        parts = dict(entity)
        if request.strict and parts.keys() != matches.keys():
            continue
        if all(kind in parts and match(parts[kind]) for kind, match in matches.items()):
            entries.append(
                DescribeQuotasEntry(
                    entity=[DescribedEntity(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[DescribedQuota(key=key, value=value) for key, value in quotas.items()],
                )
            )
    return DescribeClientQuotasResponse(entries=entries)


def _matcher(component: QuotaFilterComponent) -> Callable[[str | None], bool]:
    if component.match_type == MatchType.SPECIFIED:
        return lambda _name: True
    return lambda name: name == component.match


def _checked(request: DescribeClientQuotasRequest) -> list[QuotaFilterComponent]:
    kinds = [component.entity_type for component in request.components]
    for component in request.components:
        kind, has_name = component.entity_type, component.match is not None
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kinds.count(kind) > 1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if component.match_type not in tuple(MatchType):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
        match_type = MatchType(component.match_type)
        if match_type is MatchType.EXACT and not has_name:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null."
            )
        if match_type is not MatchType.EXACT and has_name:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Request specified MATCH_TYPE_{match_type.name}, but also specified a match string.",
            )
    if IP in kinds and len(kinds) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        )
    return list(request.components)
