"""Context that the components of one shard share: settings, clock, ids, metadata, timers and groups."""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.kafka.ids import new_uuid, uuid_to_rfc9562, uuid_to_string
from ottla.common.platform.clock import Clock, Rng
from ottla.coordinator.group.config import GroupCoordinatorConfig
from ottla.coordinator.group.group import GroupRegistry
from ottla.coordinator.group.member_memory import MemberMemory
from ottla.coordinator.runtime import CoordinatorTimer
from ottla.metadata.image import MetadataImage
from ottla.timeline import SnapshotRegistry


class ShardContext:
    """Created once for each shard. `config` and `image` are read at each use, because both may change."""

    __slots__ = ("_config", "_image", "clock", "groups", "memory", "registry", "rng", "timer")

    def __init__(
        self,
        *,
        config: Callable[[], GroupCoordinatorConfig],
        image: Callable[[], MetadataImage],
        clock: Clock,
        rng: Rng,
        registry: SnapshotRegistry,
        timer: CoordinatorTimer,
        memory: MemberMemory | None = None,
    ) -> None:
        """`memory` is shared by all shards of a broker; without it the shard creates its own."""
        self._config = config
        self._image = image
        self.clock = clock
        self.rng = rng
        self.registry = registry
        self.timer = timer
        self.groups = GroupRegistry(registry)
        self.memory = memory or MemberMemory(config, clock, self.groups.held_bytes)

    @property
    def config(self) -> GroupCoordinatorConfig:
        return self._config()

    @property
    def image(self) -> MetadataImage:
        """Return the newest committed cluster metadata."""
        return self._image()

    def new_member_id(self) -> str:
        """Return a random id for a consumer group member: 22 characters, not guessable."""
        return uuid_to_string(new_uuid(self.rng.random_bytes(16)))

    def new_classic_member_id(self, prefix: str) -> str:
        """Return an id for a classic group member: its instance id or client id, and a UUID in the form of RFC 9562."""
        return f"{prefix}-{uuid_to_rfc9562(new_uuid(self.rng.random_bytes(16)))}"


class RequestContext:
    """The client that sent a request; created by the request handlers."""

    __slots__ = ("api_version", "client_host", "client_id", "listener", "may_describe")

    def __init__(
        self,
        client_id: str,
        client_host: str,
        api_version: int,
        listener: str = "",
        may_describe: Callable[[str], bool] | None = None,
    ) -> None:
        """`may_describe(topic)` returns whether the client may describe the topic; None permits every topic."""
        self.client_id = client_id
        self.client_host = client_host
        self.api_version = api_version
        self.listener = listener
        self.may_describe = may_describe
