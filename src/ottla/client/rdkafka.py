"""What the thin clients on confluent-kafka share: its errors as ours, and how it tells that a cluster is gone."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any

from ottla.client.outage import Outage, Tell
from ottla.common.errors import ErrorCode, KafkaError

PROBE_TIMEOUT_S = 0.5
PROBE_INTERVAL_S = 1.0
RECONNECT_BACKOFF_MAX_MS = 1000
"""The library's own ten seconds are long for somebody who looks on."""
GIVE_UP_LIMIT_S = 5.0
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
        self._outage = Outage(tell)
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
