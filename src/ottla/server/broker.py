"""One node: broker, controller, or both; its parts, wired and in order of start and stop.

Start of a single node: lock the data directory, replay the metadata log, open the logs, register as a new incarnation
and wait until that is committed; only then is there a dispatcher. Start in a cluster: lock, replay, open the logs by
what was replayed; from then on the controller's listener may be served (`open`). Then register with the active
controller, wait for the metadata of that, bring up the partitions, and be unfenced. A controller makes itself known
too, and is up with that where it is no broker.

Stop: in a cluster hand the leaderships over first. Refuse new requests, answer what is parked, make everything durable,
write checkpoints and the clean-shutdown marker; last of all leave the quorum.

Everything real (loop, clock, disk, pool, sockets) comes in as arguments, so a simulator runs the same class. Left out:
listeners and signals (`ottla.app.start`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.broker_configs import BrokerConfig
from ottla.common.config_def import ConfigResourceType
from ottla.common.endpoint import Endpoint
from ottla.common.errors import InvariantError, KafkaError, OperatorError
from ottla.common.ids import Uuid, uuid_from_string
from ottla.common.machine import Machine
from ottla.common.peer import PeerNetwork
from ottla.controller.driver import Controller
from ottla.metadata.delta import MetadataChanges, all_changes
from ottla.metadata.image import MetadataImage
from ottla.metadata.log import LeaderAndEpoch
from ottla.metadata.publisher import MetadataPublisher
from ottla.metrics.registry import MetricsRegistry
from ottla.replica.fetch_session import FetchSessionCache
from ottla.replica.manager import ReplicaManager
from ottla.replica.membership import Membership, alone
from ottla.replica.purgatory import Purgatory
from ottla.replica.statistics import ReplicationStatistics
from ottla.server.apis import BROKER_APIS
from ottla.server.background import PeriodicSteps
from ottla.server.compaction_warning import warn_of_compacted_topics
from ottla.server.context import BrokerContext
from ottla.server.controller_gauges import register_controller_gauges
from ottla.server.data_directory import format_or_refuse, refuse_partitions
from ottla.server.dispatch import RequestDispatcher
from ottla.server.failures import Failures
from ottla.server.forwarding import ControllerChannel
from ottla.server.gauges import register_gauges
from ottla.server.group_coordination import GroupCoordination
from ottla.server.group_gauges import register_group_gauges
from ottla.server.in_flight import InFlight
from ottla.server.lifecycle import BrokerIdentity, BrokerLifecycle
from ottla.server.metadata_log.choice import make_metadata_log
from ottla.server.metadata_log.node import MetadataLogContext, MetadataLogFactory, NodeMetadataLog
from ottla.server.producer_id_source import ProducerIdSource
from ottla.server.replication_settings import replication_settings
from ottla.server.statistics import BrokerStatistics
from ottla.server.topic_arrivals import TopicArrivals
from ottla.storage.flush import request_closing_flush
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_manager import DEFAULT_OPEN_FILES, LogManager
from ottla.storage.meta_properties import random_id

if TYPE_CHECKING:
    from ottla.server.controller_lifecycle import ControllerLifecycle

FLUSH_CHECK_INTERVAL_MS = 1000
"""Longest time from a roll, or from the end of a log's flush.ms, to its flush."""
PURGE_INTERVAL_MS = 15_000
REOPEN_INTERVAL_MS = 5_000
NO_BROKER_EPOCH = -1
"""A single node is trusted with its logs after whatever end: nobody has more."""
CLOSING_FLUSHES = 64
"""Logs that a stop flushes at once."""


class Broker:
    """A node of a cluster, or a cluster of one."""

    def __init__(
        self,
        config: BrokerConfig,
        machine: Machine,
        metrics_registry: MetricsRegistry,
        *,
        hostname: str = "localhost",
        max_open_files: int = DEFAULT_OPEN_FILES,
        peers: PeerNetwork | None = None,
        on_fatal: Callable[[BaseException], None] | None = None,
        metadata_log: MetadataLogFactory = make_metadata_log,
    ) -> None:
        """`hostname` is advertised for listeners that are bound to all addresses.

        `max_open_files` bounds the descriptors of segments and indexes. `peers` is the way to other nodes; a cluster of
        one needs none. `metadata_log` makes this node's part in what its cluster agrees by.
        """
        self._peers = peers if config.clustered else None
        self._on_fatal = on_fatal if config.clustered else None
        self._make_metadata_log = metadata_log
        self._static_config = config
        self._machine = machine
        self._registry = metrics_registry
        self._hostname = hostname
        self._failures = Failures(machine.clock)
        self._steps = PeriodicSteps(machine.scheduler, self._failures)
        self._publisher = MetadataPublisher()
        self._logs = LogManager(
            machine.disk,
            machine.clock,
            machine.rng,
            config.log_dir,
            default_config=LogConfig.from_properties(config.topic_properties({})),
            max_open_files=max_open_files,
            producer_expiration_ms=config.get_int("producer.id.expiration.ms"),
            on_offline=self._end_of_disk,
        )
        self._parts: _Parts | None = None
        self._context: BrokerContext | None = None
        self._groups: GroupCoordination | None = None
        self._lifecycle: BrokerLifecycle | None = None
        self._controller_lifecycle: ControllerLifecycle | None = None
        self._config_followers: list[Callable[[BrokerConfig], None]] = []
        self._dispatcher: RequestDispatcher | None = None
        self._controller_dispatcher: RequestDispatcher | None = None
        self._checkpoint_running = False
        self._recovery_points_running = False
        self.advertised_listeners: list[Endpoint] = []
        """Of the broker, for clients and for other brokers."""
        self.advertised_controllers: list[Endpoint] = []
        """Of the controller, for other nodes and administrators; empty on a node that is alone."""

    @property
    def controller_dispatcher(self) -> RequestDispatcher:
        """Where listeners of the controller hand their frames; there after `open`."""
        if self._controller_dispatcher is None:
            raise InvariantError("the node was not opened")
        return self._controller_dispatcher

    @property
    def dispatcher(self) -> RequestDispatcher:
        """Where listeners of the broker hand their frames; there after `start`."""
        if self._dispatcher is None:
            raise InvariantError("the broker was not started")
        return self._dispatcher

    @property
    def context(self) -> BrokerContext:
        """The broker's parts; there after `start`."""
        if self._context is None:
            raise InvariantError("the broker was not started")
        return self._context

    @property
    def cluster_id(self) -> str:
        """22 characters, from `meta.properties`; there after `start`."""
        return self._logs.meta_properties.cluster_id

    # --- start -----------------------------------------------------------------------------------------------------

    def open(self, listeners: Sequence[Endpoint]) -> None:
        """Open the data directory and, in a cluster, take part in the metadata quorum; blocks while reading.

        `listeners` as they were bound, with real ports, the controller's among them. From now on a listener of the
        controller may be served, and has to be before `start` can succeed. Raises OperatorError.
        """
        config = self._static_config
        controllers = config.controller_listener_names
        bound = [endpoint for endpoint in listeners if endpoint.listener_name not in controllers]
        self.advertised_listeners = config.advertise(bound, self._hostname)
        own = self.advertised_controllers = config.advertise(
            [endpoint for endpoint in listeners if endpoint.listener_name in controllers], self._hostname
        )
        if config.clustered:
            format_or_refuse(self._machine.disk, self._machine.clock, self._machine.rng, config, own)
        self._logs.open(node_id=config.node_id)
        parts = self._parts = self._make_parts(config)
        if config.clustered:
            if parts.metadata.log.start(own):
                refuse_partitions(self._machine.disk, config.log_dir)
            image = parts.metadata.log.latest
            self._open_logs(image)
            context = self._context = self._make_context(parts, _with_dynamic(config, image))
            from ottla.server.controller_apis import CONTROLLER_APIS  # here, since a single node needs none of it

            self._controller_dispatcher = RequestDispatcher(context, CONTROLLER_APIS, serves_controller=True)
            parts.metadata.log.listen(_Leadership(parts))
            if config.is_controller:
                self._controller_lifecycle = self._make_controller_lifecycle(parts)

    async def start(self, listeners: Sequence[Endpoint] = ()) -> None:
        """Bring the broker up; after `open`, or with its argument instead.

        Raises OperatorError for what the operator can mend; the process is expected to end then, and its lock with it.
        """
        if listeners:
            self.open(listeners)
        if self._parts is None:
            raise InvariantError("the node was not opened")
        parts, config = self._parts, self._static_config
        parts.metadata.register_gauges(self._registry)
        register_controller_gauges(self._registry, parts.controller, self._publisher)
        if not config.is_broker:
            await self._register_controller()
            self._dispatcher = RequestDispatcher(self.context, ())  # no client is served, and none has a listener
            return
        if self._controller_lifecycle is not None:
            self._controller_lifecycle.start(_nothing)
        context = await (self._join(parts) if config.clustered else self._start_alone(parts))
        self._dispatcher = RequestDispatcher(context, BROKER_APIS)
        register_gauges(self._registry, context, self._logs)
        if self._groups is not None:
            register_group_gauges(self._registry, self._groups.runtime, self._machine.clock)
        self._start_steps(config)

    async def _register_controller(self) -> None:
        """A node without a broker is up when the cluster's metadata is here and names it."""
        if self._controller_lifecycle is None:
            raise InvariantError("the node is neither broker nor controller")
        self._publisher.register(self._controller_image_published)
        registered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._controller_lifecycle.start(lambda: _resolving(registered)(None))
        await registered
        image = self._publisher.image
        self._controller_image_published(image, all_changes(image))

    async def _start_alone(self, parts: _Parts) -> BrokerContext:
        """The metadata log of one voter, with registration and new leader epochs in its first image."""
        config, controller = self._static_config, parts.controller
        registered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            controller.start(self.advertised_listeners, _resolving(registered), self._open_logs_alone)
        except KafkaError as error:
            raise OperatorError(f"the metadata log in {config.log_dir} can't be written: {error.message}") from error
        image = controller.image
        context = self._context = self._make_context(parts, _with_dynamic(config, image))
        context.replicas.set_strays_aside(image)
        self._publisher.register(self._image_published)
        try:
            await registered
        except KafkaError as error:
            raise OperatorError(f"the metadata log in {config.log_dir} can't be written: {error.message}") from error
        await _opened(context)
        return context

    async def _join(self, parts: _Parts) -> BrokerContext:
        """Into the cluster: registered, caught up, with every partition at work, unfenced."""
        context, loop = self.context, asyncio.get_running_loop()
        lifecycle = self._lifecycle = self._make_lifecycle(parts)
        caught_up: asyncio.Future[None] = loop.create_future()
        lifecycle.start(_resolving(caught_up))
        await caught_up
        self._logs.note_running(lifecycle.broker_epoch)
        image = self._publisher.image
        config = _with_dynamic(self._static_config, image)
        context.use_config(config)
        context.replicas.use_topic_properties(config.topic_properties)
        context.replicas.set_strays_aside(image)
        self._publisher.register(self._image_published)
        self._image_published(image, all_changes(image))
        await _opened(context)
        unfenced: asyncio.Future[None] = loop.create_future()
        lifecycle.serve(_resolving(unfenced))
        await unfenced
        return context

    def _open_logs(self, image: MetadataImage) -> dict[tuple[Uuid, int], int]:
        """Open every log with its topic's settings; the newest leader epoch of each. Raises OperatorError."""
        config = _with_dynamic(self._static_config, image)
        self._logs.load_logs(
            lambda topic: LogConfig.from_properties(config.topic_properties(image.topic_configs(topic)))
        )
        return {
            (log.topic_id, log.partition): log.leader_epoch for log in self._logs.logs() if log.topic_id is not None
        }

    def _open_logs_alone(self, image: MetadataImage) -> dict[tuple[Uuid, int], int]:
        """The same where `image` is all that there is to know of topics."""
        if not image.features:
            refuse_partitions(self._machine.disk, self._static_config.log_dir)
        return self._open_logs(image)

    def _make_parts(self, config: BrokerConfig) -> _Parts:
        directory_id = uuid_from_string(self._logs.meta_properties.directory_id)
        metadata = self._make_metadata_log(
            MetadataLogContext(
                config=config,
                cluster_id=self.cluster_id,
                directory_id=directory_id,
                machine=self._machine,
                peers=self._peers,
                publisher=self._publisher,
                on_failure=self._metadata_log_failed,
            )
        )
        controller = Controller(
            metadata_log=metadata.log,
            config=config,
            cluster_id=self.cluster_id,
            directory_id=directory_id,
            clock=self._machine.clock,
            rng=self._machine.rng,
            scheduler=self._machine.scheduler,
            registry=self._registry,
        )
        channel = ControllerChannel(
            controller,
            metadata.log.leader_endpoint,
            self._peers,
            clock=self._machine.clock,
            scheduler=self._machine.scheduler,
        )
        return _Parts(metadata, controller, channel)

    def _make_controller_lifecycle(self, parts: _Parts) -> ControllerLifecycle:
        from ottla.server.controller_lifecycle import ControllerLifecycle  # here, since a single node needs none

        return ControllerLifecycle(
            self._static_config.node_id,
            uuid_from_string(random_id(self._machine.rng)),
            self.advertised_controllers,
            parts.channel,
            self._publisher,
            self._machine.scheduler,
        )

    def _make_lifecycle(self, parts: _Parts) -> BrokerLifecycle:
        config = self._static_config
        meta = self._logs.meta_properties
        identity = BrokerIdentity(
            node_id=config.node_id,
            cluster_id=meta.cluster_id,
            incarnation_id=self._logs.begin_incarnation(uuid_from_string(random_id(self._machine.rng))),
            directory_id=uuid_from_string(meta.directory_id),
            endpoints=self.advertised_listeners,
            rack=config.rack,
            previous_broker_epoch=self._logs.last_broker_epoch,
        )
        return BrokerLifecycle(
            identity,
            parts.channel,
            self._publisher,
            new_incarnation_id=lambda: uuid_from_string(random_id(self._machine.rng)),
            registered_again=self._registered_again,
            clock=self._machine.clock,
            scheduler=self._machine.scheduler,
            heartbeat_interval_ms=config.get_int("broker.heartbeat.interval.ms"),
            session_timeout_ms=config.get_int("broker.session.timeout.ms"),
            registration_timeout_ms=config.get_int("initial.broker.registration.timeout.ms"),
        )

    def _registered_again(self, broker_epoch: int) -> None:
        try:
            self._logs.note_running(broker_epoch)
        except OperatorError as error:
            self._end_of_disk(error)

    def _metadata_log_failed(self, error: BaseException) -> None:
        """A single node goes on serving reads; in a cluster a node that hears of no change must not stay in it."""
        self._failures.complain("metadata log", f"no change is possible any more: {error}")
        self._end_of_disk(error)

    def _end_of_disk(self, error: BaseException) -> None:
        """A single node goes on serving reads; in a cluster others can lead what this one can't append to."""
        if self._on_fatal is not None:
            self._machine.scheduler.call_soon(self._on_fatal, error)

    def broker_epoch(self) -> int:
        """Of the registration that holds; -1 before."""
        if self._lifecycle is not None:
            return self._lifecycle.broker_epoch
        return -1 if self._parts is None else self._parts.controller.broker_epoch

    def _make_context(self, parts: _Parts, config: BrokerConfig) -> BrokerContext:
        purgatory = Purgatory(self._machine.scheduler, self._failures)
        replicas = ReplicaManager(
            alone(config.node_id)
            if self._peers is None
            else Membership(config.node_id, self._peers, parts.channel, self.broker_epoch),
            self._logs,
            purgatory,
            config.topic_properties,
            clock=self._machine.clock,
            scheduler=self._machine.scheduler,
            pool=self._machine.pool,
            settings=replication_settings(config),
            statistics=ReplicationStatistics(self._registry),
        )
        in_flight = InFlight()
        groups = self._groups = GroupCoordination(
            config=config,
            clock=self._machine.clock,
            rng=self._machine.rng,
            scheduler=self._machine.scheduler,
            pool=self._machine.pool,
            publisher=self._publisher,
            replicas=replicas,
            in_flight=in_flight,
            failures=self._failures,
        )
        return BrokerContext(
            config=config,
            cluster_id=self.cluster_id,
            disk=self._machine.disk,
            clock=self._machine.clock,
            rng=self._machine.rng,
            pool=self._machine.pool,
            publisher=self._publisher,
            quorum=parts.metadata.quorum,
            controller=parts.controller,
            controller_channel=parts.channel,
            topic_arrivals=TopicArrivals(replicas, self._machine.scheduler),
            replicas=replicas,
            purgatory=purgatory,
            sessions=FetchSessionCache(
                config.get_int("max.incremental.fetch.session.cache.slots"), self._machine.rng, purgatory
            ),
            producer_ids=ProducerIdSource(parts.channel, config.node_id, self.broker_epoch),
            statistics=BrokerStatistics(self._registry),
            failures=self._failures,
            in_flight=in_flight,
            group_coordinator=groups.coordinator,
        )

    def follow_config(self, follow: Callable[[BrokerConfig], None]) -> None:
        """Call `follow` with the effective settings now and after each change of a dynamic one."""
        self._config_followers.append(follow)
        follow(self.context.config)

    def _controller_image_published(self, image: MetadataImage, changes: MetadataChanges) -> None:
        """A node without a broker follows its own settings alone."""
        if any(resource.type is ConfigResourceType.BROKER for resource in changes.changed_configs):
            self.context.use_config(_with_dynamic(self._static_config, image))

    def _image_published(self, image: MetadataImage, changes: MetadataChanges) -> None:
        """Settings first, since new logs are made with them; then partitions; then groups; then what only reports."""
        context = self.context
        if any(resource.type is ConfigResourceType.BROKER for resource in changes.changed_configs):
            config = _with_dynamic(self._static_config, image)
            context.use_config(config)
            context.replicas.use_topic_properties(config.topic_properties)
            self._logs.use_producer_expiration(config.get_int("producer.id.expiration.ms"))
            if self._groups is not None:
                self._groups.use_config(config)
            for follow in self._config_followers:
                follow(config)
        context.replicas.apply(image, changes)
        groups = self._groups
        if groups is not None:
            # A coordinator reads its log, which may be opened only some turns later; images stay in order.
            context.replicas.when_opened(lambda: groups.follow(image, changes))
        context.topic_arrivals.follow(image)
        warn_of_compacted_topics(image, changes)
        for topic in changes.deleted_topics:
            if image.topic(topic.name) is None:
                context.statistics.forget_topic(topic.name)

    # --- while it runs ---------------------------------------------------------------------------------------------

    def _start_steps(self, config: BrokerConfig) -> None:
        flush_interval_ms = min(FLUSH_CHECK_INTERVAL_MS, config.get_int("log.flush.scheduler.interval.ms"))
        offsets_interval_ms = min(
            config.get_int("replica.high.watermark.checkpoint.interval.ms"),
            config.get_int("log.flush.start.offset.checkpoint.interval.ms"),
        )
        recovery_interval_ms = config.get_int("log.flush.offset.checkpoint.interval.ms")
        add = self._steps.add
        add(
            "log retention",
            config.get_int("log.retention.check.interval.ms"),
            self._logs.run_retention,
            initial_delay_ms=config.get_int("log.initial.task.delay.ms"),
        )
        add("log flush", flush_interval_ms, lambda: self._logs.flush_due(self._machine.pool))
        add("offset checkpoints", offsets_interval_ms, self._checkpoint_offsets)
        add("recovery point checkpoint", recovery_interval_ms, self._checkpoint_recovery_points)
        add("removal of deleted files", PURGE_INTERVAL_MS, self._logs.purge_deleted)
        add("opening of logs that failed", REOPEN_INTERVAL_MS, self.context.replicas.open_missing)

    def _checkpoint_offsets(self) -> None:
        """High watermarks and log start offsets, written in the pool so that no request waits for the disk."""
        context = self.context
        files = self._logs.offset_checkpoints_due()
        if self._checkpoint_running or not files:
            return
        self._checkpoint_running = True

        def written(_: None, error: BaseException | None) -> None:
            self._checkpoint_running = False
            self._logs.offset_checkpoints_written(files, error)
            context.in_flight.end()

        context.in_flight.begin()
        self._machine.pool.submit(lambda: self._logs.write_files(files), written)

    def _checkpoint_recovery_points(self) -> None:
        """Recovery points, written in the pool."""
        due = self._logs.recovery_points_due()
        if self._recovery_points_running or due is None:
            return
        in_flight = self.context.in_flight
        self._recovery_points_running = True

        def written(_: bool | None, error: BaseException | None) -> None:
            self._recovery_points_running = False
            self._logs.offset_checkpoints_written([], error)
            in_flight.end()

        in_flight.begin()
        self._machine.pool.submit(lambda: self._logs.write_off_loop(due), written)

    # --- stop ------------------------------------------------------------------------------------------------------

    async def hand_over(self) -> None:
        """Before `stop`, while everything is served: let other brokers lead what this one leads."""
        if self._lifecycle is not None:
            handed_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._lifecycle.shut_down(_resolving(handed_over))
            await handed_over

    async def stop(self) -> None:
        """Answer what is parked, make everything durable, write checkpoints and the clean-shutdown marker."""
        self._steps.stop()
        if self._lifecycle is not None:
            self._lifecycle.end()
        if self._controller_lifecycle is not None:
            self._controller_lifecycle.end()
        if self._dispatcher is not None:
            self._dispatcher.stop()
        if self._groups is not None:
            self._groups.stop()
        if self._context is not None:
            self._context.replicas.stop()
            self._context.topic_arrivals.stop()
            # What comes back from the pool may park again: an append that waits for its fsync.
            await self._context.in_flight.drained()
        await self._flush_all()
        if self._context is not None:
            self._context.purgatory.expire_all()
        if self._parts is not None:
            await self._leave_quorum(self._parts)
        self._logs.shutdown(NO_BROKER_EPOCH if self._lifecycle is None else self._lifecycle.broker_epoch)

    async def _leave_quorum(self, parts: _Parts) -> None:
        stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        parts.channel.close()
        parts.controller.stop(_resolving(stopped))
        try:
            await stopped
        except KafkaError as error:
            self._failures.complain("metadata log", f"it could not be closed cleanly: {error.message}")
        if self._controller_dispatcher is not None:
            self._controller_dispatcher.stop()

    async def _flush_all(self) -> None:
        """Wait until no flush is under way and everything is durable; a failed one is the log manager's to report.

        Some logs at once, since concurrent syncs share the journal's commits; not all, since each holds files open.
        """
        logs = [log for log in self._logs.logs() if log.changed and not log.failed]
        for start in range(0, len(logs), CLOSING_FLUSHES):
            waiting = [self._flush_for_close(log) for log in logs[start : start + CLOSING_FLUSHES]]
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _flush_for_close(self, log: Log) -> None:
        loop = asyncio.get_running_loop()
        flushed: asyncio.Future[None] = loop.create_future()
        log.request_flush(self._machine.pool, _resolving(flushed))
        await flushed
        ready: asyncio.Future[None] = loop.create_future()
        request_closing_flush(log, self._machine.pool, _resolving(ready))
        await ready


class _Parts(NamedTuple):
    """What decides, and the way to it."""

    metadata: NodeMetadataLog
    controller: Controller
    channel: ControllerChannel


class _Leadership:
    """Hands a change of the metadata log's leader to the parts that follow it. Implements `LeadershipListener`."""

    __slots__ = ("_parts",)

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts

    def on_leader_change(self, leader: LeaderAndEpoch, active: bool) -> None:
        self._parts.controller.on_leader_change(leader, active)
        self._parts.channel.leader_changed()


async def _opened(context: BrokerContext) -> None:
    """Until every partition of the images so far is open."""
    opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    context.replicas.when_opened(lambda: _resolving(opened)(None))
    await opened


def _with_dynamic(config: BrokerConfig, image: MetadataImage) -> BrokerConfig:
    return config.with_dynamic(image.default_broker_configs(), image.broker_configs(config.node_id))


def _resolving(future: asyncio.Future[None]) -> Callable[[BaseException | None], None]:
    """A callback that finishes `future`."""

    def done(error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    return done


def _nothing() -> None:
    """Nobody waits for the controller's registration where a broker's is waited for."""
