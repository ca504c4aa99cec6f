"""From the metadata log to images: what is appended, what is committed, and who waits for it.

Owner of two images: `latest` has every record that was appended, `committed` every one that is committed. The active
controller decides by `latest`, so that two requests in a row don't contradict; everybody else sees committed images,
by the publisher. Both are made by the same replay. Records that are not committed are kept in memory, since the log may
still be cut; there are as many as a leader can get ahead of its followers.

Invariants:
- Callers hear of submissions in the order in which they were made, after the image with them was published.
- Nothing is published before this replica has all that was committed when it first heard from a leader: parts of the
  broker would act on a past that others have left long ago.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
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


class _Entry:
    """A batch that is not committed, or somebody who waits for the log up to `end_offset` to be."""

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

    __slots__ = ("_advancing", "_entries", "_heard", "_publisher", "committed", "latest", "quiet")

    def __init__(self, publisher: MetadataPublisher) -> None:
        self._publisher = publisher
        self._entries: deque[_Entry] = deque()
        self._advancing = False
        self._heard = False
        self.committed: MetadataImage = EMPTY_IMAGE
        self.latest: MetadataImage = EMPTY_IMAGE
        self.quiet = True

    # -- at the start, or from a snapshot ----------------------------------------------------------------------------

    def load(self, image: MetadataImage) -> None:
        """`image`, of a snapshot, is committed; nothing that was appended before counts any more."""
        before = self.committed
        self._entries.clear()
        self.committed = self.latest = image
        if not self.quiet:
            self._publisher.publish(image, changes_between(before, image))

    # -- as a follower -----------------------------------------------------------------------------------------------

    def appended(self, end_offset: int, epoch: int, messages: Sequence[Any]) -> None:
        """The leader's batch before `end_offset`; no messages in a control batch."""
        self._entries.append(_Entry(end_offset, epoch, messages))

    def truncated(self, end_offset: int) -> None:
        """The log was cut."""
        while self._entries and self._entries[-1].end_offset > end_offset:
            self._entries.pop()

    # -- as the leader -----------------------------------------------------------------------------------------------

    def lead(self, end_offset: int, epoch: int) -> None:
        """This replica leads from `end_offset` on: what is before it will be committed as one, or not at all."""
        delta = MetadataDelta(self.committed)
        for entry in self._entries:
            for message in entry.messages:
                delta.replay(message)
        self.latest, changes = delta.apply(end_offset - 1, epoch)
        if self._entries:
            self._entries[-1].published = (self.latest, changes)

    def follow(self, error: KafkaError) -> None:
        """This replica leads no more: who waits is told `error`, and the records wait for another leader's word."""
        waiting = [entry.done for entry in self._entries if entry.done is not None]
        self._entries = deque(entry for entry in self._entries if entry.messages)
        for entry in self._entries:
            entry.published = entry.done = None
        self.latest = self.committed
        for done in waiting:
            done(error)

    def begun(self, end_offset: int, epoch: int) -> None:
        """The leader's first batch of its epoch, which holds no metadata, ends at `end_offset`."""
        self.latest, _ = MetadataDelta(self.latest).apply(end_offset - 1, epoch)

    def submitted(
        self, end_offset: int, epoch: int, messages: Sequence[Any], image: MetadataImage, changes: MetadataChanges
    ) -> None:
        """An own batch: `image` is the one with it."""
        self.latest = image
        self._entries.append(_Entry(end_offset, epoch, messages, (image, changes)))

    def await_commit(self, end_offset: int, epoch: int, done: SubmitDone) -> None:
        """Call `done(None)` once everything before `end_offset`, the end of the log, is committed and published."""
        self._entries.append(_Entry(end_offset, epoch, done=done))

    def publish_at_once(self) -> None:
        """The first image is the one with everything that was submitted so far: the start of a single node."""
        for entry in self._entries:
            entry.published = None
        self._entries[-1].published = (self.latest, all_changes(self.latest))

    def leader_heard(self) -> None:
        """All that a leader calls committed is in the log here: images are published once it is replayed."""
        self._heard = self.quiet

    # -- commit ------------------------------------------------------------------------------------------------------

    def advance(self, high_watermark: int, *, leading: bool) -> None:
        """Publish and answer what is before `high_watermark`, in order also when an answer submits again.

        Raises what a listener of the publisher raises.
        """
        if self._advancing:
            return
        self._advancing = True
        try:
            if leading:
                self._advance_leader(high_watermark)
            else:
                self._advance_follower(high_watermark)
            if self._heard:
                self._heard = False
                self._end_quiet()
        finally:
            self._advancing = False

    def _advance_leader(self, high_watermark: int) -> None:
        while self._entries and self._entries[0].end_offset <= high_watermark:
            entry = self._entries[0]
            if entry.published is not None:
                image, changes = entry.published
                # A listener that raises leaves the entry in place: nobody is told that it succeeded.
                self._publisher.publish(image, all_changes(image) if self.quiet else changes)
                self.committed = image
                self.quiet = False
            self._entries.popleft()
            if entry.done is not None:
                entry.done(None)

    def _advance_follower(self, high_watermark: int) -> None:
        delta = MetadataDelta(self.committed)
        last: _Entry | None = None
        while self._entries and self._entries[0].end_offset <= high_watermark:
            entry = self._entries.popleft()
            for message in entry.messages:
                delta.replay(message)
            if entry.messages:
                last = entry
        if last is not None:
            self.committed, changes = delta.apply(last.end_offset - 1, last.epoch)
            self.latest = self.committed
            if not self.quiet:
                self._publisher.publish(self.committed, changes)

    def _end_quiet(self) -> None:
        """Everything that was committed when a leader was first heard of is here: publish from now on."""
        if self.quiet:
            self.quiet = False
            self._publisher.publish(self.committed, changes_since(self._publisher.image, self.committed))

    def fail(self, error: KafkaError) -> None:
        """Nothing more will be committed here."""
        waiting = [entry.done for entry in self._entries if entry.done is not None]
        self._entries.clear()
        for done in waiting:
            done(error)


def batch_content(batch: BatchView) -> tuple[list[Any], Iterator[tuple[int, tuple[Voter, ...]]]]:
    """The metadata messages of a batch, and the sets of voters with their offsets. Raises ProtocolError."""
    messages: list[Any] = []
    voters: list[tuple[int, tuple[Voter, ...]]] = []
    for index, record in enumerate(batch.records()):
        if not batch.is_control:
            if record.value is None:
                raise InvariantError("a metadata record has no value")
            messages.append(decode_record(record.value).message)
        elif control_record_type(record) is ControlRecordType.KRAFT_VOTERS:
            voters.append((batch.base_offset + index, read_voters(record)))
    return messages, iter(voters)
