"""UpdateFeatures: finalized levels of features (KIP-584, KIP-778, KIP-1022).

All updates of a request take effect or none. Only features whose behaviour is complete can be finalized, so the range
of levels that this broker supports decides; see `ottla.metadata.records.SUPPORTED_FEATURES`. All other nodes must
support the level too, or they could not go on: a level is raised after the last of them was upgraded. A level of
metadata.version is left for a lower one only where the lower one can hold all that was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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
from ottla.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def bootstrap_records(levels: Mapping[str, int] = NEW_CLUSTER_LEVELS) -> list[ApiMessageAndVersion]:
    """The first records of a new cluster: every feature at its level, metadata.version first, as readers need it."""
    names = sorted(levels, key=lambda name: (name != METADATA_VERSION, name))
    return [versioned(FeatureLevelRecord(name=name, feature_level=levels[name])) for name in names]


def elr_safety_records(image: MetadataImage, static_min_isr: int) -> list[ApiMessageAndVersion]:
    """What makes `min.insync.replicas` a setting of the whole cluster, as eligible leader replicas need it (KIP-966).

    They are kept by one number that every controller sees. So brokers lose values of their own, and what the file of
    this controller says (`static_min_isr`) is written down, unless the cluster has a value already; where a broker
    asked for more, that, so that no promise becomes weaker. Nothing, where it is so already.
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
    """What an active controller finds missing: all of it in a new cluster, `elr_safety_records` in an older one.

    `formatted` are the first records of a cluster whose formatting said which (KIP-1170). One that `migrates` from
    ZooKeeper has no eligible leader replicas, for which there is no place in its tree.
    """
    new = [] if image.features else [*formatted] or bootstrap_records()
    if migrates:
        new = [each for each in new if ELIGIBLE_LEADER_REPLICAS_VERSION not in levels_in([each])]
    keeps_elr = elr_enabled(image) or levels_in(new).get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0
    return new + (elr_safety_records(image, static_min_isr) if keeps_elr else [])


def levels_in(records: Iterable[ApiMessageAndVersion]) -> dict[str, int]:
    """The levels that `records` finalize, by feature."""
    return {
        record.message.name: record.message.feature_level
        for record in records
        if isinstance(record.message, FeatureLevelRecord)
    }


def handle_update_features(
    image: MetadataImage, request: UpdateFeaturesRequest, version: int, context: ControllerContext
) -> ControllerResult[UpdateFeaturesResponse]:
    """Check all updates; the first that fails is told for the request as a whole, as by Apache Kafka 4.

    A feature that is named twice gets the last mention. What any finalized feature needs of another one has to hold
    after the request, also where it names only one of them. `validate_only` gives no records; `version` of the request
    decides how an update asks for a downgrade and whether a success lists its features.
    """
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
    """Whether the metadata log shall name the voters now; raises KafkaError INVALID_UPDATE_VERSION when it can't be.

    That is no record of a feature: who leads the metadata log writes it (KIP-853), once each voter that the
    configuration names has told its directory. Nothing takes it back.
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
    """What is wrong with how the update says that it goes up or down."""
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
    """Whether the update changes something; raises KafkaError INVALID_UPDATE_VERSION when it can't be."""
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
        problem = "Eligible leader replicas can't be kept in ZooKeeper, from which this cluster migrates."
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
    """Raise KafkaError INVALID_UPDATE_VERSION for a level that can't hold what was written."""
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
    """Raise KafkaError INVALID_UPDATE_VERSION where the update, or what it leaves as it is, lacks what it needs.

    `proposed` are the levels as they would be after the whole request.
    """
    unmet = unmet_need(proposed)
    if unmet is not None and update.feature in (unmet[0], unmet[2]):
        name, level, other, needed = unmet
        raise _invalid(update, f"{name} could not be set to {level} because it depends on {other} level {needed}")


def _node_without(image: MetadataImage, feature: str, level: int) -> str | None:
    """The first registered node that does not support the level of the feature, and what it supports."""
    nodes = [(f"Broker {broker_id}", broker.features) for broker_id, broker in image.brokers.items()]
    nodes += [(f"Controller {node_id}", controller.features) for node_id, controller in image.controllers.items()]
    for name, features in nodes:
        supported = features.get(feature, VersionRange(0, 0))
        if not supported.low <= level <= supported.high:
            if not supported.high:
                return f"{name} does not support this feature."
            return f"{name} only supports versions {supported.low}-{supported.high}"
    return None
