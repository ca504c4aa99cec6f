"""One request in progress: the requester, and the delivery of the response.

A handler either returns its response or parks the request and later calls `answer`, `answer_with` or
`respond_parts` exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ottla.common.kafka.acl import CLUSTER_NAME, AclOperation, ResourceType
from ottla.common.platform.channel import Channel, Part
from ottla.protocol.registry import API
from ottla.replica.purgatory import DelayedOperation
from ottla.security.authorizer import StandardAuthorizer
from ottla.server.requests.authorization import EVERY_OPERATION, OPERATIONS, operation_bits


class RequestOwner(Protocol):
    """The dispatcher, as a request and its handler use it."""

    @property
    def serves_controller(self) -> bool:
        """Whether this is a controller's listener, which forwards nothing."""
        ...

    @property
    def authorizer(self) -> StandardAuthorizer | None:
        """Authorizes requests; None allows everything."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether no long work may start any more."""
        ...

    def apis(self, listener_name: str) -> list[int]:
        """The keys of all APIs that a listener of this node serves, in order."""
        ...

    def may_be_forwarded(self, data: bytearray) -> bool:
        """Whether the request in `data` is one that brokers forward to the controller."""
        ...

    def handle(self, channel: Channel, buffer: bytearray, start: int, end: int) -> list[Part] | None:
        """Serve another request, which was contained in this one."""
        ...

    def parked(self, request: Request, operation: DelayedOperation) -> None:
        """Remember which operation to cancel when the connection of `request` closes."""
        ...

    def answer_parked(self, request: Request, build: Callable[[], object]) -> None:
        """Complete a parked request of a declared API."""
        ...

    def finish_parked(self, request: Request, parts: list[Part]) -> None:
        """Send the response of a parked request."""
        ...

    def count_error(self, request: Request, error_code: int) -> None:
        """Count an error code in a response."""
        ...


class Request:
    """The header of a request and its connection."""

    __slots__ = (
        "amend",
        "api_key",
        "api_version",
        "channel",
        "client_id",
        "correlation_id",
        "dispatcher",
        "errors",
        "message",
        "remember",
        "started_s",
    )

    def __init__(
        self,
        dispatcher: RequestOwner,
        channel: Channel,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        started_s: float,
    ) -> None:
        self.dispatcher = dispatcher
        self.channel = channel
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.started_s = started_s
        self.message: object | None = None
        """The message of a declared API, once it was parsed."""
        self.amend: Callable[[Any], object] | None = None
        """The guard's change of the response of a declared API: gets and returns the response. See `amended`."""
        self.remember: Callable[[bytes, Sequence[int]], None] | None = None
        """Caches the encoded response of a declared API, and its errors, for equal requests. It must not refer to
        this request: such a cycle would keep a large message until a garbage collection."""
        self.errors: Sequence[int] = ()
        """Error codes in the response of a declared API, once it was built."""

    def amended(self, response: object) -> object:
        """The response after the guard's change, or a generator of it; to be called once.

        The change usually refers to this request, so the reference to it is dropped: such a cycle would keep a large
        message until a garbage collection.
        """
        change, self.amend = self.amend, None
        return response if change is None else change(response)

    @property
    def principal(self) -> str:
        """The requester as "User:name": of the connection, or of the forwarded client."""
        return self.channel.principal

    @property
    def listener_name(self) -> str:
        return self.channel.listener.name

    def allowed(
        self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME, *, audit: bool = True
    ) -> bool:
        """Whether the requester may do this with one resource; `audit` is False if the request does not name it."""
        authorizer = self.dispatcher.authorizer
        return authorizer is None or authorizer.allows(
            self.principal,
            self.channel.client_host,
            operation,
            resource_type,
            name,
            request=API[self.api_key].name,
            audit=audit,
        )

    def allowed_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the requester may do this with any resource of a type."""
        authorizer = self.dispatcher.authorizer
        return authorizer is None or authorizer.allows_any(
            self.principal, self.channel.client_host, operation, resource_type, request=API[self.api_key].name
        )

    @property
    def is_guarded(self) -> bool:
        """Whether an authorizer is configured."""
        return self.dispatcher.authorizer is not None

    def authorized_operations(self, resource_type: ResourceType, name: str) -> int:
        """The bit set of the requester's authorized operations on a topic, a group or the cluster."""
        if self.dispatcher.authorizer is None:
            return EVERY_OPERATION[resource_type]
        return operation_bits(
            each for each in OPERATIONS[resource_type] if self.allowed(each, resource_type, name, audit=False)
        )

    def cluster_operations(self) -> int:
        """Authorized operations on the cluster; none without DESCRIBE on it."""
        if not self.allowed(AclOperation.DESCRIBE, ResourceType.CLUSTER, audit=False):
            return 0
        return self.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME)

    def answer(self, build: Callable[[], object]) -> None:
        """Complete a parked request with the message that `build` returns; its exception becomes an error response."""
        self.dispatcher.answer_parked(self, build)

    def answer_with(self, response: object) -> None:
        """Complete a parked request with this message."""
        self.answer(lambda: response)

    def respond_parts(self, parts: list[Part]) -> None:
        """Complete a parked request with an encoded response; an empty list means no response."""
        self.dispatcher.finish_parked(self, parts)

    def count_error(self, error_code: int) -> None:
        """Count an error code in the response of a hot API."""
        self.dispatcher.count_error(self, error_code)
