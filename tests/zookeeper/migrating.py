"""A cluster on a simulated ZooKeeper, the quorum to which it migrates, and the metadata of both."""

from __future__ import annotations

import json
from typing import Any

from ottla.controller.result import ControllerResult
from ottla.metadata.image import MetadataImage, ZkMigrationState
from ottla.metadata.records import versioned
from ottla.protocol.messages.metadata_records import TopicRecord
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.brokers import decode_controller, decode_controller_epoch

from .brokers import World
from .controllers import ControllerLife, Quorum, Registrar
from .test_three_brokers import IDS as BROKERS
from .test_three_brokers import Cluster, create
from .world import content, seen

MIGRATION, PRE, POST = ZkMigrationState.MIGRATION, ZkMigrationState.PRE_MIGRATION, ZkMigrationState.POST_MIGRATION


class Migrating:
    """A cluster on ZooKeeper, the quorum to which it goes, and brokers that are known to both."""

    def __init__(self, seed: int = 1, world: World | None = None) -> None:
        """`world`: one that has a tree already."""
        world = self.world = world or World(seed)
        self.cluster = Cluster(world)
        self.cluster.start(*BROKERS)
        create(self.cluster, 1, 1, 2, 3)
        create(self.cluster, 2, 2, 3, 1, name="u", retention_ms="77")
        node = world.node(paths.CLUSTER_ID)
        assert node is not None
        self.cluster_id = json.loads(node.data)["id"]
        self.quorum = Quorum(world, self.cluster_id)
        self.registrar: Registrar | None = None

    def register(self, *broker_ids: int) -> None:
        self.registrar = Registrar(self.quorum, broker_ids or BROKERS)

    def stop(self) -> None:
        if self.registrar is not None:
            self.registrar.stop()

    def tree(self) -> dict[str, Any]:
        return content(seen(self.world.server))

    @property
    def image(self) -> MetadataImage:
        return self.quorum.image

    @property
    def state(self) -> ZkMigrationState:
        return self.image.zk_migration_state

    def equal(self) -> bool:
        """Whether the tree equals the committed metadata."""
        active = self.quorum.active
        return active is not None and content(active.broker.image) == self.tree()

    def migrated(self) -> bool:
        return self.state is MIGRATION and self.equal()

    def is_claimed(self) -> bool:
        """By a quorum."""
        node = self.world.node(paths.CONTROLLER)
        return node is not None and node.owner == 0

    def claim(self) -> Any:
        node = self.world.node(paths.CONTROLLER)
        assert node is not None
        return decode_controller(paths.CONTROLLER, node.data), node.owner

    def said(self) -> dict[str, Any]:
        node = self.world.node(paths.MIGRATION)
        assert node is not None
        content: dict[str, Any] = json.loads(node.data)
        return content

    def epoch(self) -> int:
        node = self.world.node(paths.CONTROLLER_EPOCH)
        assert node is not None
        return decode_controller_epoch(paths.CONTROLLER_EPOCH, node.data)

    def change(self, *records: Any) -> None:
        """Commit the records; existing topics come from an attempt with a lost response."""

        def decide(image: MetadataImage, _context: object) -> ControllerResult[None]:
            there = any(isinstance(each, TopicRecord) and each.topic_id in image.topics_by_id for each in records)
            return ControllerResult([] if there else [versioned(each) for each in records], None)

        self.quorum.decide(decide)

    def active(self) -> ControllerLife:
        self.world.until(lambda: self.quorum.active)
        life = self.quorum.active
        assert life is not None
        return life

    def active_id(self) -> int:
        life = self.active()
        return next(each for each, one in self.quorum.lives.items() if one is life)
