"""Channel from this broker to the active controller, in this process or over a connection (KIP-590, KIP-631).

It sends two kinds of requests. A request of the broker itself (`send`, `send_until`) is one message with its response.
A client's request (`forward`) is sent unchanged in an Envelope, and the response returns as the controller wrote it. An
error of a request as a whole is a KafkaError to the caller, wherever the controller is.

Each kind has a connection of its own: the controller answers requests of one connection in order, and a heartbeat
behind many client requests would arrive too late for the session of this broker.

Invariants: `done` is called exactly once, never within the call, unless `close` comes first; a connection to a node
that is no longer the leader is closed, which fails its pending requests.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.platform.clock import Clock, Scheduler
from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.peer import ControllerDone, PeerNetwork
from ottla.controller.driver import Controller
from ottla.controller.requests import operation_of
from ottla.controller.result import ControllerContext, ControllerOperation, ControllerResult
from ottla.metadata.image import MetadataImage
from ottla.net.peer_link import PeerLink
from ottla.net.peer_messages import send_message
from ottla.protocol.framing import SIZE_BYTES
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.registry import VERSIONS, ApiKey

if TYPE_CHECKING:
    from ottla.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from ottla.protocol.messages.envelope import EnvelopeResponse

RETRY_S = 0.05
"""Delay between two tries: a new controller is available within fractions of a second."""
ATTEMPT_TIMEOUT_S = 5.0
"""Timeout of one try: a controller that is silent for longer is probably no longer active."""
FORWARD_TIMEOUT_S = 30.0
"""Total time for a client's request, like `request.timeout.ms` of Apache Kafka's brokers."""
EXPLAINED_TIMEOUT_S = 3.0
"""Total time for a client's request whose error explains why there is no controller. An election is shorter."""

Error = BaseException | None
ForwardDone = Callable[[bytes | None, Error], None]


class RequestOrigin(NamedTuple):
    """The client of a request, as far as the controller needs it."""

    principal: str
    client_id: str
    client_host: str


class ControllerChannel:
    """Implements `ControllerRequests` for one broker."""

    __slots__ = ("_client_link", "_clock", "_closed", "_controller", "_endpoint", "_own_link", "_scheduler")

    def __init__(
        self,
        controller: Controller | None,
        endpoint: Callable[[], Endpoint | None],
        peers: PeerNetwork | None,
        *,
        clock: Clock,
        scheduler: Scheduler,
    ) -> None:
        """`endpoint` returns the active controller's endpoint; without `peers` it is always `controller`, and without a
        `controller` never in this process."""
        self._controller = controller
        self._endpoint = endpoint
        self._own_link = None if peers is None else PeerLink(peers)
        """Link for requests of the broker itself."""
        self._client_link = None if peers is None else PeerLink(peers)
        """Link for envelopes."""
        self._clock = clock
        self._scheduler = scheduler
        self._closed = False

    # -- requests of this broker -------------------------------------------------------------------------------------

    def send(self, message: object, done: ControllerDone, timeout_s: float) -> None:
        """One try; see `ControllerRequests`."""
        if self._controller is not None and self._controller.active:
            self._controller.submit(operation_of(message), self._later(done))
            return

        def answered(response: Any, error: BaseException | None) -> None:
            if self._closed:
                return
            refusal = error if error is not None else _refusal(response)
            if refusal is None:
                done(response, None)
            else:
                done(None, refusal)

        self._send_away(self._own_link, message, answered, timeout_s)

    def send_until(self, message: object, done: ControllerDone, timeout_s: float) -> None:
        """Retry until a controller decides; REQUEST_TIMED_OUT after `timeout_s`. A failed try may have taken effect."""

        def attempt(answered: ControllerDone) -> None:
            self.send(message, answered, min(ATTEMPT_TIMEOUT_S, timeout_s))

        self._repeat(attempt, done, timeout_s)

    def create_for(
        self,
        client: RequestOrigin,
        message: CreateTopicsRequest,
        done: Callable[[CreateTopicsResponse | None, Error], None],
    ) -> None:
        """Like `send_until`, for topics needed by a request of `client`, which is charged as if it had created them."""

        def attempt(answered: ControllerDone) -> None:
            controller = self._controller
            if controller is not None and controller.active:
                controller.submit(_charged(controller, client, message), self._later(answered))
                return
            key, version = ApiKey.CREATE_TOPICS, VERSIONS[ApiKey.CREATE_TOPICS].high
            data = encode_request(key, version, 0, client.client_id, message)[SIZE_BYTES:]

            def opened(response: bytes | None, error: Error) -> None:
                created = None if response is None else decode_response(key, version, response)[1]
                answered(created, error)

            self._enclose(data, client.principal, client.client_host, opened, ATTEMPT_TIMEOUT_S)

        self._repeat(attempt, done, ATTEMPT_TIMEOUT_S)

    def _later(self, done: ControllerDone) -> ControllerDone:
        return lambda response, error: self._answer_later(done, response, error)

    def _answer_later(self, done: ControllerDone, response: Any, error: BaseException | None) -> None:
        self._scheduler.call_soon(self._answer, done, response, error)

    def _answer(self, done: ControllerDone, response: Any, error: BaseException | None) -> None:
        if not self._closed:
            done(response, error)

    # -- requests of clients -----------------------------------------------------------------------------------------

    @property
    def local(self) -> bool:
        """Whether the active controller is in this process, so that nothing has to be forwarded."""
        return self._controller is not None and self._controller.active

    def forward(
        self,
        request: bytes,
        principal: str,
        client_host: str,
        done: ForwardDone,
        timeout_s: float = FORWARD_TIMEOUT_S,
    ) -> None:
        """Send a client's request, header included, with its principal; deliver its response, header included."""

        def attempt(answered: ControllerDone) -> None:
            self._enclose(request, principal, client_host, answered, timeout_s)

        self._repeat(attempt, done, timeout_s)

    def _enclose(self, request: bytes, principal: str, host: str, answered: ForwardDone, timeout_s: float) -> None:
        """One try with an envelope."""
        from ottla.protocol.messages.envelope import EnvelopeRequest  # imported here: a single node forwards nothing
        from ottla.server.requests.principals import pack_principal

        envelope = EnvelopeRequest(
            request_data=request,
            request_principal=pack_principal(principal),
            client_host_address=_packed_address(host),
        )

        def opened(response: EnvelopeResponse | None, error: BaseException | None) -> None:
            if self._closed:
                return
            if error is None and response is not None and response.error_code:
                error = KafkaError(ErrorCode.for_code(response.error_code))
            answered(None if error is not None or response is None else response.response_data, error)

        self._send_away(self._client_link, envelope, opened, timeout_s)

    # -- connection --------------------------------------------------------------------------------------------------

    def leader_changed(self) -> None:
        """Another node leads the quorum: requests in flight to the previous one fail now, and callers retry."""
        endpoint = self._endpoint()
        address = None if endpoint is None else (endpoint.host, endpoint.port)
        for link in (self._own_link, self._client_link):
            if link is not None:
                link.leave_unless(address)

    def close(self) -> None:
        """Stop: no callback is called any more."""
        self._closed = True
        for link in (self._own_link, self._client_link):
            if link is not None:
                link.close()

    def _send_away(self, link: PeerLink | None, message: object, done: ControllerDone, timeout_s: float) -> None:
        endpoint = self._endpoint()
        if endpoint is None or link is None or self._closed:
            error = KafkaError(ErrorCode.NOT_CONTROLLER, "The active controller is not known.")
            self._answer_later(done, None, error)
            return
        send_message(link.to((endpoint.host, endpoint.port)), message, done, timeout_s)

    def _repeat(self, attempt: Callable[[ControllerDone], None], done: ControllerDone, timeout_s: float) -> None:
        """Run `attempt` until it ends with success or with an error that another controller would return, too."""
        _ForwardingAttempts(self, attempt, done, self._clock.monotonic() + timeout_s).start()

    def retry(self, again: Callable[[], None], deadline_s: float) -> bool:
        """Call `again` after a delay, unless the channel is closed by then; False if that is after the deadline."""
        if self._clock.monotonic() + RETRY_S >= deadline_s:
            return False
        self._scheduler.call_later(RETRY_S, self._unless_closed, again)
        return True

    def _unless_closed(self, again: Callable[[], None]) -> None:
        if not self._closed:
            again()


class _ForwardingAttempts:
    """The attempts of one request. No mutually recursive closures: such a cycle keeps a large request in memory."""

    __slots__ = ("_attempt", "_channel", "_deadline_s", "_done")

    def __init__(
        self,
        channel: ControllerChannel,
        attempt: Callable[[ControllerDone], None],
        done: ControllerDone,
        deadline_s: float,
    ) -> None:
        self._channel = channel
        self._attempt = attempt
        self._done = done
        self._deadline_s = deadline_s

    def start(self) -> None:
        self._attempt(self._answered)

    def _answered(self, response: Any, error: BaseException | None) -> None:
        if error is None or not _is_transient(error):
            self._done(response, error)
        elif not self._channel.retry(self.start, self._deadline_s):
            text = "The controller could not be reached in time."
            self._done(None, KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))


def _charged(controller: Controller, client: RequestOrigin, message: CreateTopicsRequest) -> ControllerOperation[Any]:
    decide = operation_of(message)

    def operation(image: MetadataImage, context: ControllerContext) -> ControllerResult[Any]:
        mutation = controller.mutations.begin(
            image.client_quotas, client.principal, client.client_id, context.now_ms / 1000, strict=True
        )
        return decide(image, context._replace(mutation=mutation))

    return operation


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, KafkaError):
        return error.code is ErrorCode.NOT_CONTROLLER
    return isinstance(error, ConnectionError | TimeoutError | ProtocolError)


def _refusal(response: Any) -> KafkaError | None:
    """The error of a response as a whole; CreateTopics has only those of its topics."""
    from ottla.protocol.messages.create_topics import CreateTopicsResponse  # imported here, as above

    if isinstance(response, CreateTopicsResponse):
        if response.topics and all(topic.error_code == ErrorCode.NOT_CONTROLLER for topic in response.topics):
            return KafkaError(ErrorCode.NOT_CONTROLLER)
        return None
    if response.error_code:
        return KafkaError(ErrorCode.for_code(response.error_code), getattr(response, "error_message", None) or "")
    return None


def _packed_address(host: str) -> bytes:
    """The bytes of an IP address; those of the unspecified address if there is none, as in the simulator."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.inet_pton(family, host)
    except OSError:
        return bytes(4)
