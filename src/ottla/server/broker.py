"""One broker: its parts, wired and in order of start and stop.

Start: lock the data directory, replay the metadata log, open the logs, register as a new incarnation and wait until
that is committed; only then is there a dispatcher. Stop: refuse new requests, answer what is parked, make everything
durable, write checkpoints and the clean-shutdown marker.

Everything real (loop, clock, disk, pool, sockets) comes in as arguments, so a simulator runs the same class. Left out:
listeners and signals (`ottla.app.start`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.common.broker_configs import BrokerConfig
from ottla.common.clock import BlockingPool, Clock, Rng, Scheduler
from ottla.common.config_def import ConfigResourceType
from ottla.common.disk import Disk
from ottla.common.endpoint import Endpoint
from ottla.common.errors import InvariantError, KafkaError, OperatorError
from ottla.common.ids import Uuid, uuid_from_string
from ottla.common.peer import PeerNetwork
from ottla.controller.driver import Controller, metadata_log_config
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.metrics.registry import MetricsRegistry
from ottla.quorum.driver import QuorumDriver
from ottla.replica.fetch_session import FetchSessionCache
from ottla.replica.manager import ReplicaManager
from ottla.replica.purgatory import Purgatory
from ottla.server.apis import BROKER_APIS
from ottla.server.background import PeriodicSteps
from ottla.server.context import BrokerContext
from ottla.server.dispatch import RequestDispatcher
from ottla.server.failures import Failures
from ottla.server.gauges import register_gauges
from ottla.server.group_coordination import GroupCoordination
from ottla.server.group_gauges import register_group_gauges
from ottla.server.in_flight import InFlight
from ottla.server.producer_id_source import ProducerIdSource
from ottla.server.statistics import BrokerStatistics
from ottla.storage.flush import request_closing_flush
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_manager import DEFAULT_OPEN_FILES, LogManager

FLUSH_CHECK_INTERVAL_MS = 1000
"""Longest time from a roll, or from the end of a log's flush.ms, to its flush."""
PURGE_INTERVAL_MS = 15_000
REOPEN_INTERVAL_MS = 5_000
CLOSING_FLUSHES = 64
"""Logs that a stop flushes at once."""


class Broker:
    """A node that is broker and, in this version, its own controller."""

    def __init__(
        self,
        config: BrokerConfig,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        scheduler: Scheduler,
        pool: BlockingPool,
        metrics_registry: MetricsRegistry,
        *,
        hostname: str = "localhost",
        max_open_files: int = DEFAULT_OPEN_FILES,
        peers: PeerNetwork | None = None,
    ) -> None:
        """`hostname` is advertised for listeners that are bound to all addresses.

        `max_open_files` bounds the descriptors of segments and indexes. `peers` is the way to other nodes; a cluster of
        one needs none.
        """
        self._peers = peers
        self._static_config = config
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self._scheduler = scheduler
        self._pool = pool
        self._registry = metrics_registry
        self._hostname = hostname
        self._failures = Failures(clock)
        self._steps = PeriodicSteps(scheduler, self._failures)
        self._publisher = MetadataPublisher()
        self._logs = LogManager(
            disk,
            clock,
            rng,
            config.log_dir,
            default_config=LogConfig.from_properties(config.topic_properties({})),
            max_open_files=max_open_files,
            producer_expiration_ms=config.get_int("producer.id.expiration.ms"),
        )
        self._controller: Controller | None = None
        self._context: BrokerContext | None = None
        self._groups: GroupCoordination | None = None
        self._dispatcher: RequestDispatcher | None = None
        self._checkpoint_running = False
        self._recovery_points_running = False
        self.advertised_listeners: list[Endpoint] = []

    @property
    def dispatcher(self) -> RequestDispatcher:
        """Where listeners hand their frames; there after `start`."""
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

    async def start(self, listeners: list[Endpoint]) -> None:
        """Bring the broker up; `listeners` as they were bound, with real ports.

        Raises OperatorError for what the operator can mend; the process is expected to end then, and its lock with it.
        """
        config = self._static_config
        self.advertised_listeners = config.advertise(listeners, self._hostname)
        self._logs.open(node_id=config.node_id)
        controller = self._controller = self._make_controller()
        registered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            controller.start(self.advertised_listeners, _resolving(registered), self._open_logs)
        except KafkaError as error:
            raise OperatorError(f"the metadata log in {config.log_dir} can't be written: {error.message}") from error
        image = controller.image
        context = self._context = self._make_context(controller, _with_dynamic(config, image))
        context.replicas.set_strays_aside(image)
        self._publisher.register(self._image_published)
        try:
            await registered
        except KafkaError as error:
            raise OperatorError(f"the metadata log in {config.log_dir} can't be written: {error.message}") from error
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        context.replicas.when_opened(lambda: _resolving(opened)(None))
        await opened
        self._dispatcher = RequestDispatcher(context, BROKER_APIS)
        register_gauges(self._registry, context, self._logs)
        if self._groups is not None:
            register_group_gauges(self._registry, self._groups.runtime, self._clock)
        self._start_steps(config)

    def _open_logs(self, image: MetadataImage) -> dict[tuple[Uuid, int], int]:
        """Open every log with its topic's settings; the newest leader epoch of each. Raises OperatorError."""
        config = _with_dynamic(self._static_config, image)
        self._logs.load_logs(
            lambda topic: LogConfig.from_properties(config.topic_properties(image.topic_configs(topic)))
        )
        return {
            (log.topic_id, log.partition): log.leader_epoch for log in self._logs.logs() if log.topic_id is not None
        }

    def _make_controller(self) -> Controller:
        config = self._static_config
        directory_id = uuid_from_string(self._logs.meta_properties.directory_id)
        quorum = QuorumDriver(
            disk=self._disk,
            clock=self._clock,
            rng=self._rng,
            scheduler=self._scheduler,
            pool=self._pool,
            data_dir=config.log_dir,
            node_id=config.node_id,
            directory_id=directory_id,
            config=metadata_log_config(config),
            publisher=self._publisher,
            on_failure=lambda error: self._failures.complain(
                "metadata log", f"no change is possible any more: {error}"
            ),
        )
        return Controller(quorum=quorum, config=config, directory_id=directory_id, rng=self._rng)

    def _make_context(self, controller: Controller, config: BrokerConfig) -> BrokerContext:
        purgatory = Purgatory(self._scheduler, self._failures)
        replicas = ReplicaManager(
            config.node_id,
            self._logs,
            purgatory,
            self._pool,
            config.topic_properties,
            clock=self._clock,
            scheduler=self._scheduler,
        )
        in_flight = InFlight()
        groups = self._groups = GroupCoordination(
            config=config,
            clock=self._clock,
            rng=self._rng,
            scheduler=self._scheduler,
            pool=self._pool,
            publisher=self._publisher,
            replicas=replicas,
            in_flight=in_flight,
            failures=self._failures,
        )
        return BrokerContext(
            config=config,
            cluster_id=self.cluster_id,
            disk=self._disk,
            clock=self._clock,
            rng=self._rng,
            pool=self._pool,
            publisher=self._publisher,
            controller=controller,
            replicas=replicas,
            purgatory=purgatory,
            sessions=FetchSessionCache(config.get_int("max.incremental.fetch.session.cache.slots"), self._rng),
            producer_ids=ProducerIdSource(controller.allocate_producer_ids),
            statistics=BrokerStatistics(self._registry),
            failures=self._failures,
            in_flight=in_flight,
            group_coordinator=groups.coordinator,
        )

    def _image_published(self, image: MetadataImage, changes: MetadataChanges) -> None:
        """Settings first, since new logs are made with them; then partitions; then groups; then what only reports."""
        context = self.context
        if any(resource.type is ConfigResourceType.BROKER for resource in changes.changed_configs):
            config = _with_dynamic(self._static_config, image)
            context.use_config(config)
            context.replicas.use_topic_properties(config.topic_properties)
        context.replicas.apply(image, changes)
        groups = self._groups
        if groups is not None:
            # A coordinator reads its log, which may be opened only some turns later; images stay in order.
            context.replicas.when_opened(lambda: groups.follow(image, changes))
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
        add("log retention", config.get_int("log.retention.check.interval.ms"), self._logs.run_retention)
        add("log flush", flush_interval_ms, lambda: self._logs.flush_due(self._pool))
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
        self._pool.submit(lambda: self._logs.write_files(files), written)

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
        self._pool.submit(lambda: self._logs.write_off_loop(due), written)

    # --- stop ------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Answer what is parked, make everything durable, write checkpoints and the clean-shutdown marker."""
        self._steps.stop()
        if self._dispatcher is not None:
            self._dispatcher.stop()
        if self._groups is not None:
            self._groups.stop()
        if self._context is not None:
            self._context.replicas.stop()
            # What comes back from the pool may park again: an append that waits for its fsync.
            await self._context.in_flight.drained()
        await self._flush_all()
        if self._context is not None:
            self._context.purgatory.expire_all()
        if self._controller is not None:
            stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._controller.stop(_resolving(stopped))
            try:
                await stopped
            except KafkaError as error:
                self._failures.complain("metadata log", f"it could not be closed cleanly: {error.message}")
        self._logs.shutdown()

    async def _flush_all(self) -> None:
        """Wait until no flush is under way and everything is durable; a failed one is the log manager's to report.

        Some logs at once, since concurrent syncs share the journal's commits; not all, since each holds files open.
        """
        logs = [log for log in self._logs.logs() if not log.failed]
        for start in range(0, len(logs), CLOSING_FLUSHES):
            waiting = [self._flush_for_close(log) for log in logs[start : start + CLOSING_FLUSHES]]
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _flush_for_close(self, log: Log) -> None:
        loop = asyncio.get_running_loop()
        flushed: asyncio.Future[None] = loop.create_future()
        log.request_flush(self._pool, _resolving(flushed))
        await flushed
        ready: asyncio.Future[None] = loop.create_future()
        request_closing_flush(log, self._pool, _resolving(ready))
        await ready


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
