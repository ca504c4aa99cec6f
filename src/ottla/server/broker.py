"""One node: broker, controller, or both; its components, wired, started and stopped in order.

Start of a single node: lock the data directory, replay the metadata log, open the logs, register as a new incarnation
and wait until that is committed; only then is there a dispatcher.

Start in a cluster: lock, replay, and open the logs by the replayed metadata; from then on the controller's listener may
be served (`open`). Then register with the active controller, wait for the metadata of that registration, bring up the
partitions, and wait to be unfenced. A controller registers too, which completes its start if it is not a broker.

A broker on ZooKeeper first reads the cluster id, and then opens its data directory. Once it has the cluster's metadata
it opens its logs and registers; it applies only metadata published after that.

Stop: in a cluster, hand over the leaderships first. Refuse new requests, answer parked ones, make all logs durable,
write checkpoints and the clean-shutdown marker; finally leave the quorum.

Everything external (loop, clock, disk, pool, sockets) is an argument, so a simulator runs the same class. Not here:
listeners and signals (`ottla.app.start`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import InvariantError, KafkaError, OperatorError
from ottla.common.kafka.ids import Uuid, uuid_from_string
from ottla.common.platform.channel import Dispatcher
from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.peer import ControllerRequests, Peers
from ottla.common.platform.runtime import NodeRuntime
from ottla.controller.driver import Controller
from ottla.coordinator.runtime.slices import SlicedWork
from ottla.metadata.delta import all_changes
from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.metrics.registry import MetricsRegistry
from ottla.replica.leadership import UNKNOWN_BROKER_EPOCH
from ottla.replica.membership import Membership, alone
from ottla.replica.stray_logs import quarantine_stray_logs
from ottla.replica.topic_log_configs import TopicLogConfigs
from ottla.server.coordination.group_gauges import register_group_gauges
from ottla.server.coordination.transaction_gauges import register_transaction_gauges
from ottla.server.lifecycle.background import PeriodicSteps, PoolWriter
from ottla.server.lifecycle.closing_flush import flush_all
from ottla.server.lifecycle.data_directory import (
    forget_quorum,
    format_or_refuse,
    refuse_final,
    refuse_partitions,
    settle_migrated,
    version_of_migrated,
)
from ottla.server.lifecycle.log_cleaning import LogCleaning
from ottla.server.lifecycle.log_scrubbing import LogScrubbing
from ottla.server.metadata.dynamic_config import ConfigFollower, DynamicBrokerConfig
from ottla.server.metadata_log.choice import make_metadata_log
from ottla.server.metadata_log.node import MetadataLogContext
from ottla.server.requests.authorization import make_authorizer
from ottla.server.requests.broker_life import BrokerLife
from ottla.server.requests.control import Control
from ottla.server.requests.dispatch import RequestDispatcher
from ottla.server.requests.failures import Failures
from ottla.server.requests.forwarding import ControllerChannel
from ottla.server.requests.outcome import await_callback, resolving
from ottla.server.requests.throttling import QuotaDispatcher
from ottla.server.wiring.apis import broker_apis, controller_apis
from ottla.server.wiring.cleaner_gauges import register_cleaner_gauges
from ottla.server.wiring.components import BrokerComponents
from ottla.server.wiring.contexts import Contexts
from ottla.server.wiring.controller_gauges import register_controller_gauges, register_write_behind_lag
from ottla.server.wiring.gauges import register_gauges
from ottla.server.wiring.metadata_follower import MetadataFollower
from ottla.storage.directory.directory_retention import producer_expiration_steps
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.directory.log_manager import DEFAULT_OPEN_FILES, LogManager
from ottla.storage.files.log_config import LogConfig
from ottla.storage.files.meta_properties import QUORUM, ZOOKEEPER, random_id
from ottla.storage.repair.log_scrubber import LogScrubber

if TYPE_CHECKING:
    from ottla.controller.migration import Migration
    from ottla.protocol.znodes.session import ZooKeeperSession
    from ottla.server.lifecycle.controller_lifecycle import ControllerLifecycle
    from ottla.server.lifecycle.lifecycle import BrokerLifecycle
    from ottla.server.zookeeper.zookeeper_node import ZooKeeperLife, ZooKeeperNode
    from ottla.storage.compaction.worker import Worker
    from ottla.zookeeper.migrating import MigratingLog

FLUSH_CHECK_INTERVAL_MS = 1000
"""Maximum delay from a roll, or from the end of a log's flush.ms, to its flush."""
PURGE_INTERVAL_MS = 1_000
REOPEN_INTERVAL_MS = 5_000
NO_BROKER_EPOCH = -1
"""A single node keeps its logs after any kind of end: no other replica has more."""


class Broker:
    """A node of a cluster, or a cluster of one."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: NodeRuntime,
        metrics_registry: MetricsRegistry,
        *,
        hostname: str = "localhost",
        max_open_files: int = DEFAULT_OPEN_FILES,
        peers: Peers | None = None,
        on_fatal: Callable[[BaseException], None] | None = None,
        cleaner_worker: Callable[[], Worker] | None = None,
        zookeeper: ZooKeeperSession | None = None,
        receives_telemetry: bool = False,
    ) -> None:
        """`hostname` is advertised for listeners that are bound to all addresses.

        `max_open_files` bounds the descriptors of segments and indexes. `peers` connects to other nodes; a cluster of
        one needs none. `cleaner_worker` creates workers of the log cleaner; without it nothing is cleaned. `zookeeper`
        is set, but not started, if it stores the cluster (`config.on_zookeeper`), or did (`config.leads_migration`).
        `receives_telemetry`: whether metrics of clients are received, for scrapes (KIP-714).
        """
        self._peers = peers if config.clustered or config.on_zookeeper else None
        self._on_fatal = on_fatal if config.clustered or config.on_zookeeper else None
        self._zookeeper = None
        if zookeeper is not None and config.on_zookeeper:
            self._zookeeper = self._make_zookeeper(config, runtime, zookeeper)
        self._migrates_from = zookeeper if config.leads_migration else None
        self._migration: Migration | None = None
        self._cleaner_worker = cleaner_worker
        self._receives_telemetry = receives_telemetry
        self._cleaning: LogCleaning | None = None
        self._scrubbing: LogScrubbing | None = None
        self._static_config = config
        self._runtime = runtime
        self._registry = metrics_registry
        self._hostname = hostname
        self._failures = Failures(runtime.clock)
        self._steps = PeriodicSteps(runtime.scheduler, self._failures)
        self._publisher = MetadataPublisher()
        self.authorizer = make_authorizer(config, self._publisher)
        """Decides about client operations; None allows every operation."""
        self._logs = LogManager(
            runtime.disk,
            runtime.clock,
            runtime.rng,
            config.log_dirs,
            metadata_dir=config.metadata_log_dir,
            has_metadata_log=not config.on_zookeeper or config.migrating_broker,
            default_config=LogConfig.from_properties(config.topic_properties({})),
            max_open_files=max_open_files,
            producer_expiration_ms=config.get_int("producer.id.expiration.ms"),
            on_offline=self._directory_failed,
        )
        self._config = DynamicBrokerConfig(config)
        self._control: Control | None = None
        self._parts: BrokerComponents | None = None
        self._contexts: Contexts | None = None
        self._life: BrokerLife | None = None
        self._migrated = False
        """Whether this is a node of a quorum whose data directory is that of a broker on ZooKeeper."""
        self._controller_lifecycle: ControllerLifecycle | None = None
        self._dispatcher: RequestDispatcher | None = None
        self._within_quotas: QuotaDispatcher | None = None
        self._controller_dispatcher: RequestDispatcher | None = None
        self.advertised_listeners: list[Endpoint] = []
        """Endpoints of the broker, for clients and for other brokers."""
        self.advertised_controllers: list[Endpoint] = []
        """Endpoints of the controller, for other nodes and administrators; empty on a single node."""

    @property
    def controller_dispatcher(self) -> RequestDispatcher:
        """The dispatcher of the controller's listeners; available after `open`."""
        if self._controller_dispatcher is None:
            raise InvariantError("the node was not opened")
        return self._controller_dispatcher

    @property
    def dispatcher(self) -> RequestDispatcher:
        """The dispatcher of the broker's listeners; available after `start`."""
        if self._dispatcher is None:
            raise InvariantError("the broker was not started")
        return self._dispatcher

    @property
    def parts(self) -> BrokerComponents:
        """The components that serve requests; available after `start`, in a cluster after `open`."""
        if self._parts is None:
            raise InvariantError("the broker was not started")
        return self._parts

    @property
    def contexts(self) -> Contexts:
        """The contexts of handlers and dispatchers; available when `parts` are."""
        if self._contexts is None:
            raise InvariantError("the broker was not started")
        return self._contexts

    @property
    def image(self) -> MetadataImage:
        """The newest published image; empty at first."""
        return self._publisher.image

    @property
    def salt_key(self) -> Uuid:
        """See `MetadataImage.salt_key`; the id of this node's own directory if the cluster has none.

        Available once the data directory is open.
        """
        return self.image.salt_key() or uuid_from_string(self._logs.meta_properties.directory_id)

    @property
    def scrubber(self) -> LogScrubber | None:
        """The scrubber of the logs; available after `start` of a broker."""
        return None if self._scrubbing is None else self._scrubbing.scrubber

    @property
    def cluster_id(self) -> str:
        """22 characters, from `meta.properties`; available after `start`."""
        return self._logs.meta_properties.cluster_id

    # --- start -----------------------------------------------------------------------------------------------------

    def open(self, listeners: Sequence[Endpoint]) -> None:
        """Open the data directory and, in a cluster, join the metadata quorum; blocks while reading.

        `listeners` as they were bound, with real ports, including the controller's. From now on a listener of the
        controller may be served, and has to be before `start` can succeed. On ZooKeeper nothing is opened before
        `start`. Raises OperatorError.
        """
        config = self._static_config
        controllers = config.controller_listener_names
        bound = [endpoint for endpoint in listeners if endpoint.listener_name not in controllers]
        self.advertised_listeners = config.advertise(bound, self._hostname)
        own = self.advertised_controllers = config.advertise(
            [endpoint for endpoint in listeners if endpoint.listener_name in controllers], self._hostname
        )
        if config.on_zookeeper:
            return
        version = QUORUM
        if config.clustered:
            version = version_of_migrated(self._runtime.disk, config)
            self._migrated = version == ZOOKEEPER
            format_or_refuse(self._runtime.disk, self._runtime.clock, self._runtime.rng, config, own)
        self._logs.open(node_id=config.node_id, version=version)
        control = self._control = self._make_control(config)
        if config.clustered:
            metadata_log = control.metadata.log
            if metadata_log.start(own):
                refuse_partitions(self._runtime.disk, config)
            self._open_logs(metadata_log.latest)
            self._make_parts(control, metadata_log.latest)
            self._controller_dispatcher = RequestDispatcher(
                self.contexts.dispatcher,
                controller_apis(self.contexts),
                serves_controller=True,
                authorizer=self.authorizer,
            )
            metadata_log.listen(control)
            if self._migrates_from is not None:
                self._migration = self._make_migration(control, self._migrates_from)
                metadata_log.listen(self._migration)
                self._migration.start()
            if config.is_controller:
                self._controller_lifecycle = self._make_controller_lifecycle(control)

    async def start(self, listeners: Sequence[Endpoint] = ()) -> None:
        """Bring the broker up, after `open`, or with `listeners` instead of it.

        Raises OperatorError for causes that the operator can fix; the process is expected to end then, with its lock.
        """
        if listeners:
            self.open(listeners)
        if self._zookeeper is not None:
            await self._enter(self._zookeeper)
        if self._control is None:
            raise InvariantError("the node was not opened")
        control, config = self._control, self._static_config
        control.metadata.register_gauges(self._registry)
        register_controller_gauges(self._registry, control.controller, self._publisher)
        if not config.is_broker:
            await self._register_controller()
            self._dispatcher = RequestDispatcher(
                self.contexts.dispatcher, ()
            )  # no client is served, and none has a listener
            return
        if self._controller_lifecycle is not None:
            self._controller_lifecycle.start(_nothing)
        if self._zookeeper is not None:
            await self._start_on(self._zookeeper, control)
        else:
            await (self._join_quorum(control) if config.clustered else self._start_alone(control))
        self.contexts.warn_of_lost_client_metrics(self.image)
        self._dispatcher = RequestDispatcher(
            self.contexts.dispatcher, broker_apis(self.contexts), authorizer=self.authorizer
        )
        self._within_quotas = QuotaDispatcher(self._dispatcher, self.parts.quotas, self._runtime.clock)
        register_gauges(self._registry, self.parts, config)
        register_group_gauges(self._registry, self.parts.groups.runtime, self._runtime.clock)
        register_transaction_gauges(self._registry, self.parts.transactions.runtime, self.parts.transaction_markers)
        self._start_steps(config)
        self._scrubbing = self._start_scrubbing()
        if config.get_bool("log.cleaner.enable") and self._cleaner_worker is not None:
            self._cleaning = self._start_cleaning(self._cleaner_worker)

    async def _register_controller(self) -> None:
        """A node without a broker is up when it has the cluster's metadata, with its own registration."""
        lifecycle = self._controller_lifecycle
        if lifecycle is None:
            raise InvariantError("the node is neither broker nor controller")
        self._publisher.register(self._config.image_published)
        await await_callback(lambda done: lifecycle.start(lambda: done(None)))
        image = self._publisher.image
        self._config.image_published(image, all_changes(image))

    async def _start_alone(self, control: Control) -> None:
        """The metadata log of one voter, with registration and new leader epochs in its first image."""
        config, controller = self._static_config, control.controller
        registered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            controller.start(self.advertised_listeners, resolving(registered), self._open_logs_alone)
        except KafkaError as error:
            raise OperatorError(
                f"the metadata log in {config.metadata_log_dir} can't be written: {error.message}"
            ) from error
        image = controller.image
        self._make_parts(control, image)
        parts = self.parts
        quarantine_stray_logs(self._logs, self._static_config.node_id, image)
        self._publisher.register(MetadataFollower(self._config, parts).image_published)
        try:
            await registered
        except KafkaError as error:
            raise OperatorError(
                f"the metadata log in {config.metadata_log_dir} can't be written: {error.message}"
            ) from error
        await await_callback(lambda done: parts.replicas.opening.when_opened(lambda: done(None)))

    async def _join_quorum(self, control: Control) -> None:
        await self._join(self._make_lifecycle(control.channel, self._publisher))

    async def _join(self, life: BrokerLife) -> None:
        """Join the cluster: register, catch up, open every partition, get unfenced."""
        self._life = life
        await await_callback(life.start)
        if self._migrated:
            settle_migrated(self._logs, self._static_config, self._publisher.image)
        await self._bring_up(life.broker_epoch)
        await await_callback(life.serve)

    async def _enter(self, zookeeper: ZooKeeperNode) -> None:
        """Read the cluster id from ZooKeeper, then open the data directory."""
        config = self._static_config
        cluster_id = await zookeeper.enter()
        self._logs.open(node_id=config.node_id, cluster_id=cluster_id, version=ZOOKEEPER)
        self._control = self._make_control(config)

    async def _start_on(self, zookeeper: ZooKeeperNode, control: Control) -> None:
        """Join a cluster stored in ZooKeeper: read its metadata first, which names the logs to open."""
        migrating = control.metadata.migrating
        images = self._publisher if migrating is None else migrating.tree_images
        tree = zookeeper.take_part(control, self.advertised_listeners, images, self._metadata_log_failed)
        if migrating is None:
            await await_callback(tree.follow)
            forget_quorum(self._runtime.disk, self._static_config)
        else:
            await self._follow_either(tree)
            refuse_final(self._publisher.image)
        image = self._publisher.image
        self._open_logs(image)
        self._make_parts(control, image)
        await self._join(tree if migrating is None else self._make_migrating_life(tree, migrating))

    async def _follow_either(self, tree: ZooKeeperLife) -> None:
        from ottla.server.zookeeper.migration_lifecycle import follow  # here, as below

        await await_callback(lambda done: follow(tree, self._publisher, done))

    def _make_migrating_life(self, tree: ZooKeeperLife, log: MigratingLog) -> BrokerLife:
        from ottla.server.zookeeper.migration_lifecycle import (  # here, since few need it
            FOREVER_MS,
            QuorumChannel,
            ZkMigrationLifecycle,
        )

        if self._peers is None:
            raise InvariantError("a migrating broker needs connections to other nodes")
        scheduler = self._runtime.scheduler
        channel = ControllerChannel(
            None, log.quorum.leader_endpoint, self._peers.controllers, clock=self._runtime.clock, scheduler=scheduler
        )
        log.quorum.listen(QuorumChannel(channel))
        lifecycle = self._make_lifecycle(channel, log.quorum_images, migrating_for_ms=FOREVER_MS)
        return ZkMigrationLifecycle(tree, lifecycle, channel, log, self._publisher, scheduler, self._end_of_disk)

    async def _bring_up(self, broker_epoch: int) -> None:
        """Follow the metadata from here on, with every partition open."""
        parts = self.parts
        self._logs.note_running(broker_epoch)
        image = self._publisher.image
        self._config.use(image)
        quarantine_stray_logs(self._logs, self._static_config.node_id, image)
        follower = MetadataFollower(self._config, parts)
        self._publisher.register(follower.image_published)
        follower.image_published(image, all_changes(image))
        await await_callback(lambda done: parts.replicas.opening.when_opened(lambda: done(None)))

    def _open_logs(self, image: MetadataImage) -> dict[tuple[Uuid, int], int]:
        """Open every log with its topic's configs; returns the newest leader epoch of each. Raises OperatorError."""
        configs = TopicLogConfigs(self._config.under(image).topic_properties)
        self._logs.load_logs(cache(partial(configs.read, image)))
        return {
            (log.topic_id, log.partition): log.leader_epoch for log in self._logs.logs() if log.topic_id is not None
        }

    def _open_logs_alone(self, image: MetadataImage) -> dict[tuple[Uuid, int], int]:
        """Like `_open_logs`, where `image` has all topics."""
        if not image.features:
            refuse_partitions(self._runtime.disk, self._static_config)
        return self._open_logs(image)

    def _make_control(self, config: BrokerConfig) -> Control:
        directory_id = uuid_from_string(self._logs.meta_properties.directory_id)
        metadata = make_metadata_log(
            MetadataLogContext(
                config=config,
                cluster_id=self.cluster_id,
                directory_id=directory_id,
                runtime=self._runtime,
                peers=self._peers,
                publisher=self._publisher,
                on_failure=self._metadata_log_failed,
                zookeeper=None if self._zookeeper is None else self._zookeeper.session,
            )
        )
        controller = Controller(
            metadata_log=metadata.log,
            config=config,
            cluster_id=self.cluster_id,
            log_dirs=self._logs.directory_ids,
            cordoned=self._logs.cordoned_ids,
            clock=self._runtime.clock,
            rng=self._runtime.rng,
            scheduler=self._runtime.scheduler,
            registry=self._registry,
        )
        channel = ControllerChannel(
            controller,
            metadata.log.leader_endpoint,
            metadata.controllers,
            clock=self._runtime.clock,
            scheduler=self._runtime.scheduler,
        )
        return Control(metadata, controller, channel)

    @staticmethod
    def _make_zookeeper(config: BrokerConfig, runtime: NodeRuntime, session: ZooKeeperSession) -> ZooKeeperNode:
        from ottla.server.zookeeper.zookeeper_node import ZooKeeperNode  # here, since a node with a quorum needs none

        return ZooKeeperNode(config, runtime, session)

    def _make_controller_lifecycle(self, control: Control) -> ControllerLifecycle:
        from ottla.server.lifecycle.controller_lifecycle import (
            ControllerLifecycle,  # here, since a single node needs none
        )

        return ControllerLifecycle(
            self._static_config.node_id,
            uuid_from_string(random_id(self._runtime.rng)),
            self.advertised_controllers,
            control.channel,
            self._publisher,
            self._runtime.scheduler,
            zk_migration_ready=self._static_config.leads_migration,
        )

    def _make_migration(self, control: Control, session: ZooKeeperSession) -> Migration:
        from ottla.controller.migration import Migration  # here, since other nodes need none

        quorum = control.metadata.quorum
        if quorum is None:
            raise InvariantError("a controller has a quorum")
        migration = Migration(
            session=session,
            controller=control.controller,
            publisher=self._publisher,
            runtime=self._runtime,
            cluster_id=self.cluster_id,
            voters=lambda: [voter.voter_id for voter in quorum.raft.state.voters],
        )
        register_write_behind_lag(self._registry, lambda: migration.behind)
        return migration

    def _make_lifecycle(
        self, controller: ControllerRequests, publisher: MetadataPublisher, *, migrating_for_ms: int = 0
    ) -> BrokerLifecycle:
        """Registration with the quorum that `controller` leads to; also of a ZooKeeper broker during a migration."""
        from ottla.server.lifecycle.lifecycle import (  # here, since a single node needs none
            BrokerIdentity,
            BrokerLifecycle,
        )

        config = self._static_config
        meta = self._logs.meta_properties
        identity = BrokerIdentity(
            node_id=config.node_id,
            cluster_id=meta.cluster_id,
            incarnation_id=self._begin_incarnation(),
            log_dirs=self._logs.directory_ids(),
            offline_log_dirs=self._logs.offline_directory_ids(),
            cordoned=self._logs.cordoned_ids,
            endpoints=self.advertised_listeners,
            rack=config.rack,
            # The ZooKeeper broker's last broker epoch is not one of the quorum's.
            previous_broker_epoch=UNKNOWN_BROKER_EPOCH if migrating_for_ms else self._logs.last_broker_epoch,
            migrating=migrating_for_ms > 0,
        )
        return BrokerLifecycle(
            identity,
            controller,
            publisher,
            new_incarnation_id=self._begin_incarnation,
            registered_again=self._registered_again,
            clock=self._runtime.clock,
            scheduler=self._runtime.scheduler,
            heartbeat_interval_ms=config.get_int("broker.heartbeat.interval.ms"),
            session_timeout_ms=config.get_int("broker.session.timeout.ms"),
            registration_timeout_ms=migrating_for_ms or config.get_int("initial.broker.registration.timeout.ms"),
        )

    def _begin_incarnation(self) -> Uuid:
        return self._logs.begin_incarnation(uuid_from_string(random_id(self._runtime.rng)))

    def _registered_again(self, broker_epoch: int) -> None:
        try:
            self._logs.note_running(broker_epoch)
        except OperatorError as error:
            self._end_of_disk(error)

    def _metadata_log_failed(self, error: BaseException) -> None:
        """A single node continues to serve reads; a cluster's node must stop: it no longer follows the metadata."""
        self._failures.warn("metadata log", f"metadata changes are no longer possible: {error}")
        self._end_of_disk(error)

    def _directory_failed(self, directory: LogDirectory, error: OSError) -> None:
        """In a cluster other brokers take over the directory's partitions; a single node serves the readable ones."""
        if self._on_fatal is not None:
            if directory is self._logs.metadata_directory or not self._logs.directory_ids():
                self._end_of_disk(error)
            else:
                self._runtime.scheduler.call_soon(self._give_up, directory)

    def _give_up(self, directory: LogDirectory) -> None:
        """After the turn in which it failed: pending reads and writes there have got the error."""
        if self._parts is not None:
            self._parts.replicas.give_up(directory)
        directory.abandon()
        if self._life is not None:
            self._life.directory_failed(directory.directory_id)

    def _end_of_disk(self, error: BaseException) -> None:
        """A single node continues to serve reads; in a cluster other brokers can lead its partitions."""
        if self._on_fatal is not None:
            self._runtime.scheduler.call_soon(self._on_fatal, error)

    def broker_epoch(self) -> int:
        """Epoch of the current registration; -1 before it."""
        if self._life is not None:
            return self._life.broker_epoch
        return UNKNOWN_BROKER_EPOCH if self._control is None else self._control.controller.broker_epoch

    def _make_parts(self, control: Control, image: MetadataImage) -> None:
        """Create the components of this node, with the configs in `image`, and the contexts of handlers."""
        static = self._static_config
        if self._peers is None:
            membership = alone(static.node_id, self.broker_epoch)
        else:
            membership = Membership(
                static.node_id,
                self._peers.brokers,
                control.channel,
                self.broker_epoch,
                control.metadata.names_directories,
            )
        self._config.use(image)
        config = self._config.effective
        parts = self._parts = BrokerComponents(
            config,
            self._runtime,
            control,
            membership,
            logs=self._logs,
            publisher=self._publisher,
            failures=self._failures,
            registry=self._registry,
        )
        contexts = self._contexts = Contexts(config, parts)
        if self._receives_telemetry and config.is_broker:
            contexts.receive_telemetry(config, parts)
        self._config.follow(contexts.use_config)
        self._config.follow(parts.use_config)

    def check_config(self, check: ConfigFollower) -> None:
        """Call `check` before configs of this broker are written; it raises OperatorError to refuse them."""
        self.contexts.admin.config_checks.append(check)

    def follow_config(self, follower: ConfigFollower) -> None:
        """Call `follower` with the effective configs now and after each change of a dynamic one."""
        self._config.follow(follower)

    def follow_dispatcher(self, follower: Callable[[Dispatcher], None]) -> None:
        """Call `follower` with the clients' dispatcher, now and when their quotas change; available after `start`."""

        def choose() -> None:
            within = self._within_quotas
            self.contexts.use_limits(limited=self.parts.quotas.any)
            follower(self.dispatcher if within is None else within.choose())

        self.parts.quotas.follow(choose)
        choose()

    # --- while it runs ---------------------------------------------------------------------------------------------

    def _start_steps(self, config: BrokerConfig) -> None:
        flush_interval_ms = min(FLUSH_CHECK_INTERVAL_MS, config.get_int("log.flush.scheduler.interval.ms"))
        offsets_interval_ms = min(
            config.get_int("replica.high.watermark.checkpoint.interval.ms"),
            config.get_int("log.flush.start.offset.checkpoint.interval.ms"),
        )
        recovery_interval_ms = config.get_int("log.flush.offset.checkpoint.interval.ms")
        logs, pool, in_flight = self._logs, self._runtime.pool, self.parts.in_flight
        checkpoints = [each.checkpoints for each in logs.directories]
        offsets = [
            PoolWriter(each.offsets_due, each.write_files, each.written, pool, in_flight) for each in checkpoints
        ]
        recovery_points = [
            PoolWriter(each.recovery_points_due, each.write_off_loop, each.written, pool, in_flight)
            for each in checkpoints
        ]
        new_points = [
            PoolWriter(each.points_of_new_logs_due, each.write_off_loop, each.written, pool, in_flight)
            for each in checkpoints
        ]
        add = self._steps.add
        deleted = [each.deleted for each in logs.directories]
        removals = [PoolWriter(each.due, each.remove, each.note_removed, pool, in_flight) for each in deleted]
        self._steps.add_sliced(
            "log retention",
            config.get_int("log.retention.check.interval.ms"),
            logs.retention_steps,
            SlicedWork(self._runtime.clock, self._runtime.scheduler),
            initial_delay_ms=config.get_int("log.initial.task.delay.ms"),
        )
        self._steps.add_sliced(
            "expiration of producers",
            config.get_int("producer.id.expiration.check.interval.ms"),
            lambda: producer_expiration_steps(list(logs.all_logs()), self._runtime.clock.time_ms()),
            SlicedWork(self._runtime.clock, self._runtime.scheduler),
        )
        add("log flush", flush_interval_ms, lambda: logs.flush_due(pool))
        add("offset checkpoints", offsets_interval_ms, lambda: _write_due(offsets))
        add("recovery point checkpoint", recovery_interval_ms, lambda: _write_due(recovery_points))
        add("recovery points of new logs", flush_interval_ms, lambda: _write_due(new_points))
        add("removal of deleted files", PURGE_INTERVAL_MS, lambda: _write_due(removals))
        add("opening of logs that failed", REOPEN_INTERVAL_MS, self.parts.replicas.open_missing)

    def _start_scrubbing(self) -> LogScrubbing:
        scrubbing = LogScrubbing(
            self._logs,
            self._runtime,
            self.parts.replicas.report_damage,
            in_flight=self.parts.in_flight,
            steps=self._steps,
            registry=self._registry,
        )
        self._config.follow(scrubbing.use_config)
        return scrubbing

    def _start_cleaning(self, make_worker: Callable[[], Worker]) -> LogCleaning:
        cleaning = LogCleaning(
            self._config.effective,
            self._logs,
            self._runtime,
            make_worker,
            in_flight=self.parts.in_flight,
            steps=self._steps,
        )
        self._config.follow(cleaning.use_config)
        register_cleaner_gauges(self._registry, cleaning.cleaner, self._runtime.clock)
        return cleaning

    # --- stop ------------------------------------------------------------------------------------------------------

    async def hand_over(self) -> None:
        """Before `stop`, while everything is served: hand over this broker's leaderships to other brokers."""
        if self._life is not None:
            await await_callback(self._life.shut_down)

    async def stop(self) -> None:
        """Answer parked requests, make all logs durable, write checkpoints and the clean-shutdown marker."""
        self._steps.stop()
        if self._scrubbing is not None:
            self._scrubbing.scrubber.stop()
        if self._cleaning is not None:
            self._cleaning.stop()
        for life in (self._life, self._controller_lifecycle):
            if life is not None:
                life.end()
        if self._dispatcher is not None:
            self._dispatcher.stop()
        parts = self._parts
        if parts is not None:
            for coordination in parts.coordinations.values():
                coordination.stop()
            parts.share_groups.close()
            self.contexts.share_partitions.stop()
            parts.transaction_markers.close()
            parts.transaction_partitions.close()
            parts.replicas.stop()
            parts.topic_arrivals.stop()
            # Results of pool jobs may park again: an append that waits for its fsync.
            await parts.in_flight.drained()
        await flush_all(self._logs.all_logs(), self._runtime.pool)
        if parts is not None:
            parts.purgatory.expire_all()
        if self._control is not None:
            await self._leave(self._control)
        self._logs.shutdown(NO_BROKER_EPOCH if self._life is None else self._life.broker_epoch)

    async def _leave(self, control: Control) -> None:
        """Close the metadata log, last of all."""
        control.channel.close()
        migration = self._migration
        if migration is not None:
            await await_callback(lambda done: migration.leave(lambda: done(None)))
        try:
            await await_callback(control.controller.stop)
        except KafkaError as error:
            self._failures.warn("metadata log", f"the clean close failed: {error.message}")
        if migration is not None:
            await await_callback(lambda done: migration.stop(lambda: done(None)))
        if self._controller_dispatcher is not None:
            self._controller_dispatcher.stop()


def _write_due(writers: Sequence[PoolWriter[Any]]) -> None:
    for writer in writers:
        writer.write_due()


def _nothing() -> None:
    """Default callback: no waiter for the controller's registration."""
