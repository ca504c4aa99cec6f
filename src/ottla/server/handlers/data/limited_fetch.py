"""Fetch of a consumer with quotas: checks them before sending, and sends nothing above them (KIP-219).

An empty response leaves an incremental session unchanged. An empty response to a full fetch has no session, so that
the consumer requests everything again, as with Apache Kafka.
"""

from __future__ import annotations

from ottla.common.platform.channel import Part
from ottla.protocol.fetch import ParsedFetchRequest, encode_fetch_response
from ottla.replica.fetch_session import INVALID_SESSION_ID, FetchContext
from ottla.server.handlers.data.consumer_fetch import ConsumerFetch
from ottla.server.handlers.data.context import DataContext
from ottla.server.handlers.data.fetching import ReadRound
from ottla.server.requests.request import Request
from ottla.server.requests.throttling import ThrottledChannel, head_bytes
from ottla.storage.files.off_loop import Known


class LimitedFetch(ConsumerFetch):
    """A fetch through a channel with quotas."""

    __slots__ = ("_held", "_loop_s")

    def __init__(
        self,
        context: DataContext,
        request: Request,
        message: ParsedFetchRequest,
        session: FetchContext,
        held: ThrottledChannel,
    ) -> None:
        super().__init__(context, request, message, session)
        self._held = held
        self._loop_s = 0.0
        largest = held.largest_fetch
        if largest is not None:
            message.max_bytes = min(message.max_bytes, int(largest))
            message.min_bytes = min(message.min_bytes, message.max_bytes)

    def read(self, known: Known | None = None) -> ReadRound:
        """See `Fetch`; timed."""
        monotonic = self._context.clock.monotonic
        started_s = monotonic()
        done = super().read(known)
        self._loop_s += monotonic() - started_s
        return done

    def encode(self, done: ReadRound) -> list[Part] | None:
        """The response, or an empty one with the throttle time."""
        size = head_bytes(len(done.rows))
        for _, result in done.rows:
            records = result.records
            if records is not None:
                size += len(records) if isinstance(records, bytes) else records.length
        wait_ms = self._held.fetched(size, self._loop_s, self._context.clock.monotonic())
        if not wait_ms:
            return super().encode(done)
        done.release()
        session_id = self._session.session_id
        if not self._session.incremental:
            self._context.sessions.forget(session_id)
            session_id = INVALID_SESSION_ID
        request = self._request
        return encode_fetch_response(request.api_version, request.correlation_id, wait_ms, 0, session_id, [])


def limited_fetch(
    context: DataContext, request: Request, message: ParsedFetchRequest, session: FetchContext
) -> ConsumerFetch:
    """The fetch of a consumer while any client has quotas."""
    if isinstance(request.channel, ThrottledChannel):
        return LimitedFetch(context, request, message, session, request.channel)
    return ConsumerFetch(context, request, message, session)
