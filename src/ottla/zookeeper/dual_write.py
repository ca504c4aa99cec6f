"""What a quorum decides while a cluster migrates to it, written to ZooKeeper's tree too (KIP-866).

The quorum has committed what comes here, so nothing waits for the tree, and the tree is always some state that the
quorum had: images come in order, each becomes calls, one after the other. A call checks the versions of
`/controller_epoch` and `/migration` and says in the latter up to where the tree has everything. After a call that
failed nobody knows how the tree is: whoever made the writer claims again, reads the tree, and makes another. What
ZooKeeper can't hold halts the writer, which then knows how the tree is, until it is asked to compare anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from ottla.common.errors import InvariantError, KafkaError
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.difference import changes_between
from ottla.metadata.image import MetadataImage
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.migration import MigrationProgress, encode_migration
from ottla.protocol.znodes.operations import Check, Operation, SetData
from ottla.protocol.znodes.session import ZooKeeperError, ZooKeeperSession
from ottla.zookeeper.batches import Group, batches
from ottla.zookeeper.controller_election import QuorumTakeover
from ottla.zookeeper.writing import TreeWriter

MAX_WAITING = 1000
"""Images that wait for the tree; beyond, the newest one is compared with what is written as a whole."""


class DualWriter:
    """One controller's pen between a claim and the first call that fails. All methods belong to the loop."""

    __slots__ = (
        "_calls",
        "_epoch_version",
        "_failed",
        "_halted",
        "_progress",
        "_pumping",
        "_refused",
        "_repaired",
        "_sending",
        "_session",
        "_stopped",
        "_version",
        "_waiting",
        "_writer",
        "_written",
    )

    def __init__(
        self,
        session: ZooKeeperSession,
        takeover: QuorumTakeover,
        writer: TreeWriter,
        written: MetadataImage,
        failed: Callable[[Exception], None],
        refused: Callable[[KafkaError], None],
    ) -> None:
        """`written` is what the tree says, once the repairs are made. `failed` is told once, and then nothing more;
        `refused` of each image that has what ZooKeeper can't hold."""
        self._session = session
        self._epoch_version = takeover.reign.epoch_version
        self._writer = writer
        self._written = written
        self._failed = failed
        self._refused = refused
        self._progress = takeover.progress
        self._version = takeover.migration_version
        self._waiting: deque[tuple[MetadataImage, MetadataChanges | None]] = deque()
        """Each with what changed since the one before; None where that is to be found by comparing."""
        self._calls: deque[list[Operation]] = deque()
        self._repaired: Callable[[], None] | None = None
        """Told once the calls in hand have happened."""
        self._halted = False
        self._sending = False
        self._pumping = False
        self._stopped = False

    @property
    def behind(self) -> int:
        """How many records the tree lacks."""
        if not (self._waiting or self._calls):
            return 0
        newest = self._waiting[-1][0] if self._waiting else self._written
        return newest.offset - self._progress.metadata_offset

    def repair(self, groups: Iterable[Group], done: Callable[[], None]) -> None:
        """Complete what controllers before left undone; `done` when that has happened. Before any image."""
        self._calls.extend(batches(groups, self._epoch_version))
        self._repaired = done
        self._pump()

    def follow(self, image: MetadataImage, changes: MetadataChanges | None = None) -> None:
        """Bring the tree to an image that is committed; without `changes` it is compared with what is written.

        Then `/migration` says so also where nothing differs.
        """
        if changes is None:
            self._halted = False
        if changes is None or self._halted or len(self._waiting) >= MAX_WAITING:
            self._waiting.clear()
            changes = None
        self._waiting.append((image, changes))
        self._pump()

    def stop(self) -> None:
        """Send nothing more, and tell nobody."""
        self._stopped = True

    def _pump(self) -> None:
        if self._pumping:
            return
        self._pumping = True
        try:
            while not (self._sending or self._stopped or self._halted):
                if self._calls:
                    self._send()
                elif self._repaired is not None:
                    done, self._repaired = self._repaired, None
                    done()
                elif self._waiting:
                    self._plan(*self._waiting.popleft())
                else:
                    break
        finally:
            self._pumping = False

    def _plan(self, image: MetadataImage, changes: MetadataChanges | None) -> None:
        try:
            known = changes_between(self._written, image) if changes is None else changes
            groups = self._writer.groups(self._written, image, known)
        except KafkaError as error:
            self._halted = True
            newest = self._waiting[-1][0] if self._waiting else image
            self._waiting.clear()
            self._waiting.append((newest, None))
            self._refused(error)
            return
        except InvariantError as error:
            self._fail(error)
            return
        self._calls.extend(batches(groups, self._epoch_version))
        if changes is None and not self._calls:
            self._calls.append([Check(paths.CONTROLLER_EPOCH, self._epoch_version)])
        # Kept in place of the one before from here on: what waits behind it says what changed since this one.
        self._written = image

    def _send(self) -> None:
        call = self._calls[0]
        progress = self._progress
        if len(self._calls) == 1 and self._repaired is None:
            progress = progress._replace(metadata_offset=self._written.offset, metadata_epoch=self._written.epoch)
        self._sending = True
        self._session.multi(
            [*call, SetData(paths.MIGRATION, encode_migration(progress), self._version)],
            lambda _paths, error: self._sent(progress, error),
        )

    def _sent(self, progress: MigrationProgress, error: ZooKeeperError | None) -> None:
        if error is not None:
            self._fail(error)
            return
        self._sending = False
        self._calls.popleft()
        self._progress = progress
        self._version += 1
        self._pump()

    def _fail(self, error: Exception) -> None:
        if not self._stopped:
            self._stopped = True
            self._failed(error)
