"""Replay of the metadata log into images, and the callbacks of submissions and commits.

Owns two images: `latest` contains every appended record, `committed` every committed one. The active controller decides
by `latest`, so that consecutive requests don't contradict. All other components see committed images through the
publisher. Both images come from the same replay. Uncommitted records are kept in memory, since the log may still be
truncated; their number is bounded by how far a leader gets ahead of its followers.

Invariants:
- Callbacks of submissions run in submission order, after the image with them was published.
- Nothing is published before this replica has all records that were committed when it first heard from a leader:
  components of the broker would act on an outdated state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

from ottla.common.errors import InvariantError, KafkaError
from ottla.metadata.delta import MetadataChanges, MetadataDelta, all_changes
from ottla.metadata.difference import changes_between, changes_since
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.log import SubmitDone
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import decode_record
from ottla.quorum.control import read_voters
from ottla.quorum.raft_types import Voter
from ottla.record.batch import BatchView
from ottla.record.control import ControlRecordType, control_record_type

ALL_MESSAGES = 1 << 62
"""No limit: at the start, before anything else runs."""
MESSAGES_PER_TURN = 1000
"""Committed records that a follower replays in one turn of the loop, some 5 ms."""


class _Entry:
    """An uncommitted batch, or a caller that waits until the log is committed up to `end_offset`."""

    __slots__ = ("done", "end_offset", "epoch", "messages", "published")

    def __init__(
        self,
        end_offset: int,
        epoch: int,
        messages: Sequence[Any] = (),
        published: tuple[MetadataImage, MetadataChanges] | None = None,
        done: SubmitDone | None = None,
    ) -> None:
        self.end_offset = end_offset
        self.epoch = epoch
        self.messages = messages
        self.published = published
        self.done = done


class Replay:
    """The images of one replica. `quiet` until the first image may be published."""

    __slots__ = (
        "_advancing",
        "_delta",
        "_entries",
        "_heard",
        "_publisher",
        "_replayed",
        "committed",
        "latest",
        "quiet",
    )

    def __init__(self, publisher: MetadataPublisher) -> None:
        self._publisher = publisher
        self._entries: deque[_Entry] = deque()
        self._advancing = False
        self._heard = False
        self._delta: MetadataDelta | None = None
        """Has replayed the first messages of the first entry, which a follower replays over several turns."""
        self._replayed = 0
        self.committed: MetadataImage = EMPTY_IMAGE
        self.latest: MetadataImage = EMPTY_IMAGE
        self.quiet = True

    # -- at the start, or from a snapshot ----------------------------------------------------------------------------

    def load(self, image: MetadataImage) -> None:
        """`image`, of a snapshot, is committed; it replaces all records appended before."""
        before = self.committed
        self._delta, self._replayed = None, 0
        self._entries.clear()
        self.committed = self.latest = image
        if not self.quiet:
            self._publisher.publish(image, changes_between(before, image))

    # -- as a follower -----------------------------------------------------------------------------------------------

    def appended(self, end_offset: int, epoch: int, messages: Sequence[Any]) -> None:
        """A batch of the leader that ends before `end_offset`; `messages` is empty for a control batch."""
        self._entries.append(_Entry(end_offset, epoch, messages))

    def truncated(self, end_offset: int) -> None:
        """The log was truncated."""
        while self._entries and self._entries[-1].end_offset > end_offset:
            self._entries.pop()

    # -- as the leader -----------------------------------------------------------------------------------------------

    def lead(self, end_offset: int, epoch: int) -> None:
        """This replica leads from `end_offset` on: all records before it are committed together, or not at all."""
        self._delta, self._replayed = None, 0
        delta = MetadataDelta(self.committed)
        for entry in self._entries:
            for message in entry.messages:
                delta.replay(message)
        self.latest, changes = delta.apply(end_offset - 1, epoch)
        if self._entries:
            self._entries[-1].published = (self.latest, changes)

    def follow(self, error: KafkaError) -> None:
        """This replica no longer leads: pending callers get `error`, and the records wait for another leader's high
        watermark.
        """
        waiting = [entry.done for entry in self._entries if entry.done is not None]
        self._entries = deque(entry for entry in self._entries if entry.messages)
        for entry in self._entries:
            entry.published = entry.done = None
        self.latest = self.committed
        for done in waiting:
            done(error)

    def begun(self, end_offset: int, epoch: int) -> None:
        """The leader's first batch of its epoch, which contains no metadata, ends at `end_offset`."""
        self.latest, _ = MetadataDelta(self.latest).apply(end_offset - 1, epoch)

    def submitted(
        self, end_offset: int, epoch: int, messages: Sequence[Any], image: MetadataImage, changes: MetadataChanges
    ) -> None:
        """A batch of this leader; `image` includes it."""
        self.latest = image
        self._entries.append(_Entry(end_offset, epoch, messages, (image, changes)))

    def await_commit(self, end_offset: int, epoch: int, done: SubmitDone) -> None:
        """Call `done(None)` once everything before `end_offset`, the end of the log, is committed and published."""
        self._entries.append(_Entry(end_offset, epoch, done=done))

    def publish_at_once(self) -> None:
        """The first image contains all submissions so far: the start of a single node."""
        for entry in self._entries:
            entry.published = None
        self._entries[-1].published = (self.latest, all_changes(self.latest))

    def leader_heard(self) -> None:
        """All records that a leader committed are in the local log: images are published once they are replayed."""
        self._heard = self.quiet

    # -- commit ------------------------------------------------------------------------------------------------------

    def advance(self, high_watermark: int, *, leading: bool, limit: int = ALL_MESSAGES) -> bool:
        """Publish and answer everything before `high_watermark`, in order even if a callback submits again.

        Returns whether something is left, since a follower replays at most `limit` messages: call it again in another
        turn of the loop. Raises the error of a listener of the publisher.
        """
        if self._advancing:
            return False
        self._advancing = True
        try:
            if leading:
                self._advance_leader(high_watermark)
            elif self._advance_follower(high_watermark, limit):
                return True
            if self._heard:
                self._heard = False
                self._end_quiet()
        finally:
            self._advancing = False
        return False

    def _advance_leader(self, high_watermark: int) -> None:
        while self._entries and self._entries[0].end_offset <= high_watermark:
            entry = self._entries[0]
            if entry.published is not None:
                image, changes = entry.published
                # A listener that raises leaves the entry in place: its callback does not report success.
                self._publisher.publish(image, all_changes(image) if self.quiet else changes)
                self.committed = image
                self.quiet = False
            self._entries.popleft()
            if entry.done is not None:
                entry.done(None)

    def _advance_follower(self, high_watermark: int, limit: int) -> bool:
        """Replay and publish committed batches, several at once; a large one is replayed over several calls."""
        if not self._entries or self._entries[0].end_offset > high_watermark:
            return False
        delta, self._delta = self._delta or MetadataDelta(self.committed), None
        last: _Entry | None = None
        while self._entries and self._entries[0].end_offset <= high_watermark:
            entry = self._entries[0]
            part = entry.messages[self._replayed : self._replayed + limit]
            is_complete = self._replayed + len(part) == len(entry.messages)
            if not is_complete and last is not None:
                self._publish_committed(delta, last)
                return True
            for message in part:
                delta.replay(message)
            if not is_complete:
                self._delta = delta
                self._replayed += len(part)
                return True
            limit -= len(part)
            self._replayed = 0
            self._entries.popleft()
            if entry.messages:
                last = entry
        if last is not None:
            self._publish_committed(delta, last)
        return False

    def _publish_committed(self, delta: MetadataDelta, last: _Entry) -> None:
        self.committed, changes = delta.apply(last.end_offset - 1, last.epoch)
        self.latest = self.committed
        if not self.quiet:
            self._publisher.publish(self.committed, changes)

    def _end_quiet(self) -> None:
        """Publish from now on: all records committed when a leader was first heard from are replayed."""
        if self.quiet:
            self.quiet = False
            self._publisher.publish(self.committed, changes_since(self._publisher.image, self.committed))

    def fail(self, error: KafkaError) -> None:
        """Nothing more will be committed here."""
        waiting = [entry.done for entry in self._entries if entry.done is not None]
        self._entries.clear()
        for done in waiting:
            done(error)


BatchContent = tuple[list[Any], list[tuple[int, tuple[Voter, ...]]]]
"""The metadata messages of a batch, and the sets of voters with their offsets."""


def batch_content(batch: BatchView) -> BatchContent:
    """The content of a batch. Raises ProtocolError."""
    records = batch_content_by_record(batch)
    while True:
        try:
            next(records)
        except StopIteration as end:
            content: BatchContent = end.value
            return content


def batch_content_by_record(batch: BatchView) -> Generator[None, None, BatchContent]:
    """Yield after each decoded record, and return the content of the batch. Raises ProtocolError."""
    messages: list[Any] = []
    voters: list[tuple[int, tuple[Voter, ...]]] = []
    for index, record in enumerate(batch.records()):
        if not batch.is_control:
            if record.value is None:
                raise InvariantError("a metadata record has no value")
            messages.append(decode_record(record.value).message)
        elif control_record_type(record) is ControlRecordType.KRAFT_VOTERS:
            voters.append((batch.base_offset + index, read_voters(record)))
        yield
    return messages, voters
