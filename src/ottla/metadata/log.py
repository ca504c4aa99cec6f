"""The metadata log as the rest of a node sees it: where its controller writes, and where every node's images come from.

Purpose: what a node agrees with its cluster by. KRaft's quorum (`ottla.quorum`) implements it. Another coordination
service may stand in its place: ZooKeeper has no common log, there a controller that is elected elsewhere sends each
broker the full image and then deltas, numbered by controller epoch and sequence.

The contract, for whatever implements it:

- Committed images go to the `MetadataPublisher` that it was made with, in order and with nothing left out; the offsets
  of images only rise, also from one leader to the next and over restarts.
- One node of a cluster is active: it alone takes records, and its `latest` has everything that was submitted.
- After an error of its own disk it takes no more part, and who made it is told.

Left out: what is decided (controller), and what its own replicas or brokers say to one another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ottla.common.platform.endpoint import Endpoint
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import ApiMessageAndVersion

NO_NODE = -1

SubmitDone = Callable[[BaseException | None], None]
"""Told once how a submission ended: None when it is committed and published, else the error."""


class LeaderAndEpoch(NamedTuple):
    """Who leads the metadata log, as far as this node knows; `NO_NODE` while nobody does."""

    leader_id: int
    epoch: int


class LeadershipListener(Protocol):
    """Who follows the leadership of the metadata log."""

    def on_leader_change(self, leader: LeaderAndEpoch, active: bool) -> None:
        """There is another leader, or none is known (`NO_NODE`).

        With `active` it is this node, `latest` holds all that is committed, and `submit` takes records.
        """
        ...


class MetadataLog(Protocol):
    """One node's part in the metadata log. All methods belong to the loop."""

    @property
    def latest(self) -> MetadataImage:
        """The image with records that are not committed yet; means something only while this node is active."""
        ...

    @property
    def bootstrap(self) -> Sequence[ApiMessageAndVersion]:
        """The first records of a cluster as formatting chose them; empty where it chose none."""
        ...

    @property
    def kraft_version(self) -> int:
        """1 where the log names the voters, 0 where the configuration of each node does (KIP-853)."""
        ...

    @property
    def brokers_have_sessions(self) -> bool:
        """Whether brokers come and go by sessions of their own, so that the controller fences nobody for silence."""
        ...

    def check_voters(self) -> None:
        """Raises KafkaError INVALID_UPDATE_VERSION unless the log could name the voters, and NOT_CONTROLLER."""
        ...

    def name_voters(self) -> None:
        """Name the voters in the log from now on, unless it does (kraft.version 1); what is submitted next comes after.

        Raises KafkaError as `check_voters`, and for a disk that refuses.
        """
        ...

    @property
    def next_offset(self) -> int:
        """The offset that the next submitted record gets; brokers take their epochs from it."""
        ...

    @property
    def leader(self) -> LeaderAndEpoch:
        """Who leads, as far as this node knows."""
        ...

    def leader_endpoint(self) -> Endpoint | None:
        """Where the active controller listens; None when it is not known."""
        ...

    def start(self, endpoints: Sequence[Endpoint]) -> bool:
        """Open what is stored here, so that `latest` has it, and take part; blocks, before anything else runs.

        `endpoints` are where other nodes reach this one's controller, as advertised, the one that they use first.
        Whether there was nothing stored: then this node knows of no topic. Raises OperatorError for what is damaged or
        foreign, for finalized features that this version doesn't have, and for a disk that refuses.
        """
        ...

    def listen(self, listener: LeadershipListener) -> None:
        """Tell `listener` of every change of leadership from now on, and at once of what is known now."""
        ...

    def submit(self, records: Sequence[ApiMessageAndVersion], done: SubmitDone) -> None:
        """Write the records, all or none, and call `done(None)` once they are committed and published.

        Without records `done` is called once everything submitted before is committed. An error is a KafkaError for
        the client: NOT_CONTROLLER when this node is not active, and nothing was written, or when it ceased to be
        before the commit, and nobody knows; or the disk's. Records must fit `latest`: InvariantError otherwise, with
        nothing changed. `done` may be called before this returns.
        """
        ...

    def submit_start(self, batches: Sequence[Sequence[ApiMessageAndVersion]], done: SubmitDone) -> None:
        """Submit the records of a single node's start; the first image published is the one with all of them.

        Its changes name everything there is. Raises KafkaError when the disk refuses.
        """
        ...

    def stop(self, done: SubmitDone) -> None:
        """Take no more part, and let the others know; `done` when they had their time and nothing is being written.

        Then `close` may be called. A leader resigns, so that the others need not find out.
        """
        ...

    def close(self) -> None:
        """Make everything durable and let go of it; blocks. After `stop`, or when every submission was answered.

        Submissions that still wait get BROKER_NOT_AVAILABLE. Raises KafkaError when the disk refuses.
        """
        ...
