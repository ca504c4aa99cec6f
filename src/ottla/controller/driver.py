"""The active controller: runs handlers one after the other against the newest image, and commits what they return.

Purpose: the one place where decision (pure handlers) meets the metadata log (`ottla.quorum`). Order is by call: a
handler sees every change that an earlier one returned, committed or not, and no response leaves before all it was
decided on is committed.

Left out until there are several controllers: forwarding to the active one, losing leadership with work in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ottla.common.broker_configs import BrokerConfig
from ottla.common.clock import Rng
from ottla.common.endpoint import Endpoint
from ottla.common.errors import InvariantError, KafkaError
from ottla.common.ids import RESERVED_UUIDS, Uuid, new_uuid
from ottla.controller.cluster import raise_leader_epochs, register_broker
from ottla.controller.features import bootstrap_records
from ottla.controller.producer_ids import ProducerIdBlock, handle_allocate_producer_ids
from ottla.controller.result import ControllerContext, ControllerResult
from ottla.metadata.image import MetadataImage
from ottla.quorum.driver import QuorumDriver
from ottla.quorum.metadata_log import MetadataLogConfig

Response = TypeVar("Response")
Operation = Callable[[MetadataImage, ControllerContext], ControllerResult[Response]]
Done = Callable[[Response | None, BaseException | None], None]

_MAX_RECORDS_PER_BATCH = 10_000
"""Of the start's records, which need no atomicity; bounds the size of a batch."""


def metadata_log_config(config: BrokerConfig) -> MetadataLogConfig:
    """The broker's settings `metadata.*`."""
    return MetadataLogConfig(
        segment_bytes=config.get_int("metadata.log.segment.bytes"),
        segment_ms=config.get_int("metadata.log.segment.ms"),
        snapshot_bytes=config.get_int("metadata.log.max.record.bytes.between.snapshots"),
        snapshot_interval_ms=config.get_int("metadata.log.max.snapshot.interval.ms"),
        retention_bytes=config.get_int("metadata.max.retention.bytes"),
        retention_ms=config.get_int("metadata.max.retention.ms"),
    )


class Controller:
    """Runs on the loop of the broker in whose process it lives."""

    __slots__ = ("_config", "_directory_id", "_dynamic", "_quorum", "_rng", "_static_config", "broker_epoch")

    def __init__(self, *, quorum: QuorumDriver, config: BrokerConfig, directory_id: Uuid, rng: Rng) -> None:
        """`config` as parsed at the start; dynamic settings are laid over it from the image."""
        self._quorum = quorum
        self._static_config = self._config = config
        self._dynamic: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
        self._directory_id = directory_id
        self._rng = rng
        self.broker_epoch = -1

    @property
    def image(self) -> MetadataImage:
        """The newest image, which may not be committed yet: for decisions only."""
        return self._quorum.latest

    def start(
        self,
        endpoints: Sequence[Endpoint],
        done: Callable[[BaseException | None], None],
        open_logs: Callable[[MetadataImage], Mapping[tuple[Uuid, int], int]],
    ) -> None:
        """Open the metadata log and bring this broker into the cluster as a new incarnation; blocks while reading.

        `endpoints` as advertised. `open_logs` opens what the image names and returns the newest leader epoch of each
        log, by topic id and partition; nothing of this incarnation is in the metadata log yet when it fails. Once
        `done(None)` is called the first image is published, the broker is registered and unfenced, and every partition
        it leads has a new leader epoch. Raises OperatorError, and KafkaError when the disk refuses.
        """
        new = self._quorum.start(endpoints)
        records = bootstrap_records() if new or not self.image.features else []
        node_id = self._static_config.node_id
        log_epochs = open_logs(self.image)
        self.broker_epoch = self._quorum.next_offset + len(records)
        records.append(
            register_broker(
                node_id,
                self._new_uuid(),
                self.broker_epoch,
                endpoints,
                self._static_config.rack,
                self._directory_id,
            )
        )
        records += raise_leader_epochs(self.image, node_id, log_epochs)
        starts = range(0, len(records), _MAX_RECORDS_PER_BATCH)
        self._quorum.submit_start([records[start : start + _MAX_RECORDS_PER_BATCH] for start in starts], done)

    def context(self) -> ControllerContext:
        """What handlers get beside the image."""
        image = self._quorum.latest
        dynamic = (image.default_broker_configs(), image.broker_configs(self._static_config.node_id))
        if dynamic != self._dynamic:
            self._dynamic = dynamic
            self._config = self._static_config.with_dynamic(*dynamic)
        return ControllerContext(config=self._config, directory_id=self._directory_id, new_topic_id=self._new_uuid)

    def submit(self, operation: Operation[Response], done: Done[Response]) -> None:
        """Run `operation` now, and `done(response, None)` once what it decided is committed and published.

        `done(None, error)` with a KafkaError when the handler refused or the disk did. `done` may be called before this
        returns.
        """
        try:
            result = operation(self._quorum.latest, self.context())
        except KafkaError as error:
            done(None, error)
            return

        def committed(error: BaseException | None) -> None:
            if error is None:
                done(result.response, None)
            else:
                done(None, error)

        self._quorum.submit(result.records, committed)

    def allocate_producer_ids(self, done: Done[ProducerIdBlock]) -> None:
        """A block of producer ids for the broker in this process, never given out before."""
        node_id = self._static_config.node_id
        self.submit(lambda image, _: handle_allocate_producer_ids(image, node_id), done)

    def stop(self, done: Callable[[BaseException | None], None]) -> None:
        """Close the metadata log once everything submitted is committed; later submissions fail."""

        def drained(error: BaseException | None) -> None:
            try:
                self._quorum.close()
            except KafkaError as failure:
                error = error or failure
            done(error)

        self._quorum.submit([], drained)

    def _new_uuid(self) -> Uuid:
        """A random id that is not reserved and does not look like an option on a command line."""
        for _ in range(100):
            uuid = new_uuid(self._rng.random_bytes(16))
            # The first character in base64 is made of the first six bits: 62 is a dash.
            if uuid not in RESERVED_UUIDS and uuid[0] >> 2 != 62:
                return uuid
        raise InvariantError("the source of randomness repeats itself")
