"""Broker sessions of the active controller: times of the last heartbeats, beside the metadata log.

Soft state: a new controller starts a full session for every broker, and a controller that resigns drops the state.
Times are those of the monotonic clock, in milliseconds, always passed as arguments.
"""

from __future__ import annotations

from ottla.metadata.image import BrokerImage, MetadataImage


class _Contact:
    """The last heartbeat of one incarnation, or a granted session before its first heartbeat."""

    __slots__ = ("broker_epoch", "heard", "metadata_offset", "time_ms")

    def __init__(self, broker_epoch: int, time_ms: int, metadata_offset: int, *, heard: bool = True) -> None:
        self.broker_epoch = broker_epoch
        self.time_ms = time_ms
        self.metadata_offset = metadata_offset
        self.heard = heard


class _Shutdown:
    """Controlled shutdown of one incarnation, as known to this controller."""

    __slots__ = ("offset", "requested_ms")

    def __init__(self, requested_ms: int) -> None:
        self.requested_ms = requested_ms
        self.offset: int | None = None
        """Leaderships were moved by records below this offset; None before the first move."""


class BrokerHeartbeats:
    """Times and offsets of the last heartbeats, by broker."""

    __slots__ = ("_contacts", "_heard_ms", "_shutdowns", "session_timeout_ms")

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._contacts: dict[int, _Contact] = {}
        self._shutdowns: dict[tuple[int, int], _Shutdown] = {}
        self._heard_ms: dict[int, int] = {}

    def reset(self, image: MetadataImage, now_ms: int) -> None:
        """Reset: brokers that are not fenced get a full session."""
        self._shutdowns.clear()
        self._heard_ms.clear()
        self._contacts = {
            broker.broker_id: _Contact(broker.broker_epoch, now_ms, -1, heard=False)
            for broker in image.brokers.values()
            if not broker.fenced
        }

    def touch(
        self, broker_id: int, broker_epoch: int, now_ms: int, metadata_offset: int, *, heard: bool = True
    ) -> None:
        """Register a heartbeat; `heard` means that the actions on the first heartbeat to this controller are done."""
        self._contacts[broker_id] = _Contact(broker_epoch, now_ms, metadata_offset, heard=heard)

    def forget(self, broker_id: int) -> None:
        """End the session of a broker that was fenced or removed."""
        self._contacts.pop(broker_id, None)
        self._heard_ms.pop(broker_id, None)
        for key in [key for key in self._shutdowns if key[0] == broker_id]:
            del self._shutdowns[key]

    def has_session(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Return whether this incarnation sent a heartbeat, or got a session by `reset`, within the session timeout."""
        contact = self._contacts.get(broker_id)
        return (
            contact is not None
            and contact.broker_epoch == broker_epoch
            and now_ms < contact.time_ms + self.session_timeout_ms
        )

    def was_heard(self, broker_id: int) -> bool:
        """Return whether its session is based on a heartbeat to this controller, not only granted by `reset`."""
        contact = self._contacts.get(broker_id)
        return contact is not None and contact.heard

    def is_granted(self, broker_id: int) -> bool:
        """Return whether its session is only granted by `reset`: the broker may have been offline for any time."""
        contact = self._contacts.get(broker_id)
        return contact is not None and not contact.heard

    def stale(self, image: MetadataImage, now_ms: int) -> list[BrokerImage]:
        """Return the unfenced brokers without a valid session."""
        return [
            broker
            for broker in image.brokers.values()
            if not broker.fenced and not self.has_session(broker.broker_id, broker.broker_epoch, now_ms)
        ]

    def next_expiry_ms(self, image: MetadataImage) -> int | None:
        """Return the time at which the first session expires without another heartbeat; None without sessions."""
        ends = [
            contact.time_ms + self.session_timeout_ms
            for broker in image.brokers.values()
            if not broker.fenced and (contact := self._contacts.get(broker.broker_id)) is not None
        ]
        return min(ends) if ends else None

    # -- controlled shutdown -----------------------------------------------------------------------------------------

    def request_shutdown(self, broker: BrokerImage, now_ms: int) -> None:
        """Register a shutdown request of the broker; only the first one to this controller counts."""
        self._shutdowns.setdefault((broker.broker_id, broker.broker_epoch), _Shutdown(now_ms))

    def heard_from(self, broker_id: int, now_ms: int) -> None:
        """Register that a broker on ZooKeeper, which sends no heartbeats, is alive: it fetched metadata from this
        controller, or is this controller."""
        self._heard_ms[broker_id] = now_ms

    def is_alive_since_request(self, broker_id: int, stopping: BrokerImage) -> bool:
        """Return whether this controller has heard from `broker_id` since `stopping` requested its shutdown.

        A heartbeat counts, or, on ZooKeeper, a call of `heard_from`.
        """
        shutdown = self._shutdowns[stopping.broker_id, stopping.broker_epoch]
        contact = self._contacts.get(broker_id)
        heartbeat_ms = contact.time_ms if contact is not None and contact.heard else -1
        return max(heartbeat_ms, self._heard_ms.get(broker_id, -1)) >= shutdown.requested_ms

    def move_leaderships(self, broker: BrokerImage, offset: int) -> None:
        """Register that records below `offset` move leaderships away from `broker`, which requested its shutdown."""
        self._shutdowns[broker.broker_id, broker.broker_epoch].offset = offset

    def all_brokers_applied(self, broker: BrokerImage, image: MetadataImage) -> bool:
        """Return whether all live brokers have applied the metadata in which `broker` leads nothing."""
        shutdown = self._shutdowns[broker.broker_id, broker.broker_epoch]
        if shutdown.offset is None:
            # A previous controller moved the leaderships; the next heartbeats report the offsets.
            shutdown.offset = image.offset + 1
        return all(
            contact.metadata_offset >= shutdown.offset - 1
            for other in image.brokers.values()
            if not other.fenced and (contact := self._contacts.get(other.broker_id)) is not None
        )
