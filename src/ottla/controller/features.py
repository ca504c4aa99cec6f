"""UpdateFeatures: finalized levels of features (KIP-584, KIP-778, KIP-1022).

All updates of a request take effect or none. The range of levels that this broker supports decides, and only completely
implemented features are in it; see `ottla.metadata.records.SUPPORTED_FEATURES`. All other nodes must support the level
too, because they could not continue otherwise: raise a level after the last of them was upgraded. metadata.version can
be lowered only if the lower level can represent all existing records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.config.feature_levels import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    METADATA_LEVELS,
    METADATA_VERSION,
    NEW_CLUSTER_LEVELS,
    metadata_changed,
    unmet_need,
)
from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller.result import MIN_ISR, ControllerContext, ControllerResult, elr_enabled
from ottla.metadata.image import MetadataImage, VersionRange, ZkMigrationState
from ottla.metadata.records import REGISTERED_FEATURES, SUPPORTED_FEATURES, ApiMessageAndVersion, versioned
from ottla.protocol.messages.metadata_records import ConfigRecord, FeatureLevelRecord

if TYPE_CHECKING:
    from ottla.protocol.messages.update_features import (
        FeatureUpdateKey,
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def bootstrap_records(levels: Mapping[str, int] = NEW_CLUSTER_LEVELS) -> list[ApiMessageAndVersion]:
    """Return the first records of a new cluster: every feature's level, metadata.version first, as readers need it."""
    names = sorted(levels, key=lambda name: (name != METADATA_VERSION, name))
    return [versioned(FeatureLevelRecord(name=name, feature_level=levels[name])) for name in names]


def elr_safety_records(image: MetadataImage, static_min_isr: int) -> list[ApiMessageAndVersion]:
    """Return records that make `min.insync.replicas` a cluster-wide setting, as eligible leader replicas need
    (KIP-966).

    All controllers have to use the same number for them. So values of single brokers are removed, and the static value
    of this controller (`static_min_isr`) is stored, unless the cluster already has a value. If a broker had a larger
    value, that one is stored, so that no durability guarantee weakens. Returns no records if nothing changes.
    """
    own = {
        resource.name: settings[MIN_ISR]
        for resource, settings in sorted(image.configs.items())
        if resource.type is ConfigResourceType.BROKER and resource.name and MIN_ISR in settings
    }
    records = [_min_isr_record(broker, None) for broker in own]
    if MIN_ISR not in image.default_broker_configs():
        records.append(_min_isr_record("", str(max([static_min_isr, *map(int, own.values())]))))
    return records


def _min_isr_record(broker: str, value: str | None) -> ApiMessageAndVersion:
    return versioned(
        ConfigRecord(resource_type=ConfigResourceType.BROKER, resource_name=broker, name=MIN_ISR, value=value)
    )


def activation_records(
    image: MetadataImage,
    static_min_isr: int,
    formatted: Sequence[ApiMessageAndVersion] = (),
    *,
    migrates: bool = False,
) -> list[ApiMessageAndVersion]:
    """Return the records a new active controller has to write: all in a new cluster, `elr_safety_records` in an older
    one.

    `formatted` are the first records of a cluster that was formatted with them (KIP-1170). A controller that `migrates`
    from ZooKeeper disables eligible leader replicas, which ZooKeeper's tree can't represent.
    """
    new = [] if image.features else [*formatted] or bootstrap_records()
    if migrates:
        new = [each for each in new if ELIGIBLE_LEADER_REPLICAS_VERSION not in levels_in([each])]
    keeps_elr = elr_enabled(image) or levels_in(new).get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0
    return new + (elr_safety_records(image, static_min_isr) if keeps_elr else [])


def levels_in(records: Iterable[ApiMessageAndVersion]) -> dict[str, int]:
    """Return the levels that `records` finalize, by feature."""
    return {
        record.message.name: record.message.feature_level
        for record in records
        if isinstance(record.message, FeatureLevelRecord)
    }


def handle_update_features(
    image: MetadataImage, request: UpdateFeaturesRequest, version: int, context: ControllerContext
) -> ControllerResult[UpdateFeaturesResponse]:
    """Check all updates; the first error fails the request as a whole, as in Apache Kafka 4.

    The last update of a feature counts. Dependencies between finalized features have to hold after the request, also if
    it names only one of them. `validate_only` returns no records. The request's `version` decides how a downgrade is
    marked, and whether a successful response lists the features.
    """
    from ottla.protocol.messages.update_features import (  # imported here: every start uses this module
        UpdatableFeatureResult,
        UpdateFeaturesResponse,
    )

    records: list[ApiMessageAndVersion] = []
    names_voters = False
    updates = {update.feature: update for update in request.feature_updates}
    proposed = {**image.features, **{name: update.max_version_level for name, update in updates.items()}}
    for update in updates.values():
        try:
            if update.feature == KRAFT_VERSION:
                names_voters = _check_kraft_version(image, update, _upgrade_type(update, version), context)
                continue
            changed = _check_update(image, update, _upgrade_type(update, version))
            _check_metadata_version(image, update, _upgrade_type(update, version))
            _check_needs(update, proposed)
        except KafkaError as error:
            text = f"The update failed for all features since the following feature had an error: {error.message}"
            return ControllerResult([], UpdateFeaturesResponse(error_code=error.code, error_message=text))
        if changed:
            record = FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level)
            records.append(versioned(record))
    if ELIGIBLE_LEADER_REPLICAS_VERSION in updates and updates[ELIGIBLE_LEADER_REPLICAS_VERSION].max_version_level > 0:
        records += elr_safety_records(image, context.config.get_int(MIN_ISR))
    results = [] if version > 1 else [UpdatableFeatureResult(feature=name) for name in updates]
    response = UpdateFeaturesResponse(results=results)
    if request.validate_only:
        return ControllerResult([], response)
    return ControllerResult(records, response, names_voters=names_voters)


def _upgrade_type(update: FeatureUpdateKey, version: int) -> int:
    if version == 0:
        return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    return update.upgrade_type


def _check_kraft_version(
    image: MetadataImage, update: FeatureUpdateKey, upgrade_type: int, context: ControllerContext
) -> bool:
    """Return whether the metadata log has to name the voters now. Raises KafkaError INVALID_UPDATE_VERSION.

    kraft.version is not a feature record: the leader of the metadata log writes it (KIP-853), once each configured
    voter has reported its directory. It can't be downgraded.
    """
    new, current = update.max_version_level, context.kraft_version
    supported = REGISTERED_FEATURES[KRAFT_VERSION]
    problem = _type_problem(new, current, upgrade_type)
    if not supported.low <= new <= supported.high:
        problem = f"Local controller only supports versions {supported.low}-{supported.high}"
    elif problem is None and new > current:
        problem = _node_without(image, KRAFT_VERSION, new)
    elif problem is None and new < current:
        problem = "Can't downgrade the version of this feature."
    if problem is not None:
        raise _invalid(update, problem)
    if new > current:
        context.check_voters()
    return new > current


def _type_problem(new: int, current: int, upgrade_type: int) -> str | None:
    """Return the problem with the update's upgrade type, or None."""
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if new < current and upgrade_type == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if new > current and upgrade_type != UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def _invalid(update: FeatureUpdateKey, problem: str) -> KafkaError:
    text = f"Invalid update version {update.max_version_level} for feature {update.feature}. {problem}"
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, text)


def _check_update(image: MetadataImage, update: FeatureUpdateKey, upgrade_type: int) -> bool:
    """Return whether the update changes the level. Raises KafkaError INVALID_UPDATE_VERSION."""
    new, current = update.max_version_level, image.features.get(update.feature, 0)
    supported = SUPPORTED_FEATURES.get(update.feature)
    problem = None
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        problem = "The controller does not support the given upgrade type."
    elif new < 0:
        problem = "A feature version cannot be less than 0."
    elif supported is None:
        problem = "Local controller does not support this feature." if new else f"Feature {update.feature} not found."
    elif not supported.low <= new <= supported.high:
        problem = f"Local controller only supports versions {supported.low}-{supported.high}"
    elif new and update.feature == ELIGIBLE_LEADER_REPLICAS_VERSION and _may_go_back(image):
        problem = "Eligible leader replicas can't be stored in ZooKeeper, from which this cluster migrates."
    elif (unable := _node_without(image, update.feature, new)) is not None:
        problem = unable
    else:
        problem = _type_problem(new, current, upgrade_type)
    if problem is not None:
        raise _invalid(update, problem)
    return new != current


def _may_go_back(image: MetadataImage) -> bool:
    return image.zk_migration_state in (ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION)


def _check_metadata_version(image: MetadataImage, update: FeatureUpdateKey, upgrade_type: int) -> None:
    """Raise KafkaError INVALID_UPDATE_VERSION for a level that can't represent existing records."""
    new, current = update.max_version_level, image.features.get(update.feature, 0)
    if update.feature == METADATA_VERSION and new < current and metadata_changed(new, current):
        reason = (
            "Unsafe metadata downgrade is not supported in this version."
            if upgrade_type == UNSAFE_DOWNGRADE
            else "Refusing to perform the requested downgrade because it might delete metadata information."
        )
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {METADATA_LEVELS[current].name} to "
            f"{METADATA_LEVELS[new].name}. {reason}",
        )


def _check_needs(update: FeatureUpdateKey, proposed: Mapping[str, int]) -> None:
    """Raise KafkaError INVALID_UPDATE_VERSION for unmet dependencies of the updated or of another feature.

    `proposed` are the levels after the whole request.
    """
    unmet = unmet_need(proposed)
    if unmet is not None and update.feature in (unmet[0], unmet[2]):
        name, level, other, needed = unmet
        raise _invalid(update, f"{name} could not be set to {level} because it depends on {other} level {needed}")


def _node_without(image: MetadataImage, feature: str, level: int) -> str | None:
    """Return the problem of the first registered node that does not support the level of the feature, or None."""
    nodes = [(f"Broker {broker_id}", broker.features) for broker_id, broker in image.brokers.items()]
    nodes += [(f"Controller {node_id}", controller.features) for node_id, controller in image.controllers.items()]
    for name, features in nodes:
        supported = features.get(feature, VersionRange(0, 0))
        if not supported.low <= level <= supported.high:
            if not supported.high:
                return f"{name} does not support this feature."
            return f"{name} only supports versions {supported.low}-{supported.high}"
    return None
