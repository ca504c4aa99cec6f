"""Writes a quorum's metadata to ZooKeeper's tree while a cluster migrates (KIP-866).

Input is committed by the quorum, so no request waits for the tree, and the tree always equals an earlier state of the
quorum: images arrive in order, each becomes calls, one after the other. A call checks the versions of
`/controller_epoch` and `/migration`, and stores in the latter the offset up to which the tree is complete. After a
failed call the content of the tree is unknown: the owner of the writer claims again, reads the tree, and creates
another writer. An image that ZooKeeper can't store halts the writer, which then knows the content of the tree, until it
is asked to compare again.
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
"""Maximum number of images that wait; beyond it the newest one is compared with the whole tree."""


class DualWriter:
    """Writer of one controller, from a claim to the first failed call. All methods run on the loop."""

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
        """`written` is the content of the tree after the repairs. `failed` is called once, and then the writer stops.
        `refused` is called for each image that ZooKeeper can't store.
        """
        self._session = session
        self._epoch_version = takeover.term.epoch_version
        self._writer = writer
        self._written = written
        self._failed = failed
        self._refused = refused
        self._progress = takeover.progress
        self._version = takeover.migration_version
        self._waiting: deque[tuple[MetadataImage, MetadataChanges | None]] = deque()
        """Each with its changes since the previous one; None if comparing has to find them."""
        self._calls: deque[list[Operation]] = deque()
        self._repaired: Callable[[], None] | None = None
        """Called once the pending calls were applied."""
        self._halted = False
        self._sending = False
        self._pumping = False
        self._stopped = False

    @property
    def behind(self) -> int:
        """Number of records that the tree lacks."""
        if not (self._waiting or self._calls):
            return 0
        newest = self._waiting[-1][0] if self._waiting else self._written
        return newest.offset - self._progress.metadata_offset

    def repair(self, groups: Iterable[Group], done: Callable[[], None]) -> None:
        """Complete the changes that earlier controllers left unfinished, before any image; `done` when that is
        written."""
        self._calls.extend(batches(groups, self._epoch_version))
        self._repaired = done
        self._pump()

    def follow(self, image: MetadataImage, changes: MetadataChanges | None = None) -> None:
        """Bring the tree to a committed image; without `changes` it is compared with the written one.

        Then `/migration` contains its offset, even if nothing differs.
        """
        if changes is None:
            self._halted = False
        if changes is None or self._halted or len(self._waiting) >= MAX_WAITING:
            self._waiting.clear()
            changes = None
        self._waiting.append((image, changes))
        self._pump()

    def stop(self) -> None:
        """Send nothing more, and call no callback."""
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
        # From here on kept instead of the previous one: queued images contain changes relative to this one.
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
