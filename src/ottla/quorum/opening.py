"""Replay of a metadata log at start: images, voters, and the offset known to be committed.

Used once, at start, before anything is written. A log that names other voters than a single node, or feature levels
that this version does not have, is rejected unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from ottla.common.config.config_keys_authorizer import STANDARD_AUTHORIZER
from ottla.common.config.feature_levels import METADATA_VERSION
from ottla.common.errors import DataDirectoryError, OperatorError
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage, VersionRange
from ottla.metadata.records import SUPPORTED_FEATURES, ApiMessageAndVersion
from ottla.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from ottla.quorum.config import LocalReplica
from ottla.quorum.metadata_log import UNREADABLE_SUFFIX, ReplicaLog
from ottla.quorum.raft_types import ReplicaKey, Voter
from ottla.quorum.raft_voters import BOOTSTRAP_OFFSET, VoterSets
from ottla.quorum.replay import Replay, batch_content
from ottla.quorum.snapshot_file import BOOTSTRAP, SnapshotId, bootstrap_snapshot, replay_snapshot
from ottla.quorum.snapshot_image import image_of, load_snapshot

logger = logging.getLogger(__name__)


class UnreadableSnapshot(NamedTuple):
    """A snapshot that a start can't read, and the error."""

    snapshot: SnapshotId
    error: OperatorError


class LogContent(NamedTuple):
    """The content of a log besides its images."""

    voters: VoterSets
    high_watermark: int
    """End of the part known to be committed: the newest snapshot, or the whole log of a single voter."""
    tail_bytes: int
    """Total size in bytes of the batches after the newest snapshot."""
    last_timestamp_ms: int
    """Largest timestamp of those batches; 0 if there are none."""
    bootstrap: list[ApiMessageAndVersion]
    """Records that formatting left for the log, which is empty up to the newest snapshot."""


def read_log(
    log: ReplicaLog, replay: Replay, node: LocalReplica, configured: tuple[Voter, ...], *, alone: bool
) -> LogContent:
    """Replay the newest snapshot and the log after it; `alone`: this node is the only voter.

    `configured` are the voters of the configuration, which apply if the log names none. Raises OperatorError for a log
    that this node may not take over, OSError, KafkaError, ProtocolError, InvariantError.
    """
    local = node.key
    voters = VoterSets(configured)
    high_watermark, bootstrap, unreadable = _read_snapshot(log, replay, voters)
    tail_bytes = last_timestamp_ms = 0
    transactions = MetadataTransactions()
    for batch in log.batches(high_watermark):
        if unreadable and not batch.crc_matches():  # a start checks the log only after the newest snapshot
            raise unreadable[0].error
        messages, sets = batch_content(batch)
        transactions.note(messages)
        replay.appended(batch.next_offset, batch.partition_leader_epoch, messages)
        for offset, voter_set in sets:
            voters.add(offset, voter_set)
        tail_bytes += batch.size_bytes
        last_timestamp_ms = max(last_timestamp_ms, batch.max_timestamp)
    if alone:
        _require_alone(log, local, voters)
    if [voter.key for voter in voters.latest] == [voters.key_of(local)]:
        high_watermark = log.end_offset  # a single voter has committed its whole log
    replay.advance(high_watermark, leading=False)
    transactions.refuse_undone(log.directory)
    formatted = image_of(BOOTSTRAP, bootstrap)
    for image in (replay.latest, formatted):
        refuse_unknown_levels(log.directory, image)
        if not node.enforces_acls:
            refuse_acls(log.directory, image)
    for each in unreadable:
        logger.error(
            "%s; using the previous snapshot and the log after it; renamed the file to *%s",
            each.error,
            UNREADABLE_SUFFIX,
        )
        log.set_aside(each.snapshot)
    return LogContent(voters, high_watermark, tail_bytes, last_timestamp_ms, bootstrap)


class MetadataTransactions:
    """Metadata transactions (KIP-868) that are not committed: a controller of Apache Kafka ended inside one.

    The next controller aborts it, and with it every record appended meanwhile. A log with an open or aborted one is not
    taken over.
    """

    __slots__ = ("_begun", "_undone")

    def __init__(self) -> None:
        self._begun = False
        self._undone = False

    def note(self, messages: Sequence[Any]) -> None:
        """Process the next batch of the log."""
        for message in messages:
            kind = type(message)
            if kind is BeginTransactionRecord:
                self._begun = True
            elif kind is EndTransactionRecord:
                self._begun = False
            elif kind is AbortTransactionRecord:
                self._begun, self._undone = False, True

    def refuse_undone(self, directory: str) -> None:
        """Raise OperatorError if the log in `directory` has one."""
        if self._begun or self._undone:
            raise DataDirectoryError(
                f"the metadata log in {directory} has {'an open' if self._begun else 'an aborted'} metadata "
                "transaction, which this version can't undo: start Apache Kafka on it, which ends the transaction, and "
                "wait until it has taken a snapshot (metadata.log.max.snapshot.interval.ms)"
            )


def bootstrap_voter(
    log: ReplicaLog, voters: VoterSets, own: Voter, formatted: Sequence[ApiMessageAndVersion], now_ms: int
) -> None:
    """Make `own` the only voter of a log that names none.

    An empty log gets the same as by formatting a directory (KIP-853): a snapshot before the first epoch with the
    voters, and with the records that are `formatted` there already.
    """
    if voters.latest:
        return
    voters.add(BOOTSTRAP_OFFSET, (own,))
    if log.end_offset == 0:
        log.write_snapshot(BOOTSTRAP, bootstrap_snapshot([own], formatted, now_ms))
        log.add_snapshot(BOOTSTRAP)


def _read_snapshot(
    log: ReplicaLog, replay: Replay, voters: VoterSets
) -> tuple[int, list[ApiMessageAndVersion], list[UnreadableSnapshot]]:
    """Load the newest readable snapshot; return its end, the records yet to be written, and unreadable snapshots.

    Records of the bootstrap snapshot apply once the first active controller has written them to the log, where all
    nodes read them (KIP-1170): a node that was formatted without them never fetches a snapshot that ends at the start
    of the log.
    """
    unreadable: list[UnreadableSnapshot] = []
    for newest in reversed(log.snapshots()):
        bootstrap: list[ApiMessageAndVersion] = []
        image = EMPTY_IMAGE
        try:
            if newest == BOOTSTRAP:
                named = log.read_snapshot(newest, partial(replay_snapshot, replay=bootstrap.append))
            else:
                image, named = log.read_snapshot(newest, partial(load_snapshot, newest))
        except OperatorError as error:
            unreadable.append(UnreadableSnapshot(newest, error))
            continue
        if unreadable and log.start_offset > newest.end_offset:
            break
        voters.reset(newest.end_offset - 1, named)
        if newest != BOOTSTRAP:
            replay.load(image)
        return newest.end_offset, bootstrap, unreadable
    if unreadable and (log.start_offset > 0 or log.end_offset == 0):
        raise unreadable[0].error
    return 0, [], unreadable


def _require_alone(log: ReplicaLog, local: ReplicaKey, voters: VoterSets) -> None:
    """Also applies if no record names voters: `quorum-state` may contain voters of an earlier configuration."""
    configured = set() if voters.latest else set(log.read_configured_voters()) - {local.node_id}
    if configured or {voter.key for voter in voters.latest} - {local}:
        raise DataDirectoryError(
            f"the metadata log in {log.directory} names other voters than this node and data directory, and the "
            "configuration names none; set controller.quorum.bootstrap.servers (controller.quorum.voters where the "
            "cluster has that), or start with the node.id and meta.properties of that directory"
        )


def refuse_unknown_levels(directory: str, image: MetadataImage) -> None:
    """Raise OperatorError for an image with a feature level that this version lacks, of the log in `directory`.

    Its records would be misread, or written so that the other broker can't read them.
    """
    features = image.features
    for name in sorted(features, key=lambda name: (name != METADATA_VERSION, name)):
        level = features[name]
        supported = SUPPORTED_FEATURES.get(name, VersionRange(0, 0))
        if not supported.low <= level <= supported.high:
            raise DataDirectoryError(
                f"the metadata log in {directory} is at level {level} of {name}, and this version has "
                f"levels {supported.low} to {supported.high}: start the version that wrote it, or set "
                "log.dirs (--data-dir) to another directory; `ottla adopt` lists the content"
            )


def refuse_acls(directory: str, image: MetadataImage) -> None:
    """Raise OperatorError for an image with ACLs, of the log in `directory`, if no authorizer enforces them."""
    if image.acls:
        raise DataDirectoryError(
            f"the metadata log in {directory} has {len(image.acls)} ACLs, but no authorizer "
            f"enforces them: set authorizer.class.name to {STANDARD_AUTHORIZER}, and "
            "super.users to the principals of the cluster's nodes and administrators"
        )
