"""Checks dynamic configs of this broker before they are written (KIP-226).

The controller validates values; only the broker itself knows whether a keystore opens or an address can be bound. As in
Apache Kafka, it checks them first and returns the reason of a refusal. Defaults for all brokers are checked by the
broker that receives the request.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Protocol

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import ErrorResponse
from ottla.server.requests.guards import amend
from ottla.server.requests.request import Request

THREADS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
"""Settings that at most double or halve in one change, to limit the damage of a typo."""


class Proposal(Protocol):
    """Applies one resource of a request to the dynamic configs of a broker.

    Implementations: in `server.handlers.admin.alter_configs` and `server.handlers.admin.incremental_alter_configs`.
    """

    def __call__(self, current: Mapping[str, str], resource: Any, /) -> Mapping[str, str]:
        """Return the configs after the change. Raises KafkaError."""


def screen_configs(
    context: AdminContext, request: Request, message: Any, proposed: Proposal, error_response: ErrorResponse
) -> object | None:
    """Remove from `message` the resources that this broker can't apply; returns the response if none remains."""
    kept, answers = [], []
    for resource in message.resources:
        reason = _reason(context, request, resource, proposed)
        if reason is None:
            kept.append(resource)
            continue
        alone = copy.copy(message)
        alone.resources = [resource]
        answered: Any = error_response(alone, ErrorCode.INVALID_REQUEST, reason)
        answers += answered.responses
    if not answers:
        return None
    if not kept:
        response: Any = error_response(message, ErrorCode.INVALID_REQUEST, "")
        response.responses = answers
        return response  # type: ignore[no-any-return]
    message.resources = kept
    amend(request, lambda response: response.responses.extend(answers))
    return None


def _reason(context: AdminContext, request: Request, resource: Any, proposed: Proposal) -> str | None:
    """Why this broker can't apply a resource; None also for a resource that the controller will refuse."""
    config = context.config
    is_default = resource.resource_name == ""
    if resource.resource_type != ConfigResourceType.BROKER or not (
        is_default or resource.resource_name == str(config.node_id)
    ):
        return None
    if not request.allowed(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, audit=False):
        return None  # files are opened only for authorized clients
    image = context.metadata.image
    default, own = image.default_broker_configs(), image.broker_configs(config.node_id)
    try:
        if is_default:
            default = proposed(default, resource)
        else:
            own = proposed(own, resource)
        future = config.with_dynamic(default, own, report=False)
        _require_small_steps(config, future)
        for check in context.config_checks if not is_default else ():
            check(future)
    except KafkaError:
        return None
    except OperatorError as error:
        return str(error)
    return None


def _require_small_steps(config: BrokerConfig, future: BrokerConfig) -> None:
    """Raise OperatorError for a thread count that changes too much; 0 can be changed only by a restart."""
    for name in THREADS:
        now, wanted = config.get_int(name), future.get_int(name)
        least, most = max(1, now // 2), 2 * now
        if wanted != now and not least <= wanted <= most:
            way = f"one change allows {least} to {most}; use several steps" if now else "restart the broker"
            raise OperatorError(f"{name} can't be changed from {now} to {wanted}: {way}")
