"""APIs of a broker on ZooKeeper that other brokers use when it is the controller.

Without a controller's listener, other brokers use the inter-broker listener, and only that, as in Apache Kafka. All
these APIs need ClusterAction. Fetch has a single row there. A fetch of only the metadata log, as followers of the
controller send it, is recognized by the bytes of its topic id, so that other fetches are not parsed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.common.kafka.ids import METADATA_TOPIC_ID
from ottla.common.platform.channel import Part
from ottla.controller.registration import handle_broker_heartbeat
from ottla.controller.result import ControllerContext, ControllerResult
from ottla.metadata.image import MetadataImage
from ottla.protocol.codec import read_message
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.quorum.apis import QUORUM_APIS
from ottla.server.handlers.quorum.broker_heartbeat import BROKER_HEARTBEAT
from ottla.server.handlers.quorum.context import ZooKeeperContext
from ottla.server.requests.api import ApiBinding, RawApi, SchemaApi
from ottla.server.requests.controller_requests import DecidingContext, controller_api
from ottla.server.requests.request import Request

_BETWEEN_BROKERS = frozenset(
    {
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ALTER_PARTITION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ENVELOPE,
        ApiKey.FETCH_SNAPSHOT,
    }
)
_OF_A_QUORUM = frozenset({ApiKey.UNREGISTER_BROKER, ApiKey.UNREGISTER_CONTROLLER})
"""On ZooKeeper a broker is registered for the duration of its session."""
_FIXED_FIELDS_FROM = 15
"""From this version of Fetch on the topics follow fields of a fixed size (KIP-903)."""
_TOPICS_AT = 21
_METADATA_ALONE = b"\x02" + METADATA_TOPIC_ID
"""An array of one topic, by its id."""


def served_between_brokers(served: Sequence[ApiBinding], context: ZooKeeperContext) -> list[ApiBinding]:
    """A broker's APIs without those of a quorum, plus these."""
    rows = [row for row in QUORUM_APIS if row.key in _BETWEEN_BROKERS]
    added = [
        ApiBinding(row.served_only_on(context.listener_name), context)
        for row in (row.changed(_heartbeat_at_the_end()) if row.key is ApiKey.BROKER_HEARTBEAT else row for row in rows)
    ]
    own = (each for each in served if each.row.key not in _OF_A_QUORUM)
    return [_with_metadata(each, context) if each.row.key is ApiKey.FETCH else each for each in (*own, *added)]


def _heartbeat_at_the_end() -> SchemaApi[DecidingContext]:
    """BrokerHeartbeat for controlled shutdown only; other heartbeats are INVALID_REQUEST: brokers have sessions."""

    def decide(
        image: MetadataImage, message: BrokerHeartbeatRequest, controller: ControllerContext
    ) -> ControllerResult[BrokerHeartbeatResponse]:
        if message.want_fence or not message.want_shut_down:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Brokers on ZooKeeper have sessions there, and no heartbeats.")
        # The controller is an active broker too, but does not fetch metadata.
        controller.heartbeats.heard_from(controller.config.node_id, controller.now_ms)
        return handle_broker_heartbeat(image, message, controller)

    own = BROKER_HEARTBEAT
    return controller_api(own.key, decide, own.error_response, needs=own.needs)


def _with_metadata(fetch: ApiBinding, context: ZooKeeperContext) -> ApiBinding:
    """A broker's Fetch API that serves the metadata log too."""
    own = fetch.row.api
    if not isinstance(own, RawApi):
        raise InvariantError("Fetch has a codec of its own")
    serve_records = own.serve

    def serve(records: Any, request: Request, buffer: bytearray, body_start: int, end: int) -> list[Part] | None:
        topics_at = body_start + _TOPICS_AT
        if (
            buffer[topics_at : topics_at + len(_METADATA_ALONE)] != _METADATA_ALONE
            or request.api_version < _FIXED_FIELDS_FROM
            or request.listener_name != context.listener_name
        ):
            return serve_records(records, request, buffer, body_start, end)
        message, _ = read_message(FetchRequest, request.api_version, buffer, body_start, end)
        try:
            if not request.allowed(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
                raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            context.decisions.heard_from(message.replica_state.replica_id)
            context.service.fetch(message, request.answer_with)
        except KafkaError as error:
            request.answer_with(FetchResponse(error_code=error.code))
        return None

    api = RawApi(ApiKey.FETCH, serve, item_needs=own.item_needs)
    return ApiBinding(fetch.row.changed(api), fetch.context)
