"""What the active controller knows of the brokers beside the metadata log: who was heard of when.

Soft state: a new controller begins with every broker as heard of just now, and a controller that resigned forgets it
all. Times are those of the monotonic clock, in milliseconds, always as arguments.
"""

from __future__ import annotations

from ottla.metadata.image import BrokerImage, MetadataImage


class _Contact:
    """The last heartbeat of one incarnation, or what stands for it until there is one."""

    __slots__ = ("broker_epoch", "heard", "metadata_offset", "time_ms")

    def __init__(self, broker_epoch: int, time_ms: int, metadata_offset: int, *, heard: bool = True) -> None:
        self.broker_epoch = broker_epoch
        self.time_ms = time_ms
        self.metadata_offset = metadata_offset
        self.heard = heard


class _Shutdown:
    """The controlled shutdown of one incarnation, as far as this controller knows of it."""

    __slots__ = ("offset", "requested_ms")

    def __init__(self, requested_ms: int) -> None:
        self.requested_ms = requested_ms
        self.offset: int | None = None
        """The leaderships were moved by records below this offset; None before the first move."""


class BrokerHeartbeats:
    """Times and offsets of the last heartbeats, by broker."""

    __slots__ = ("_contacts", "_heard_ms", "_shutdowns", "session_timeout_ms")

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._contacts: dict[int, _Contact] = {}
        self._shutdowns: dict[tuple[int, int], _Shutdown] = {}
        self._heard_ms: dict[int, int] = {}

    def reset(self, image: MetadataImage, now_ms: int) -> None:
        """Begin anew: brokers that are not fenced get a whole session to be heard of."""
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
        """A heartbeat came; `heard`: what follows from the first one to this controller is decided."""
        self._contacts[broker_id] = _Contact(broker_epoch, now_ms, metadata_offset, heard=heard)

    def forget(self, broker_id: int) -> None:
        """The broker was fenced, or is gone: its session is over."""
        self._contacts.pop(broker_id, None)
        self._heard_ms.pop(broker_id, None)
        for key in [key for key in self._shutdowns if key[0] == broker_id]:
            del self._shutdowns[key]

    def has_session(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Whether this incarnation was heard of within the session timeout."""
        contact = self._contacts.get(broker_id)
        return (
            contact is not None
            and contact.broker_epoch == broker_epoch
            and now_ms < contact.time_ms + self.session_timeout_ms
        )

    def was_heard(self, broker_id: int) -> bool:
        """Whether its session is by a heartbeat to this controller, and not only granted by `reset`."""
        contact = self._contacts.get(broker_id)
        return contact is not None and contact.heard

    def is_granted(self, broker_id: int) -> bool:
        """Whether its session is only granted by `reset`: the broker may have been gone for any time."""
        contact = self._contacts.get(broker_id)
        return contact is not None and not contact.heard

    def stale(self, image: MetadataImage, now_ms: int) -> list[BrokerImage]:
        """Brokers that are not fenced and were silent for too long."""
        return [
            broker
            for broker in image.brokers.values()
            if not broker.fenced and not self.has_session(broker.broker_id, broker.broker_epoch, now_ms)
        ]

    def next_expiry_ms(self, image: MetadataImage) -> int | None:
        """When the first session ends, unless it is heard of again; None without sessions."""
        ends = [
            contact.time_ms + self.session_timeout_ms
            for broker in image.brokers.values()
            if not broker.fenced and (contact := self._contacts.get(broker.broker_id)) is not None
        ]
        return min(ends) if ends else None

    # -- controlled shutdown -----------------------------------------------------------------------------------------

    def request_shutdown(self, broker: BrokerImage, now_ms: int) -> None:
        """The broker requests its shutdown; only the first request to this controller counts."""
        self._shutdowns.setdefault((broker.broker_id, broker.broker_epoch), _Shutdown(now_ms))

    def heard_from(self, broker_id: int, now_ms: int) -> None:
        """A broker on ZooKeeper, which sends no heartbeats, is alive: it sent this controller another request."""
        self._heard_ms[broker_id] = now_ms

    def is_alive_since_request(self, broker_id: int, stopping: BrokerImage) -> bool:
        """Whether this controller has heard from `broker_id` since `stopping` requested its shutdown.

        A heartbeat counts, or, on ZooKeeper, a fetch of metadata.
        """
        shutdown = self._shutdowns[stopping.broker_id, stopping.broker_epoch]
        contact = self._contacts.get(broker_id)
        heartbeat_ms = contact.time_ms if contact is not None and contact.heard else -1
        return max(heartbeat_ms, self._heard_ms.get(broker_id, -1)) >= shutdown.requested_ms

    def move_leaderships(self, broker: BrokerImage, offset: int) -> None:
        """Records up to `offset`, exclusive, move leaderships away from `broker`, which requested its shutdown."""
        self._shutdowns[broker.broker_id, broker.broker_epoch].offset = offset

    def everyone_knows(self, broker: BrokerImage, image: MetadataImage) -> bool:
        """Whether all live brokers have seen that `broker` leads nothing any more."""
        shutdown = self._shutdowns[broker.broker_id, broker.broker_epoch]
        if shutdown.offset is None:
            # A controller before this one moved the leaderships; the next heartbeats report the offsets.
            shutdown.offset = image.offset + 1
        return all(
            contact.metadata_offset >= shutdown.offset - 1
            for other in image.brokers.values()
            if not other.fenced and (contact := self._contacts.get(other.broker_id)) is not None
        )
