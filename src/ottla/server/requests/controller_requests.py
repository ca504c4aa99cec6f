"""Requests that the controller decides: a pure function of the newest image and the request.

The channel parks until the quorum has committed the records of the decision. A request that creates partitions also
waits until this broker has opened them, so that its client can use them at once.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.controller.driver import Controller
from ottla.controller.result import ControllerContext, ControllerDecision, ControllerOperation, ControllerResult
from ottla.metadata.image import MetadataImage, ZkMigrationState
from ottla.protocol.registry import ApiKey
from ottla.quota.mutations import Mutation
from ottla.replica.manager import ReplicaManager
from ottla.server.requests.api import BrokerPrevalidate, ErrorResponse, Guard, SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.enveloped_channel import EnvelopedChannel
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division

_BEFORE_TAKEOVER: Final = frozenset(
    {
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UNREGISTER_CONTROLLER,
        ApiKey.UPDATE_FEATURES,
    }
)
"""APIs that a quorum decides while ZooKeeper still stores the cluster (KIP-866)."""


class ControllerQueue:
    """The controller of this node, as handlers use it."""

    __slots__ = ("_controller", "_replicas")

    def __init__(self, controller: Controller, replicas: ReplicaManager) -> None:
        self._controller = controller
        self._replicas = replicas

    @property
    def active(self) -> bool:
        """Whether this node decides; otherwise every request gets NOT_CONTROLLER."""
        return self._controller.active

    def mutation(self, request: Request, image: MetadataImage, context: ControllerContext, *, strict: bool) -> Mutation:
        """The charge for partitions that a request creates or deletes."""
        quotas = {} if context.config.ignores_quotas else image.client_quotas
        return self._controller.mutations.begin(
            quotas, request.principal, request.client_id or "", context.now_ms / 1000, strict=strict
        )

    @property
    def image(self) -> MetadataImage:
        """The newest image, committed or not; valid only while this node is active."""
        return self._controller.image

    def heard_from(self, broker_id: int) -> None:
        """On ZooKeeper: a broker fetched metadata from this node, so it is alive."""
        self._controller.heard_from(broker_id)

    def submit(self, request: Request, operation: ControllerOperation[Any], *, makes_partitions: bool = False) -> None:
        """Run `operation` in the controller's order and answer with its response once its records are committed.

        Before the migration of a cluster from ZooKeeper, a quorum refuses operations on data that the migration brings.
        """

        def decide(image: MetadataImage, context: ControllerContext) -> ControllerResult[Any]:
            waits = image.zk_migration_state is ZkMigrationState.PRE_MIGRATION
            if waits and request.api_key not in _BEFORE_TAKEOVER:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "ZooKeeper stores the cluster until this quorum takes over.")
            return operation(image, context)

        def done(response: object | None, error: BaseException | None) -> None:
            channel = request.channel
            lost = isinstance(error, KafkaError) and error.code is ErrorCode.NOT_CONTROLLER
            if lost and isinstance(channel, EnvelopedChannel):
                # The forwarding broker retries with the next controller; its client need not know.
                channel.refuse(ErrorCode.NOT_CONTROLLER)
            elif error is None and makes_partitions:
                self._replicas.opening.when_opened(lambda: request.answer(lambda: _outcome(response, None)))
            else:
                request.answer(lambda: _outcome(response, error))

        self._controller.submit(decide, done)


class DecidingContext(Protocol):
    """A handler context with a controller."""

    @property
    def decisions(self) -> ControllerQueue: ...


def controller_api(
    key: ApiKey,
    decide: ControllerDecision,
    error_response: ErrorResponse,
    *,
    needs: RequiredPermission | None = None,
    item_needs: tuple[RequiredPermission, ...] = (),
    guard: Guard[DecidingContext] | None = None,
    forwarded: bool | BrokerPrevalidate[Any] = False,
    makes_partitions: bool = False,
    refused_from: int | None = None,
    divisions: tuple[Division, ...] = (),
) -> SchemaApi[DecidingContext]:
    """API whose response is the controller's decision.

    `refused_from`: it creates or deletes partitions and is charged for them; a client above its quota is refused from
    this version on, and throttled below it (KIP-599).
    """

    def handle(context: DecidingContext, request: Request, message: Any) -> None:
        decisions = context.decisions

        def operation(image: MetadataImage, controller: ControllerContext) -> ControllerResult[Any]:
            if refused_from is None:
                return decide(image, message, controller)
            mutation = decisions.mutation(request, image, controller, strict=request.api_version >= refused_from)
            result = decide(image, message, controller._replace(mutation=mutation))
            result.response.throttle_time_ms = mutation.throttle_ms
            return result

        decisions.submit(request, operation, makes_partitions=makes_partitions)

    return SchemaApi(
        key,
        handle,
        error_response,
        needs=needs,
        item_needs=item_needs,
        guard=guard,
        forwarded=forwarded,
    ).divided(*divisions)


def _outcome(response: object | None, error: BaseException | None) -> object:
    if error is not None:
        raise error
    if response is None:
        raise InvariantError("a committed operation has no response")
    return response
