"""Known config names, and suggestions for misspelled ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.cli.command import notify
from ottla.common.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.client.wire.model import ResourceType


def known_settings(resource_type: ResourceType) -> Iterable[str]:
    """All config names of a resource type."""
    from ottla.client.wire.model import ResourceType

    if resource_type is ResourceType.TOPIC:
        from ottla.common.config.topic_configs import TOPIC_CONFIGS

        return TOPIC_CONFIGS
    if resource_type is ResourceType.GROUP:
        from ottla.common.config.group_configs import GROUP_CONFIGS

        return GROUP_CONFIGS
    if resource_type is ResourceType.CLIENT_METRICS:
        from ottla.common.config.client_metrics_configs import CLIENT_METRICS_CONFIGS

        return CLIENT_METRICS_CONFIGS
    from ottla.common.config.config_keys_broker import BROKER_CONFIGS

    return BROKER_CONFIGS


def warn_of_unknown(resource_type: ResourceType, names: Iterable[str]) -> None:
    """Print a warning for each config that the broker stored although Ottla does not know it."""
    from ottla.client.wire.model import ResourceType
    from ottla.common.config.broker_configs import unknown_settings
    from ottla.common.config.unsupported_configs import INERT_CONFIGS, STORED_CONFIGS
    from ottla.common.suggestion import did_you_mean

    known = known_settings(resource_type)
    if resource_type is ResourceType.BROKER:
        unknown = unknown_settings(names)
    else:
        unknown = set(names).difference(known, INERT_CONFIGS, STORED_CONFIGS)
    for name in sorted(unknown):
        hint = did_you_mean(name, known)
        notify(f"warning: {name} is not a {resource_type.name.lower()} config of Ottla and has no effect{hint}")


@contextmanager
def names_explained(resource_type: ResourceType, names: Iterable[str]) -> Iterator[None]:
    """Reraise a rejection by the broker with a suggestion for each unknown name in `names`."""
    from ottla.common.suggestion import did_you_mean

    try:
        yield
    except KafkaError as error:
        if error.code not in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST):
            raise
        known = known_settings(resource_type)
        hints = [did_you_mean(name, known) for name in names if name not in known]
        raise KafkaError(error.code, error.message.rstrip(".") + "".join(hints)) from error
