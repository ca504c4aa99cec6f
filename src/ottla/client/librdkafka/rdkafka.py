"""Shared parts of the confluent-kafka clients: error conversion, validation, and outage detection."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Iterable, Mapping
from operator import methodcaller
from typing import Any

from ottla.client.wire.outage import Notify, OutageReporter
from ottla.common.errors import ErrorCode, KafkaError

PROBE_TIMEOUT_S = 0.5
PROBE_INTERVAL_S = 1.0
RECONNECT_BACKOFF_MAX_MS = 1000
"""Shorter than the library's ten seconds, for interactive use."""
GIVE_UP_LIMIT_S = 5.0
REPLACEMENT = "\ufffd"
_headers = methodcaller("headers")
"""A no-op C call, which raises an error that the library has left set in the interpreter."""
_DRAINED, _DRAIN_WAIT_S = 500, 0.05

_STATE = re.compile(r" \(after .*\)$")


def kafka_error(error: Any, subject: str = "") -> KafkaError:
    """An error of librdkafka as ours; its own codes (below -1) have no counterpart in the protocol."""
    code = ErrorCode.for_code(error.code())
    text = str(error.str()).removeprefix("Broker: ").removeprefix("Local: ")
    return KafkaError(code, f"{subject}: {text}" if subject else text)


def library_client(kind: Callable[[Mapping[str, Any]], Any], settings: Mapping[str, Any]) -> Any:
    """A client of the library. Raises KafkaError INVALID_CONFIG, and UnicodeEncodeError as `require_text`."""
    from confluent_kafka import KafkaException

    require_text(settings.values())
    try:
        return kind(settings)
    except KafkaException as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, kafka_error(error.args[0]).message) from error


def require_group_id(group_id: str) -> None:
    """Raises KafkaError INVALID_GROUP_ID for an empty id, for which the library aborts the process."""
    if not group_id.partition("\0")[0]:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")


def require_text(values: Iterable[object]) -> None:
    """Validate settings and names. Raises UnicodeEncodeError for an argument with invalid UTF-8.

    The library would raise SystemError or abort the process.
    """
    for value in values:
        if isinstance(value, str):
            value.encode()


def require_headers(headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """The headers of one record in the library's format.

    The library aborts the process for a name with a surrogate, truncates one at a NUL, and writes `b'a'` for bytes.
    Raises UnicodeEncodeError, ValueError and TypeError, as the library does for topics and keys.
    """
    listed = list(headers)
    for each in listed:
        if type(each) is not tuple or len(each) != 2:
            raise TypeError(f"each header must be a tuple (name, value), not {each!r}")
        name = each[0]
        if not isinstance(name, str):
            raise TypeError(f"the name of a header must be str, not {type(name).__name__}")
        if not name.isascii():
            name.encode()
        if "\0" in name:
            raise ValueError(f"embedded null character in the name of a header: {name!r}")
    return listed


def library_timestamp(timestamp_ms: int | None) -> int:
    """A record timestamp in the library's format: it replaces 0 by the current time, so 0 cannot be sent.

    Raises KafkaError INVALID_TIMESTAMP for 0.
    """
    if timestamp_ms is None:
        return 0
    if timestamp_ms == 0:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            "the timestamp 0 can't be sent, because librdkafka replaces it by the current time: use another one, such "
            "as 1, or none",
        )
    return timestamp_ms


def headers_of(message: Any) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of a received message; invalid UTF-8 in names is replaced."""
    try:
        return tuple(_headers(message) or ())
    except (SystemError, UnicodeDecodeError) as error:
        repaired = _repaired_headers(_headers(message) or [], error)
    message.set_headers(repaired)
    return tuple(repaired)


def _repaired_headers(broken: list[Any], error: BaseException) -> list[tuple[str, bytes | None]]:
    """The headers from the library's partial result: a name that it could not decode is missing, and reading it
    crashes.

    Only the first such name is known, from the innermost error; later ones become one replacement character.
    """
    name = REPLACEMENT
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UnicodeDecodeError):
            name = cause.object.decode(errors="replace")
        cause = cause.__cause__
    headers: list[tuple[str, bytes | None]] = []
    for each in broken:
        parts = gc.get_referents(each)
        if len(parts) == len(each):
            headers.append(each)
        else:
            headers.append((name, parts[0]))
            name = REPLACEMENT
    return headers


def leave_group(consumer: Any, *, instance_id: str | None = None) -> None:
    """Close a subscribed consumer; it commits stored offsets and waits for pending responses.

    Its partitions are unassigned first. While it closes, the library may call back for a rebalance when its thread for
    the requests of the callback has ended, with Python's GIL held: the process deadlocks. A static member
    (`group.instance.id`, KIP-345) keeps its partitions for its next run, so it only closes.
    """
    if not instance_id:
        consumer.unsubscribe()
        until = time.monotonic() + GIVE_UP_LIMIT_S
        try:
            while (consumer.consume(_DRAINED, _DRAIN_WAIT_S) or consumer.assignment()) and time.monotonic() < until:
                pass
        finally:  # also if a callback raises
            consumer.close()
    else:
        consumer.close()


class LibraryOutage:
    """Outage detection of a librdkafka client: its error callback reports the start, a metadata request the end."""

    def __init__(self, notify: Notify | None) -> None:
        self._outage = OutageReporter(notify)
        self._reason = ""
        self._probed_at = float("-inf")

    @property
    def lasts(self) -> bool:
        """True while the library considers the cluster unreachable."""
        return self._outage.lasts

    def on_error(self, error: Any) -> None:
        """Callback for the library's `error_cb`."""
        from confluent_kafka import KafkaError as LibraryError

        if error.code() in (LibraryError._TRANSPORT, LibraryError._RESOLVE):
            self._reason = _STATE.sub("", str(error.str()))
        elif error.code() == LibraryError._ALL_BROKERS_DOWN:
            self._outage.failed(self._reason or str(error.str()))

    def ended(self) -> None:
        """The cluster has responded."""
        self._outage.ended()

    def look(self, client: Any) -> None:
        """During an outage, check periodically whether it has ended; waits at most PROBE_TIMEOUT_S."""
        if not self._outage.lasts or time.monotonic() - self._probed_at < PROBE_INTERVAL_S:
            return
        from confluent_kafka import KafkaException

        try:
            client.list_topics(timeout=PROBE_TIMEOUT_S)
        except KafkaException as error:
            self._outage.failed(self._reason or str(error.args[0].str()))
        else:
            self._outage.ended()
        self._probed_at = time.monotonic()
