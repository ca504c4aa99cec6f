"""The controller of this node: while it is active, runs handlers one after the other and commits what they return.

Purpose: the one place where decision (pure handlers) meets the metadata log (`metadata.log`). Order is by call: a
handler sees every change that an earlier one returned, committed or not, and no response leaves before all it was
decided on is committed.

One node of a cluster is active: the leader of the metadata log. It keeps what no record says (heartbeats), begins
anew with that when it becomes active, and forgets it when it resigns; what was under way then fails with
NOT_CONTROLLER, and its caller finds out by asking again.

By itself the active controller fences brokers that are silent, gives leaderships back to preferred replicas, elects
leaders where there is none and could be one, and raises the replication of internal topics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_keys_tokens import token_secret
from ottla.common.errors import ErrorCode, InvariantError, KafkaError, OperatorError
from ottla.common.kafka.ids import RESERVED_UUIDS, Uuid, new_uuid
from ottla.common.platform.clock import Clock, Rng, Scheduler, TimerHandle
from ottla.common.platform.endpoint import Endpoint
from ottla.controller.cluster import name_directories, raise_leader_epochs, register_broker
from ottla.controller.delegation_tokens import remove_expired_tokens
from ottla.controller.directories import cordoned_directories
from ottla.controller.elections import balance_leaders
from ottla.controller.features import activation_records, levels_in
from ottla.controller.heartbeats import BrokerHeartbeats
from ottla.controller.leaderless import LeaderlessPartitions
from ottla.controller.migration_records import migration_records
from ottla.controller.reassignments import replicate_internal_topics
from ottla.controller.registration import SLICE, check_directories, fence_silent
from ottla.controller.replication import led_by_anyone
from ottla.controller.result import MIN_ISR, ControllerContext, ControllerResult
from ottla.controller.statistics import ControllerStatistics
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.log import LeaderAndEpoch, MetadataLog
from ottla.metadata.records import ApiMessageAndVersion
from ottla.metrics.registry import MetricsRegistry
from ottla.protocol.messages.metadata_records import BrokerRegistrationChangeRecord, ConfigRecord, FeatureLevelRecord
from ottla.quota.mutations import MutationQuotas
from ottla.quota.windows import Windows
from ottla.security.sasl.tokens import TokenIndex

Response = TypeVar("Response")
Operation = Callable[[MetadataImage, ControllerContext], ControllerResult[Response]]
Done = Callable[[Response | None, BaseException | None], None]

_MAX_RECORDS_PER_BATCH = 10_000
"""Of the start's records, which need no atomicity; bounds the size of a batch."""
_READ_FIRST_S = 0.02
"""How long after the end of a session heartbeats that wait in sockets are read, before their sender is fenced."""
_CAUSES_OF_UPKEEP = (BrokerRegistrationChangeRecord, ConfigRecord, FeatureLevelRecord)
"""Records after which a partition may find a leader, an internal topic replicas, a registration its directories."""


class Controller:
    """Runs on the loop of the broker in whose process it lives."""

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
        """`config` as parsed at the start; dynamic settings are laid over it from the image.

        `log_dirs` are the data directories of the broker of a single node that can be used, `cordoned` those of them
        that take no new replicas.
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
        self.broker_epoch = -1
        self.mutations = MutationQuotas(
            Windows(
                config.get_int("controller.quota.window.num"), config.get_int("controller.quota.window.size.seconds")
            )
        )
        """How many partitions clients have made and deleted, while this controller is active."""

    @property
    def image(self) -> MetadataImage:
        """The newest image, which may not be committed yet: for decisions only, while this controller is active."""
        return self._metadata_log.latest

    @property
    def active(self) -> bool:
        """Whether this node decides."""
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
        """Open the metadata log of a single node and bring its broker in as a new incarnation; blocks while reading.

        `endpoints` as advertised. `open_logs` opens what the image names and returns the newest leader epoch of each
        log, by topic id and partition; nothing of this incarnation is in the metadata log yet when it fails. Once
        `done(None)` is called the first image is published, the broker is registered and unfenced, and every partition
        it leads has a new leader epoch. Such a broker needs no heartbeats: it lives as long as its controller does.
        Raises OperatorError, and KafkaError when the disk refuses.
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
        """Raise OperatorError for more of them than the level can tell apart."""
        image = self.image
        try:
            check_directories(replace(image, features={**image.features, **levels_in(missing)}), self._log_dirs())
        except KafkaError as error:
            raise OperatorError(f"broker {self._static_config.node_id} can't start: {error.message}") from error

    # -- leadership of the metadata log ------------------------------------------------------------------------------

    def on_leader_change(self, leader: LeaderAndEpoch, active: bool) -> None:
        """See `LeadershipListener`; a leader that leads on in the same epoch does not come here."""
        self._active = active
        self._cancel_timers()
        if not active:
            return
        self._statistics.new_active_controllers.value += 1
        self._heartbeats.reset(EMPTY_IMAGE if self._metadata_log.brokers_have_sessions else self.image, self._now_ms())
        self._leaderless.reset()
        missing = self._missing_records()
        if missing:
            self.submit(lambda _image, _context: ControllerResult(missing, None), _forgotten)
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
        """On ZooKeeper, a broker fetched metadata from this node, so it is alive."""
        if broker_id in self.image.brokers:
            self._heartbeats.heard_from(broker_id, self._now_ms())

    # -- operations --------------------------------------------------------------------------------------------------

    def context(self) -> ControllerContext:
        """What handlers get beside the image."""
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

    def submit(self, operation: Operation[Response], done: Done[Response]) -> None:
        """Run `operation` now, and `done(response, None)` once what it decided is committed and published.

        `done(None, error)` with a KafkaError when the handler refused or the disk did, and NOT_CONTROLLER when this
        controller is not active, or not any more: then nobody knows yet what becomes of the records. `done` may be
        called before this returns.
        """
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

        self._metadata_log.submit(result.records, committed)
        self._note_causes(result.records)

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

    # -- by itself ---------------------------------------------------------------------------------------------------

    def _arm_fencing(self) -> None:
        if self._metadata_log.brokers_have_sessions:
            return
        expiry_ms = self._heartbeats.next_expiry_ms(self.image)
        delay_ms = self._heartbeats.session_timeout_ms
        if expiry_ms is not None:
            delay_ms = min(delay_ms, max(expiry_ms - self._now_ms() + 1, 1))
        self._fencing_timer = self._scheduler.call_later(delay_ms / 1000, self._session_ended)

    def _session_ended(self) -> None:
        """Where this process itself stood still, heartbeats wait in its sockets: they come first."""
        self._fencing_timer = self._scheduler.call_later(_READ_FIRST_S, self._fence_silent)

    def _fence_silent(self) -> None:
        for broker in self._heartbeats.stale(self.image, self._now_ms()):
            self._statistics.timed_out_heartbeats.value += 1
            self._submit_fencing(broker.broker_id)
        self._leaderless.look(self.image)
        self._arm_fencing()

    def _submit_fencing(self, broker_id: int) -> None:
        self.submit(lambda image, context: fence_silent(image, broker_id, context), _forgotten)

    def _arm_balance(self) -> None:
        if self._static_config.get_bool("auto.leader.rebalance.enable"):
            interval_s = self._static_config.get_int("leader.imbalance.check.interval.seconds")
            self._balance_timer = self._scheduler.call_later(interval_s, self._balance)

    def _balance(self) -> None:
        def balance(image: MetadataImage, context: ControllerContext) -> ControllerResult[None]:
            records, complete = balance_leaders(image, context, SLICE)
            return ControllerResult(records, None, again=not complete)

        self.submit(balance, _forgotten)
        self._arm_balance()

    def _arm_tokens(self) -> None:
        if self._tokens.enabled:
            interval_s = self._static_config.get_int("delegation.token.expiry.check.interval.ms") / 1000
            self._tokens_timer = self._scheduler.call_later(interval_s, self._remove_tokens)

    def _remove_tokens(self) -> None:
        self.submit(lambda image, context: remove_expired_tokens(image, context, SLICE), _forgotten)
        self._arm_tokens()

    def _note_causes(self, records: Sequence[ApiMessageAndVersion]) -> None:
        if any(isinstance(record.message, _CAUSES_OF_UPKEEP) for record in records):
            self._schedule_upkeep()

    def brokers_changed(self) -> None:
        """A broker has come that serves from the start: no later record says that it does."""
        self._schedule_upkeep()

    def directories_changed(self) -> None:
        """Of the broker of a single node others take new replicas now."""
        if self.broker_epoch >= 0:
            self._schedule_upkeep()

    def _schedule_upkeep(self) -> None:
        if not self._upkeep_due:
            self._upkeep_due = True
            self._scheduler.call_soon(self._upkeep)

    def _upkeep(self) -> None:
        """Elections that became possible, replicas of internal topics, directories; once for all changes of a turn."""
        self._upkeep_due = False
        if not self._active:
            return

        def elect(image: MetadataImage, context: ControllerContext) -> ControllerResult[None]:
            records, complete = led_by_anyone(image, context, SLICE)
            return ControllerResult(records, None, again=not complete)

        def replicate(image: MetadataImage, context: ControllerContext) -> ControllerResult[None]:
            return ControllerResult(replicate_internal_topics(image, context), None)

        def name(image: MetadataImage, _context: ControllerContext) -> ControllerResult[None]:
            node_id = self._static_config.node_id
            records = name_directories(image, node_id, self._log_dirs())
            broker = image.brokers.get(node_id)
            if broker is not None:
                records += cordoned_directories(image, broker, self._cordoned())
            return ControllerResult(records, None)

        self.submit(elect, _forgotten)
        self.submit(replicate, _forgotten)
        if self.broker_epoch >= 0:  # of a cluster each broker registers again by itself
            self.submit(name, _forgotten)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _new_uuid(self) -> Uuid:
        """A random id that is not reserved and does not look like an option on a command line."""
        for _ in range(100):
            uuid = new_uuid(self._rng.random_bytes(16))
            # The first character in base64 is made of the first six bits: 62 is a dash.
            if uuid not in RESERVED_UUIDS and uuid[0] >> 2 != 62:
                return uuid
        raise InvariantError("the source of randomness repeats itself")


def _forgotten(_response: object, _error: BaseException | None) -> None:
    """Nobody waits: what failed is due again, be it at the next controller."""
