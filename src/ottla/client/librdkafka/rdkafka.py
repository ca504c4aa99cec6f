"""What the thin clients on confluent-kafka share: its errors as ours, and how it tells that a cluster is gone."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Iterable
from operator import methodcaller
from typing import Any

from ottla.client.wire.outage import OutageReporter, Tell
from ottla.common.errors import ErrorCode, KafkaError

PROBE_TIMEOUT_S = 0.5
PROBE_INTERVAL_S = 1.0
RECONNECT_BACKOFF_MAX_MS = 1000
"""The library's own ten seconds are long for somebody who looks on."""
GIVE_UP_LIMIT_S = 5.0
REPLACEMENT = "\ufffd"
_headers = methodcaller("headers")
"""A call that reports the error that the library leaves behind; a call by the interpreter itself may pass it on."""
_DRAINED, _DRAIN_WAIT_S = 500, 0.05

_STATE = re.compile(r" \(after .*\)$")


def kafka_error(error: Any, subject: str = "") -> KafkaError:
    """An error of librdkafka as ours; its own codes (below -1) have no counterpart in the protocol."""
    code = ErrorCode.for_code(error.code())
    text = str(error.str()).removeprefix("Broker: ").removeprefix("Local: ")
    return KafkaError(code, f"{subject}: {text}" if subject else text)


def require_group_id(group_id: str) -> None:
    """Raises KafkaError INVALID_GROUP_ID for an empty one, on which the library ends the process."""
    if not group_id.partition("\0")[0]:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the id of a group can't be empty")


def require_text(values: Iterable[object]) -> None:
    """For settings and names. Raises UnicodeEncodeError for an argument that was no UTF-8.

    The library reports it by SystemError, or ends the process.
    """
    for value in values:
        if isinstance(value, str):
            value.encode()


def require_headers(headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """The headers of one record as the library takes them.

    The library ends the process on a name with a surrogate, cuts one at a NUL, and writes `b'a'` for bytes. Raises
    UnicodeEncodeError, ValueError and TypeError, as the library does for topics and keys.
    """
    listed = list(headers)
    for each in listed:
        if type(each) is not tuple or len(each) != 2:
            raise TypeError(f"headers are pairs of a name and a value, not {each!r}")
        name = each[0]
        if not isinstance(name, str):
            raise TypeError(f"the name of a header must be str, not {type(name).__name__}")
        if not name.isascii():
            name.encode()
        if "\0" in name:
            raise ValueError(f"embedded null character in the name of a header: {name!r}")
    return listed


def library_timestamp(timestamp_ms: int | None) -> int:
    """A record's time as the library takes it: its 0 is the clock's time, and so the time 0 can't be sent.

    Raises KafkaError INVALID_TIMESTAMP for it.
    """
    if timestamp_ms is None:
        return 0
    if timestamp_ms == 0:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            "the timestamp 0 can't be sent, since librdkafka takes it as now: use another, such as 1, or none",
        )
    return timestamp_ms


def headers_of(message: Any) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of a message that was read; a name that is not UTF-8 has replacement characters."""
    try:
        return tuple(_headers(message) or ())
    except (SystemError, UnicodeDecodeError) as error:
        repaired = _repaired_headers(_headers(message) or [], error)
    message.set_headers(repaired)
    return tuple(repaired)


def _repaired_headers(broken: list[Any], error: BaseException) -> list[tuple[str, bytes | None]]:
    """What the library left behind: a name that it could not decode is missing, and its pair must not be indexed.

    Only the first such name is known, by the innermost error; those after it become one replacement character.
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
    """Close a consumer that has subscribed; it commits what was stored and waits for answers that are due.

    Its partitions are given up first. In its closing the library may call back for a rebalance when nobody is left who
    answers what its Python side then asks, with Python's lock held: the whole process stands still. A static member
    (`group.instance.id`, KIP-345) keeps them for its next life, so it just closes.
    """
    if not instance_id:
        consumer.unsubscribe()
        until = time.monotonic() + GIVE_UP_LIMIT_S
        try:
            while (consumer.consume(_DRAINED, _DRAIN_WAIT_S) or consumer.assignment()) and time.monotonic() < until:
                pass
        finally:  # also where a callback raises
            consumer.close()
    else:
        consumer.close()


class LibraryOutage:
    """The outage of a client of librdkafka: its error callback tells the beginning, a request for metadata the end."""

    def __init__(self, tell: Tell | None) -> None:
        self._outage = OutageReporter(tell)
        self._reason = ""
        self._probed_at = float("-inf")

    @property
    def lasts(self) -> bool:
        """Whether the cluster is gone as far as the library knows."""
        return self._outage.lasts

    def on_error(self, error: Any) -> None:
        """The library's `error_cb`."""
        from confluent_kafka import KafkaError as LibraryError

        if error.code() in (LibraryError._TRANSPORT, LibraryError._RESOLVE):
            self._reason = _STATE.sub("", str(error.str()))
        elif error.code() == LibraryError._ALL_BROKERS_DOWN:
            self._outage.failed(self._reason or str(error.str()))

    def look(self, client: Any) -> None:
        """While the outage lasts, ask now and then whether it is over; waits for PROBE_TIMEOUT_S at most."""
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
