"""The controller of this node: while active, it runs handlers one after the other and commits their records.

It connects the pure handlers with the metadata log (`metadata.log`). Operations run in call order: a handler sees every
change of earlier ones, committed or not. A response is sent only after all changes that it is based on are committed.

One node of a cluster is active: the leader of the metadata log. It has soft state beside the log (heartbeats), which it
resets when it becomes active. Pending operations fail with NOT_CONTROLLER when it resigns; their callers have to retry.

The active controller also acts on its own: it fences silent brokers, moves leaderships back to preferred replicas,
elects leaders for leaderless partitions, and raises the replication factor of internal topics. The rules of this work
are imported when it is first due: a single node may never need them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_keys_tokens import token_secret
from ottla.common.errors import ErrorCode, InvariantError, KafkaError, OperatorError
from ottla.common.kafka.ids import RESERVED_UUIDS, Uuid, new_uuid
from ottla.common.platform.clock import Clock, Rng, Scheduler, TimerHandle
from ottla.common.platform.endpoint import Endpoint
from ottla.controller.cluster import (
    check_directories,
    cordoned_directories,
    name_directories,
    raise_leader_epochs,
    register_broker,
)
from ottla.controller.features import activation_records, levels_in
from ottla.controller.heartbeats import BrokerHeartbeats
from ottla.controller.leaderless import LeaderlessPartitions
from ottla.controller.migration_records import migration_records
from ottla.controller.result import (
    MIN_ISR,
    RECORDS_PER_TURN,
    SLICE,
    ControllerContext,
    ControllerOperation,
    ControllerResult,
)
from ottla.controller.statistics import ControllerStatistics
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.log import LeaderAndEpoch, MetadataLog, PreparedRecords, Submission
from ottla.metadata.records import ApiMessageAndVersion
from ottla.metrics.registry import MetricsRegistry
from ottla.protocol.messages.metadata_records import BrokerRegistrationChangeRecord, ConfigRecord, FeatureLevelRecord
from ottla.quota.mutations import MutationQuotas
from ottla.quota.windows import Windows
from ottla.security.sasl.tokens import TokenIndex

if TYPE_CHECKING:
    from ottla.controller.preparation import Preparation

Response = TypeVar("Response")
Done = Callable[[Response | None, BaseException | None], None]

_MAX_RECORDS_PER_BATCH = 10_000
"""Maximum batch size for the records of the start, which need no atomicity."""
_READ_FIRST_S = 0.02
"""Delay between the end of a session and the fencing, in which heartbeats that wait in sockets are read."""
_CAUSES_OF_UPKEEP = (BrokerRegistrationChangeRecord, ConfigRecord, FeatureLevelRecord)
"""Records that may enable an election, more replicas of an internal topic, or directories of a registration."""


class Controller:
    """Runs on the loop of its process."""

    __slots__ = (
        "_active",
        "_balance_timer",
        "_clock",
        "_cluster_id",
        "_config",
        "_cordoned",
        "_dynamic",
        "_fencing_timer",
        "_heartbeats",
        "_leaderless",
        "_log_dirs",
        "_metadata_log",
        "_preparation",
        "_rng",
        "_scheduler",
        "_static_config",
        "_statistics",
        "_tokens",
        "_tokens_timer",
        "_upkeep_due",
        "broker_epoch",
        "mutations",
    )

    def __init__(
        self,
        *,
        metadata_log: MetadataLog,
        config: BrokerConfig,
        cluster_id: str,
        log_dirs: Callable[[], Sequence[Uuid]],
        cordoned: Callable[[], Sequence[Uuid]],
        clock: Clock,
        rng: Rng,
        scheduler: Scheduler,
        registry: MetricsRegistry,
    ) -> None:
        """`config` is the parsed static configuration; dynamic settings from the image override it.

        `log_dirs` returns the usable data directories of the broker of a single node, `cordoned` those of them that
        take no new replicas.
        """
        self._metadata_log = metadata_log
        self._static_config = self._config = config
        self._dynamic: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
        self._cluster_id = cluster_id
        self._log_dirs = log_dirs
        self._cordoned = cordoned
        self._clock = clock
        self._rng = rng
        self._scheduler = scheduler
        self._statistics = ControllerStatistics(registry)
        self._heartbeats = BrokerHeartbeats(config.get_int("broker.session.timeout.ms"))
        self._leaderless = LeaderlessPartitions()
        self._tokens = TokenIndex(token_secret(config.get_str))
        self._active = False
        self._fencing_timer: TimerHandle | None = None
        self._balance_timer: TimerHandle | None = None
        self._tokens_timer: TimerHandle | None = None
        self._upkeep_due = False
        self._preparation: Preparation | None = None
        self.broker_epoch = -1
        self.mutations = MutationQuotas(
            Windows(
                config.get_int("controller.quota.window.num"), config.get_int("controller.quota.window.size.seconds")
            )
        )
        """Partitions that clients created and deleted since this controller became active."""

    @property
    def image(self) -> MetadataImage:
        """The newest image, which may be uncommitted: for decisions only, while this controller is active."""
        return self._metadata_log.latest

    @property
    def active(self) -> bool:
        """Whether this node is the active controller."""
        return self._active

    def _missing_records(self) -> list[ApiMessageAndVersion]:
        config, image, formatted = self._static_config, self.image, self._metadata_log.bootstrap
        migrates = config.leads_migration
        found = activation_records(image, config.get_int(MIN_ISR), formatted, migrates=migrates)
        return found + migration_records(image, enabled=migrates)

    def start(
        self,
        endpoints: Sequence[Endpoint],
        done: Callable[[BaseException | None], None],
        open_logs: Callable[[MetadataImage], Mapping[tuple[Uuid, int], int]],
    ) -> None:
        """Open the metadata log of a single node and register its broker as a new incarnation; blocks while reading.

        `endpoints` are the advertised ones. `open_logs` opens the logs in the image and returns the newest leader epoch
        of each, by topic id and partition; if it fails, the metadata log contains nothing of this incarnation yet. When
        `done(None)` is called, the first image is published, the broker is registered and unfenced, and every partition
        that it leads has a new leader epoch. This broker needs no heartbeats: its lifetime is its controller's. Raises
        OperatorError, and KafkaError for disk errors.
        """
        self._metadata_log.start(endpoints)
        records = self._missing_records()
        self._refuse_directories(records)
        node_id = self._static_config.node_id
        log_epochs = open_logs(self.image)
        self.broker_epoch = self._metadata_log.next_offset + len(records)
        records.append(
            register_broker(
                node_id,
                self._new_uuid(),
                self.broker_epoch,
                endpoints,
                self._static_config.rack,
                self._log_dirs(),
            )
        )
        records += raise_leader_epochs(self.image, node_id, log_epochs)
        starts = range(0, len(records), _MAX_RECORDS_PER_BATCH)
        self._active = True
        self._arm_tokens()
        self._metadata_log.submit_start([records[start : start + _MAX_RECORDS_PER_BATCH] for start in starts], done)

    def _refuse_directories(self, missing: Sequence[ApiMessageAndVersion]) -> None:
        """Raise OperatorError for more directories than the metadata level supports."""
        image = self.image
        try:
            check_directories(replace(image, features={**image.features, **levels_in(missing)}), self._log_dirs())
        except KafkaError as error:
            raise OperatorError(f"broker {self._static_config.node_id} can't start: {error.message}") from error

    # -- leadership of the metadata log ------------------------------------------------------------------------------

    def on_leader_change(self, leader: LeaderAndEpoch, active: bool) -> None:
        """Start or stop; see `LeadershipListener`. Not called for a leader that continues in the same epoch."""
        self._active = active
        self._cancel_timers()
        if not active:
            return
        self._statistics.new_active_controllers.value += 1
        self._heartbeats.reset(EMPTY_IMAGE if self._metadata_log.brokers_have_sessions else self.image, self._now_ms())
        self._leaderless.reset()
        missing = self._missing_records()
        if missing:
            self.submit(lambda _image, _context: ControllerResult(missing, None), _ignore_outcome)
        self._arm_fencing()
        self._arm_balance()
        self._arm_tokens()
        self._schedule_upkeep()

    def _cancel_timers(self) -> None:
        for timer in (self._fencing_timer, self._balance_timer, self._tokens_timer):
            if timer is not None:
                timer.cancel()
        self._fencing_timer = self._balance_timer = self._tokens_timer = None

    def heard_from(self, broker_id: int) -> None:
        """Note on ZooKeeper that a broker is alive, because it fetched metadata from this node."""
        if broker_id in self.image.brokers:
            self._heartbeats.heard_from(broker_id, self._now_ms())

    # -- operations --------------------------------------------------------------------------------------------------

    def context(self) -> ControllerContext:
        """Return the handlers' context."""
        image = self._metadata_log.latest
        dynamic = (image.default_broker_configs(), image.broker_configs(self._static_config.node_id))
        if dynamic != self._dynamic:
            self._dynamic = dynamic
            self._config = self._static_config.with_dynamic(*dynamic)
        return ControllerContext(
            config=self._config,
            new_uuid=self._new_uuid,
            cluster_id=self._cluster_id,
            heartbeats=self._heartbeats,
            now_ms=self._now_ms(),
            time_ms=self._clock.time_ms(),
            tokens=self._tokens,
            next_offset=self._metadata_log.next_offset,
            kraft_version=self._metadata_log.kraft_version,
            check_voters=self._metadata_log.check_voters,
        )

    def submit(self, operation: ControllerOperation[Response], done: Done[Response]) -> None:
        """Run `operation` now; calls `done(response, None)` once its records are committed and published.

        Calls `done(None, error)` with a KafkaError when the handler rejected the request or the disk failed, and
        NOT_CONTROLLER when this controller is not active, or resigned meanwhile: then the outcome of the records is
        unknown. `done` may be called before this returns. While an earlier operation with many records is prepared,
        the operation waits for it.
        """
        if self._preparation is not None:
            self._preparation.waiting.append(lambda: self.submit(operation, done))
            return
        if not self._active:
            done(None, KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the active controller."))
            return
        try:
            result = operation(self._metadata_log.latest, self.context())
            if result.names_voters:
                self._metadata_log.name_voters()
        except KafkaError as error:
            done(None, error)
            return

        def committed(error: BaseException | None) -> None:
            if error is not None:
                done(None, error)
                return
            self._statistics.decided(result.records)
            if result.again:
                self._scheduler.call_soon(self.submit, operation, done)
            else:
                done(result.response, None)

        def prepared(records: Submission | None, error: KafkaError | None) -> None:
            if error is not None:
                done(None, error)
            elif records is None or not self._active:
                self.submit(operation, done)
            else:
                self._metadata_log.submit(records, committed)
                self._note_causes(result.records)

        if len(result.records) > RECORDS_PER_TURN:
            self._prepare(result.records, prepared)
        else:
            prepared(result.records, None)

    def _prepare(
        self, records: Sequence[ApiMessageAndVersion], done: Callable[[PreparedRecords | None, KafkaError | None], None]
    ) -> None:
        from ottla.controller.preparation import Preparation  # imported here: most decisions have few records

        preparation = Preparation(self._metadata_log, self._scheduler, records)

        def prepared(ready: PreparedRecords | None, error: KafkaError | None) -> None:
            self._preparation = None
            done(ready, error)
            for run in preparation.waiting:
                self._scheduler.call_soon(run)

        self._preparation = preparation
        preparation.begin(prepared)

    def stop(self, done: Callable[[BaseException | None], None]) -> None:
        """Leave the metadata log and close it; later submissions fail."""
        self._active = False
        self._cancel_timers()

        def left(error: BaseException | None) -> None:
            try:
                self._metadata_log.close()
            except KafkaError as failure:
                error = error or failure
            done(error)

        self._metadata_log.stop(left)

    # -- periodic and triggered work -----------------------------------------------------------------------------------

    def _arm_fencing(self) -> None:
        if self._metadata_log.brokers_have_sessions:
            return
        expiry_ms = self._heartbeats.next_expiry_ms(self.image)
        delay_ms = self._heartbeats.session_timeout_ms
        if expiry_ms is not None:
            delay_ms = min(delay_ms, max(expiry_ms - self._now_ms() + 1, 1))
        self._fencing_timer = self._scheduler.call_later(delay_ms / 1000, self._session_ended)

    def _session_ended(self) -> None:
        """If this process itself was suspended, heartbeats wait in its sockets: process them first."""
        self._fencing_timer = self._scheduler.call_later(_READ_FIRST_S, self._fence_silent)

    def _fence_silent(self) -> None:
        for broker in self._heartbeats.stale(self.image, self._now_ms()):
            self._statistics.timed_out_heartbeats.value += 1
            self._submit_fencing(broker.broker_id)
        self._leaderless.look(self.image)
        self._arm_fencing()

    def _submit_fencing(self, broker_id: int) -> None:
        from ottla.controller.registration import fence_silent

        self.submit(lambda image, context: fence_silent(image, broker_id, context), _ignore_outcome)

    def _arm_balance(self) -> None:
        if self._static_config.get_bool("auto.leader.rebalance.enable"):
            interval_s = self._static_config.get_int("leader.imbalance.check.interval.seconds")
            self._balance_timer = self._scheduler.call_later(interval_s, self._balance)

    def _balance(self) -> None:
        from ottla.controller.elections import balance_leaders

        def balance(image: MetadataImage, context: ControllerContext) -> ControllerResult[None]:
            records, complete = balance_leaders(image, context, SLICE)
            return ControllerResult(records, None, again=not complete)

        self.submit(balance, _ignore_outcome)
        self._arm_balance()

    def _arm_tokens(self) -> None:
        if self._tokens.enabled:
            interval_s = self._static_config.get_int("delegation.token.expiry.check.interval.ms") / 1000
            self._tokens_timer = self._scheduler.call_later(interval_s, self._remove_tokens)

    def _remove_tokens(self) -> None:
        from ottla.controller.delegation_tokens import remove_expired_tokens

        self.submit(lambda image, context: remove_expired_tokens(image, context, SLICE), _ignore_outcome)
        self._arm_tokens()

    def _note_causes(self, records: Sequence[ApiMessageAndVersion]) -> None:
        if any(isinstance(record.message, _CAUSES_OF_UPKEEP) for record in records):
            self._schedule_upkeep()

    def brokers_changed(self) -> None:
        """A broker that needs no later record to serve has joined."""
        self._schedule_upkeep()

    def directories_changed(self) -> None:
        """Other directories of a single node's broker take new replicas now."""
        if self.broker_epoch >= 0:
            self._schedule_upkeep()

    def _schedule_upkeep(self) -> None:
        if not self._upkeep_due:
            self._upkeep_due = True
            self._scheduler.call_soon(self._upkeep)

    def _upkeep(self) -> None:
        """Run elections that became possible, replicate internal topics, name directories; once for all changes of a
        tick."""
        self._upkeep_due = False
        if not self._active:
            return

        def name(image: MetadataImage, _context: ControllerContext) -> ControllerResult[None]:
            node_id = self._static_config.node_id
            records = name_directories(image, node_id, self._log_dirs())
            broker = image.brokers.get(node_id)
            if broker is not None:
                records += cordoned_directories(image, broker, self._cordoned())
            return ControllerResult(records, None)

        if self.image.topics:
            self._submit_elections()
        if self.broker_epoch >= 0:  # only for a single node: in a cluster each broker registers again
            self.submit(name, _ignore_outcome)

    def _submit_elections(self) -> None:
        from ottla.controller.reassignments import replicate_internal_topics
        from ottla.controller.replication import elections_of_leaderless

        def elect(image: MetadataImage, context: ControllerContext) -> ControllerResult[None]:
            records, complete = elections_of_leaderless(image, context, SLICE)
            return ControllerResult(records, None, again=not complete)

        def replicate(image: MetadataImage, context: ControllerContext) -> ControllerResult[None]:
            return ControllerResult(replicate_internal_topics(image, context), None)

        self.submit(elect, _ignore_outcome)
        self.submit(replicate, _ignore_outcome)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _new_uuid(self) -> Uuid:
        """Return a random id that is not reserved and does not look like a command-line option."""
        for _ in range(100):
            uuid = new_uuid(self._rng.random_bytes(16))
            # The first six bits are the first character in base64: 62 is a dash.
            if uuid not in RESERVED_UUIDS and uuid[0] >> 2 != 62:
                return uuid
        raise InvariantError("the random source returned 100 unusable ids in a row")


def _ignore_outcome(_response: object, _error: BaseException | None) -> None:
    """Ignore the outcome: failed work is retried at the next occasion, possibly by the next controller."""
