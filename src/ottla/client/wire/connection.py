"""One blocking connection to one broker: version negotiation, one request at a time, bounded in size and time.

Invariants: a connection that failed in any way is closed and never reused, because remaining bytes cannot be
distinguished from the next response. Memory for a response is limited to `max_response_bytes`.

Left out: requests that stay in flight after a call. Not thread-safe.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from ottla.common.errors import ErrorCode, KafkaError, OperatorError, ProtocolError
from ottla.common.platform.disk import Buffer
from ottla.common.platform.endpoint import format_address
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.registry import API, ApiKey

if TYPE_CHECKING:  # TLS and SASL are imported by connections that use them
    import ssl

    from ottla.client.wire.login import Login
    from ottla.common.platform.reused_memory import ReusedMemory
    from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
    from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest

MAX_RESPONSE_BYTES = 256 * 1024 * 1024
"""Above any sensible fetch; callers that allow larger batches raise it."""

DEFAULT_PORT = 9092
"""Port of an address without one, as in librdkafka."""
CONNECT_TIMEOUT_S = 4.0
"""Connect timeout for an unreachable host: enough for a second and third SYN (after 1 and 3 s), then the next address
is tried."""

FIRST_VERSIONS = {
    ApiKey.PRODUCE: 3,
    ApiKey.FETCH: 4,
    ApiKey.LIST_OFFSETS: 1,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.OFFSET_FETCH: 1,
    ApiKey.SASL_HANDSHAKE: 1,
}
"""Minimum versions of this client, although older ones are defined: it needs record batches v2, one offset per
timestamp, and offsets stored by the group. A request that explicitly needs an older version may use it."""

IN_FLIGHT = 5
"""Number of batches per producer that a partition remembers, as in Apache Kafka."""

_PROTOCOL = re.compile(r"^[0-9A-Za-z%._-]*://", re.ASCII)
MAX_PORT_DIGITS = 5
_SIZE = struct.Struct(">i")
_CORRELATION_AND_ERROR = struct.Struct(">ih")
CLIENT_NAME = "ottla"


class BrokerUnreachable(OperatorError):
    """No connection could be made; the message names the address and the reason."""


class ConnectionLost(KafkaError):
    """An established connection broke; the outcome of the pending request is unknown."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class Connection:
    """A connection to `host:port`; the constructor connects and negotiates versions.

    `timeout_s` bounds each request as a whole, unless the request has its own limit, and the connect, which takes at
    most `CONNECT_TIMEOUT_S`.
    """

    __slots__ = (
        "_client_id",
        "_correlation_id",
        "_host",
        "_login",
        "_login_again_s",
        "_max_response_bytes",
        "_socket",
        "_timeout_s",
        "_versions",
        "address",
    )

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_s: float,
        software_version: str,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        tls: ssl.SSLContext | None = None,
        login: Login | None = None,
    ) -> None:
        """Raises BrokerUnreachable without a response, or without TLS if `tls` is given; KafkaError or
        ProtocolError if it is not a broker, OperatorError if it rejects `login`.
        """
        self.address = format_address(host, port)
        self._host = host
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._max_response_bytes = max_response_bytes
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self._login = login
        self._login_again_s: float | None = None
        """Time of the next re-authentication, on the monotonic clock (KIP-368)."""
        try:
            self._socket: socket.socket | None = socket.create_connection(
                (host, port), timeout=min(timeout_s, CONNECT_TIMEOUT_S)
            )
        except OSError as error:
            raise BrokerUnreachable(f"cannot connect to {self.address}: {_reason(error)}") from error
        except UnicodeError as error:
            raise BrokerUnreachable(f"cannot connect to {self.address}: invalid hostname") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._encrypt(tls, host)
            self._negotiate(software_version)
            if login is not None:
                self._log_in(login)
        except ConnectionLost as error:
            self.close()
            if tls is not None and isinstance(error.__cause__, OSError) and _is_of_tls(error.__cause__):
                raise _refused(self.address, error.__cause__) from error  # TLS 1.3: after the first request
            if tls is None and not self._versions:
                raise BrokerUnreachable(
                    f"{error} before its first response; a TLS listener does so if the client does not use TLS: "
                    "set security.protocol in the client properties, for example with --command-config"
                ) from error
            raise
        except BaseException:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        return self._socket is None

    def close(self) -> None:
        """Idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def version_for(self, api_key: ApiKey, max_version: int | None = None) -> int:
        """The highest common version that is not above `max_version`.

        Raises KafkaError UNSUPPORTED_VERSION if there is none.
        """
        spec = API[api_key]
        highest = spec.max_version if max_version is None else min(spec.max_version, max_version)
        lowest = max(spec.min_version, min(highest, FIRST_VERSIONS.get(api_key, 0)))
        theirs = self._versions.get(api_key)
        if theirs is None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"the broker at {self.address} does not support {spec.name}"
            )
        version = min(highest, theirs[1])
        if version < max(lowest, theirs[0]):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self.address} supports {spec.name} in versions {theirs[0]} to {theirs[1]}, "
                f"this client in {lowest} to {highest}",
            )
        return version

    def require_broker(self) -> None:
        """Raise OperatorError on a listener of a controller, which serves no clients of brokers."""
        if ApiKey.METADATA not in self._versions and ApiKey.VOTE in self._versions:
            raise OperatorError(
                f"{self.address} is the port of a controller: use the port of a broker, by default {DEFAULT_PORT}"
            )

    def request(
        self,
        api_key: ApiKey,
        message: Any,
        *,
        timeout_s: float | None = None,
        max_version: int | None = None,
        memory: ReusedMemory | None = None,
    ) -> Any:
        """Send one request in the highest common version (up to `max_version`) and return its response message.

        With `memory`, records in the response are views of it, valid until its next use.

        Raises ConnectionLost if the connection breaks, KafkaError REQUEST_TIMED_OUT without a complete response in time
        and INVALID_REQUEST for a message that cannot be encoded, ProtocolError for a malformed response. The caller
        handles error codes in the response.
        """
        self._maybe_log_in_again()
        version = self.version_for(api_key, max_version)
        return self._exchange_each(api_key, version, (message,), timeout_s, memory)[0]

    def _maybe_log_in_again(self) -> None:
        if self._login_again_s is not None and self._login is not None and time.monotonic() >= self._login_again_s:
            self._log_in(self._login)

    def _log_in(self, login: Login) -> None:
        """Authenticate this client. Raises OperatorError if the broker rejects it."""
        from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
        from ottla.security.sasl.exchange import SaslExchange
        from ottla.security.sasl.mechanism import AuthenticationFailed

        exchange = SaslExchange(login(self._host))
        message: SaslHandshakeRequest | SaslAuthenticateRequest | None = exchange.first()
        try:
            while message is not None:
                handshake = isinstance(message, SaslHandshakeRequest)
                key = ApiKey.SASL_HANDSHAKE if handshake else ApiKey.SASL_AUTHENTICATE
                message = exchange.answered(self._exchange(key, self.version_for(key), message, None))
        except AuthenticationFailed as error:
            self.close()
            raise OperatorError(
                f"{self.address} rejected the login: {error}; check sasl.mechanism and the credentials "
                "(sasl.jaas.config, or sasl.oauthbearer.* for OAUTHBEARER)"
            ) from error
        again_after_s = exchange.again_after_s
        self._login_again_s = None if again_after_s is None else time.monotonic() + again_after_s

    def peer_certificate(self) -> bytes | None:
        """The certificate of the broker, DER; None for an unencrypted connection."""
        get = getattr(self._socket, "getpeercert", None)
        certificate: bytes | None = None if get is None else get(binary_form=True)
        return certificate

    def _encrypt(self, tls: ssl.SSLContext, host: str) -> None:
        try:
            self._socket = tls.wrap_socket(cast(socket.socket, self._socket), server_hostname=host.partition("%")[0])
        except OSError as error:
            raise _refused(self.address, error) from error

    def _negotiate(self, software_version: str) -> None:
        """ApiVersions in the highest version; a broker without it responds in version 0 (KIP-511)."""
        spec = API[ApiKey.API_VERSIONS]
        version = spec.max_version
        while True:
            request = ApiVersionsRequest(
                client_software_name=CLIENT_NAME if version >= 3 else "",
                client_software_version=software_version if version >= 3 else "",
            )
            response = self._exchange(ApiKey.API_VERSIONS, version, request, None)
            if response.error_code == ErrorCode.NONE:
                break
            offered = {entry.api_key: entry.max_version for entry in response.api_keys}
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
                code = ErrorCode.for_code(response.error_code)
                raise KafkaError(code, f"{self.address} rejected ApiVersions: {code.name}")
            version = min(version - 1, max(0, offered.get(ApiKey.API_VERSIONS, 0)))
        self._versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}

    def request_each(self, api_key: ApiKey, messages: Sequence[Any], *, max_version: int | None = None) -> list[Any]:
        """Send several requests of one kind, with at most IN_FLIGHT pending at once.

        The broker processes them in order, regardless of errors of earlier ones. Raises as `request`.
        """
        self._maybe_log_in_again()
        version = self.version_for(api_key, max_version)
        responses: list[Any] = []
        for start in range(0, len(messages), IN_FLIGHT):
            responses += self._exchange_each(api_key, version, messages[start : start + IN_FLIGHT], None)
        return responses

    def _exchange(self, api_key: ApiKey, version: int, message: Any, timeout_s: float | None) -> Any:
        return self._exchange_each(api_key, version, (message,), timeout_s)[0]

    def _exchange_each(
        self,
        api_key: ApiKey,
        version: int,
        messages: Sequence[Any],
        timeout_s: float | None,
        memory: ReusedMemory | None = None,
    ) -> list[Any]:
        if self._socket is None:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        allowed_s = self._timeout_s if timeout_s is None else timeout_s
        frames: dict[int, bytes] = {}
        for message in messages:
            self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
            try:
                frames[self._correlation_id] = encode_request(
                    api_key, version, self._correlation_id, self._client_id, message
                )
            except struct.error as error:
                what = f"a value can't be encoded in a {API[api_key].name} request: {error}"
                raise KafkaError(ErrorCode.INVALID_REQUEST, what) from error
        try:
            deadline = time.monotonic() + allowed_s
            for frame in frames.values():
                self._socket.settimeout(allowed_s)
                self._socket.sendall(frame)
            return [
                self._decode(
                    api_key,
                    version,
                    self._read_frame(self._socket, deadline, memory),
                    correlation_id,
                    in_place=memory is not None,
                )
                for correlation_id in frames
            ]
        except TimeoutError:
            self.close()
            name = API[api_key].name
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"no response to {name} from {self.address} within {allowed_s:g} s"
            ) from None
        except OSError as error:
            self.close()
            raise ConnectionLost(f"the connection to {self.address} broke: {_reason(error)}") from error
        except BaseException:
            self.close()
            raise

    def _decode(self, api_key: ApiKey, version: int, payload: Buffer, wanted: int, *, in_place: bool) -> Any:
        if api_key == ApiKey.API_VERSIONS and len(payload) >= _CORRELATION_AND_ERROR.size:
            _, error_code = _CORRELATION_AND_ERROR.unpack_from(payload)
            if error_code == ErrorCode.UNSUPPORTED_VERSION:
                version = 0
        correlation_id, response = decode_response(api_key, version, payload, in_place=in_place)
        if correlation_id != wanted:
            raise ProtocolError(
                f"{self.address} sent a response to request {correlation_id}, but {wanted} was expected"
            )
        return response

    def _read_frame(self, connected: socket.socket, deadline: float, memory: ReusedMemory | None) -> memoryview:
        prefix = bytearray(_SIZE.size)
        self._fill(memoryview(prefix), connected, deadline)
        (size,) = _SIZE.unpack(prefix)
        if not 0 < size <= self._max_response_bytes:
            raise ProtocolError(
                f"{self.address} announced a response of {size} bytes, more than the limit of "
                f"{self._max_response_bytes}: "
                "it is not a Kafka broker, or a batch is larger than this client allows"
            )
        payload = memoryview(bytearray(size)) if memory is None else memory.take(size)[:size]
        self._fill(payload, connected, deadline)
        return payload

    def _fill(self, view: memoryview, connected: socket.socket, deadline: float) -> None:
        """Receive as many bytes as the view has."""
        position = 0
        while position < len(view):
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                raise TimeoutError
            connected.settimeout(remaining_s)
            received = connected.recv_into(view[position:])
            if received == 0:
                raise ConnectionLost(f"{self.address} closed the connection")
            position += received


def parse_bootstrap_servers(text: str, default_port: int | None = DEFAULT_PORT) -> list[tuple[str, int]]:
    """The addresses of `host:port,host:port`. Raises OperatorError that contains the invalid part.

    An address without a port gets `default_port`, if there is one. As in Java's clients, an address may have a protocol
    prefix (`PLAINTEXT://host:port`), which is ignored.
    """
    addresses = []
    for entry in text.split(","):
        entry = entry.strip()
        if not entry:
            continue
        address = _PROTOCOL.sub("", entry)
        if default_port is not None and (":" not in address or address.endswith("]")):
            address = f"{address}:{default_port}"
        host, separator, port_text = address.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        if not separator or not host or "/" in host or not port_text.isascii() or not port_text.isdigit():
            raise OperatorError(f"{entry!r} is not an address of the form host:port")
        port = int(port_text) if len(port_text) <= MAX_PORT_DIGITS else 0
        if not 0 < port < 65536:
            raise OperatorError(f"{entry!r} has no port between 1 and 65535")
        addresses.append((host, port))
    if not addresses:
        raise OperatorError("no bootstrap server: give one of the form host:port")
    return addresses


def library_servers(text: str) -> str:
    """Bootstrap servers for librdkafka, without protocols, which have a meaning there. Raises OperatorError."""
    return ",".join(format_address(host, port) for host, port in parse_bootstrap_servers(text))


def _is_of_tls(error: OSError) -> bool:
    import ssl

    return isinstance(error, ssl.SSLError)


def _refused(address: str, error: OSError) -> BrokerUnreachable:
    """The error for a failed TLS handshake: a rejected certificate, or a peer without TLS."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"its certificate is not trusted ({error.verify_message}); check ssl.truststore.location"
    elif isinstance(error, ssl.SSLError):
        words = (error.reason or str(error)).lower().replace("_", " ")
        reason = f"{words}; check security.protocol and ssl.keystore.location"
    else:
        reason = f"{_reason(error)}; is this a TLS listener?"
    return BrokerUnreachable(f"cannot connect to {address} with TLS: {reason}")


def _reason(error: OSError) -> str:
    """The message of the operating system, without Python's prefix."""
    return (error.strerror or str(error) or type(error).__name__).lower()
