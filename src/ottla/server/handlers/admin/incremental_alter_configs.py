"""IncrementalAlterConfigs (44): versions 0 to 1. Changes single configs (KIP-339)."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_def import ConfigResourceType
from ottla.controller.configs import altered, handle_incremental_alter_configs
from ottla.metadata.image import ConfigResource
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.reconfiguration import alter_api
from ottla.server.requests.api import resource_errors


def proposed(old: Mapping[str, str], item: AlterConfigsResource, config: BrokerConfig) -> Mapping[str, str]:
    """See `Proposal`."""
    return altered(old, item.configs, ConfigResource(ConfigResourceType.BROKER, item.resource_name), config)


INCREMENTAL_ALTER_CONFIGS = alter_api(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    handle_incremental_alter_configs,
    resource_errors(IncrementalAlterConfigsResponse, "responses", AlterConfigsResourceResponse),
    proposed,
)
