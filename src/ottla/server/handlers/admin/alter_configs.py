"""AlterConfigs (33): versions 0 to 2. Replaces all configs of a resource; deprecated, still used."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.common.config.broker_configs import BrokerConfig
from ottla.controller.configs import handle_alter_configs
from ottla.protocol.messages.alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.reconfiguration import alter_api
from ottla.server.requests.api import resource_errors


def proposed(_old: Mapping[str, str], item: AlterConfigsResource, _config: BrokerConfig) -> Mapping[str, str]:
    """See `Proposal`."""
    return {config.name: config.value for config in item.configs if config.value is not None}


ALTER_CONFIGS = alter_api(
    ApiKey.ALTER_CONFIGS,
    handle_alter_configs,
    resource_errors(AlterConfigsResponse, "responses", AlterConfigsResourceResponse),
    proposed,
)
