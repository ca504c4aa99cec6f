"""APIs that alter configs, and the check of dynamic configs of this broker before they are written (KIP-226).

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
from ottla.controller.result import ControllerDecision
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import ErrorResponse, SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import DecidingContext, controller_api
from ottla.server.requests.guards import Items, amend, guard_configs, resource_key
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division

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

    Implementations: `server.handlers.admin.alter_configs.proposed` and
    `server.handlers.admin.incremental_alter_configs.proposed`.
    """

    def __call__(self, current: Mapping[str, str], resource: Any, config: BrokerConfig, /) -> Mapping[str, str]:
        """Return the configs after the change. Raises KafkaError."""


def alter_api(
    key: ApiKey, decide: ControllerDecision, error_response: ErrorResponse, proposed: Proposal
) -> SchemaApi[DecidingContext]:
    """API that alters configs of the `resources` of its request; each is authorized separately."""

    def guard(context: DecidingContext, request: Request, message: Any) -> object | None:
        items = Items("resources", "responses", error_response)
        return guard_configs(request, message, AclOperation.ALTER_CONFIGS, items)

    def broker_prevalidate(context: AdminContext, request: Request, message: Any) -> object | None:
        return _screen(context, request, message, proposed, error_response)

    types = (ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.GROUP)
    return controller_api(
        key,
        decide,
        error_response,
        guard=guard,
        item_needs=tuple(RequiredPermission(AclOperation.ALTER_CONFIGS, each) for each in types),
        forwarded=broker_prevalidate,
        divisions=(Division(("resources",), "responses", resource_key, mentions=2),),
    )


def _screen(
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
            default = proposed(default, resource, config)
        else:
            own = proposed(own, resource, config)
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
