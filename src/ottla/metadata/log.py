"""Interface of the metadata log: the controller of a node writes to it, and every node's images come from it.

KRaft's quorum (`ottla.quorum`) implements it. Another coordination service may replace it: ZooKeeper has no common log;
there an elected controller sends each broker the full image and then deltas, numbered by controller epoch and sequence.

The contract for implementations:

- Committed images are passed to the configured `MetadataPublisher` in order and without gaps. Image offsets only rise,
  also across leader changes and restarts.
- One node of a cluster is active: only it accepts records, and its `latest` includes everything that was submitted.
- After an error of its own disk it stops participating and reports that to its creator.

Left out: decisions (controller), and the protocol between its own replicas or brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

from ottla.common.errors import InvariantError
from ottla.common.platform.endpoint import Endpoint
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage, metadata_level
from ottla.metadata.records import ApiMessageAndVersion, at_level, encode_record

NO_NODE = -1

SubmitDone = Callable[[BaseException | None], None]
"""Called once with the outcome of a submission: None when it is committed and published, else the error."""


class PreparedRecords:
    """Records of one submission, replayed and encoded: all at once, or some of them in each turn of the loop."""

    __slots__ = ("_rest", "base", "delta", "messages", "values")

    def __init__(self, base: MetadataImage, records: Sequence[ApiMessageAndVersion]) -> None:
        """`base` is the image that the records change: `MetadataLog.latest`, also when they are submitted."""
        self.base = base
        self.delta = MetadataDelta(base)
        """Has replayed `messages`."""
        self.messages: list[Any] = []
        self.values: list[bytes] = []
        """Encoded `messages`."""
        self._rest = at_level(records, metadata_level(base))

    def prepare(self, count: int | None = None) -> int:
        """Prepare the next `count` records (None: all), and return how many there were; 0 after the last.

        Raises InvariantError for a record that does not fit the image, and KafkaError for one that cannot be encoded.
        """
        before = len(self.messages)
        for record in islice(self._rest, count):
            self.delta.replay(record.message)
            self.values.append(encode_record(record))
            self.messages.append(record.message)
        return len(self.messages) - before


Submission = Sequence[ApiMessageAndVersion] | PreparedRecords


def prepare_all(latest: MetadataImage, records: Submission) -> PreparedRecords:
    """Return the records completely prepared; `latest` is the image that they change.

    Raises as `PreparedRecords.prepare`, and InvariantError for records that were prepared for another image.
    """
    prepared = records if isinstance(records, PreparedRecords) else PreparedRecords(latest, records)
    if prepared.base is not latest:
        raise InvariantError("metadata records were prepared for another image than the newest one")
    prepared.prepare()
    return prepared


class LeaderAndEpoch(NamedTuple):
    """Leader of the metadata log, as far as this node knows; `NO_NODE` without a leader."""

    leader_id: int
    epoch: int


class LeadershipListener(Protocol):
    """Listener for leadership changes of the metadata log.

    Implementations: in `controller.driver`, `controller.migration`, `controller.znode_requests`,
    `controller.external_topic_changes`, `server.requests.control`, `server.zookeeper.migration_lifecycle` and
    `zookeeper.migrating`.
    """

    def on_leader_change(self, leader: LeaderAndEpoch, active: bool) -> None:
        """The leader changed, or is unknown (`NO_NODE`).

        With `active` this node is the leader, `latest` includes all committed records, and `submit` accepts records.
        """
        ...


class MetadataLog(Protocol):
    """One node's part in the metadata log. All methods run on the loop.

    Implementations: in `quorum.driver`, `zookeeper.log` and `zookeeper.migrating`; `server.metadata_log` selects.
    """

    @property
    def latest(self) -> MetadataImage:
        """The image including uncommitted records; only valid while this node is active."""
        ...

    @property
    def bootstrap(self) -> Sequence[ApiMessageAndVersion]:
        """The first records of a cluster, as chosen by formatting; empty if it chose none."""
        ...

    @property
    def kraft_version(self) -> int:
        """1 if the log names the voters, 0 if each node's configuration does (KIP-853)."""
        ...

    @property
    def brokers_have_sessions(self) -> bool:
        """Whether brokers have sessions elsewhere, so that the controller does not fence silent brokers."""
        ...

    def check_voters(self) -> None:
        """Raises KafkaError INVALID_UPDATE_VERSION unless the log can name the voters, and NOT_CONTROLLER."""
        ...

    def name_voters(self) -> None:
        """Start to name the voters in the log, if it does not yet (kraft.version 1), before the next submission.

        Raises KafkaError as `check_voters`, and for disk errors.
        """
        ...

    @property
    def next_offset(self) -> int:
        """The offset of the next submitted record; brokers take their epochs from it."""
        ...

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader, as far as this node knows."""
        ...

    def leader_endpoint(self) -> Endpoint | None:
        """Return the active controller's address; None if unknown."""
        ...

    def start(self, endpoints: Sequence[Endpoint]) -> bool:
        """Open the stored log, so that `latest` includes it, and participate; blocks, before anything else runs.

        `endpoints` are the advertised addresses of this node's controller, the preferred one first. Returns whether
        nothing was stored: then this node knows no topic. Raises OperatorError for a damaged or foreign log, for
        finalized features that this version does not support, and for disk errors.
        """
        ...

    def listen(self, listener: LeadershipListener) -> None:
        """Call `listener` for every leadership change from now on, and at once with the current state."""
        ...

    def submit(self, records: Submission, done: SubmitDone) -> None:
        """Write the records, all or none; calls `done(None)` once they are committed and published.

        Without records `done` is called once all earlier submissions are committed. An error is a KafkaError for the
        client: NOT_CONTROLLER, or a disk error. With NOT_CONTROLLER nothing was written, or this node resigned before
        the commit and the outcome is unknown. Records must fit `latest`: InvariantError otherwise, without changes.
        `done` may be called before this returns.
        """
        ...

    def submit_start(self, batches: Sequence[Sequence[ApiMessageAndVersion]], done: SubmitDone) -> None:
        """Submit the records of a single node's start; the first published image includes all of them.

        Its changes list everything. Raises KafkaError for disk errors.
        """
        ...

    def stop(self, done: SubmitDone) -> None:
        """Stop participating and notify the other nodes; calls `done` when they had time and no write is pending.

        Then `close` may be called. A leader resigns, so that the others need not time out.
        """
        ...

    def close(self) -> None:
        """Flush and close everything; blocks. Call it after `stop`, or when every submission was answered.

        Submissions that still wait get BROKER_NOT_AVAILABLE. Raises KafkaError for disk errors.
        """
        ...
