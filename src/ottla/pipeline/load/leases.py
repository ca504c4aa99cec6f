"""Leases: how a vacuum tells the files of a load that runs from those of one that was killed.

A load (or a compaction) holds the file `_leases/LOAD` beside its table and renews it while it runs. One that was not
renewed for EXPIRY_S is expired: its holder was killed, or stopped for that long. Before a vacuum takes the files of an
expired lease it takes the lease away, and a load that finds its own gone commits nothing. `_leases/LOAD.revoked` tells
the next vacuum whose files to take, should this one be killed before it has.

Times are those of the files, so that one clock counts, the one of the store. Left out: a load that is stopped for
longer than EXPIRY_S between its last look at the lease and its commit.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from ottla.common.errors import OperatorError, OttlaError
from ottla.pipeline.model.failure import os_reason
from ottla.pipeline.stores.store import Store

LEASE_DIRECTORY = "_leases"
RENEWAL_S = 30.0
EXPIRY_S = 600.0
_REVOKED = ".revoked"


@dataclass(frozen=True, slots=True)
class Lease:
    """That of one load on a table's store."""

    store: Store
    path: str

    @property
    def location(self) -> str:
        return self.store.locate(self.path)

    def renew(self) -> None:
        """Raises FileNotFoundError when a vacuum took it."""
        self.store.touch(self.path)

    def require(self) -> None:
        """To be called right before a commit. Raises OperatorError when a vacuum took the lease, and the files then, or
        when that can't be told."""
        try:
            self.renew()
        except FileNotFoundError as error:
            if not self.store.child(LEASE_DIRECTORY).exists():
                raise OperatorError(
                    f"nothing was committed: {self.store.location} was removed meanwhile, or is mounted no more; bring "
                    "it back and run the load again"
                ) from error
            raise OperatorError(
                f"nothing was committed: the lease {self.location} is gone: a vacuum takes it, and the files with it, "
                f"of a load that stood still for more than {EXPIRY_S / 60:.0f} minutes, and so does whoever removes "
                "what lies in the table's directory; run the load again"
            ) from error
        except OSError as error:
            raise OperatorError(
                f"nothing was committed: the lease {self.location} can't be renewed: {os_reason(error)}; mend that and "
                "run the load again"
            ) from error


@contextmanager
def held_lease(store: Store, load_id: str) -> Iterator[Lease]:
    """Hold a lease; it is given up at the end, but left to expire where the end is no orderly one.

    Raises OperatorError when it can't be written, or where files can't be created once only.
    """
    lease = Lease(store, f"{LEASE_DIRECTORY}/{load_id}")
    try:
        store.create(lease.path, load_id.encode())
        _require_creation_once(lease)
    except OSError as error:
        raise OperatorError(
            f"the lease {lease.location} can't be written: {os_reason(error)}; who changes a table has to write in "
            f"{store.location}: have that allowed, or name another by --table"
        ) from error
    ended = threading.Event()
    renewing = threading.Thread(target=_renew, args=(lease, ended), name="lease", daemon=True)
    renewing.start()
    try:
        yield lease
    except OttlaError:  # what it wrote is discarded already, or has to stay
        _give_up(lease)
        raise
    else:
        _give_up(lease)
    finally:
        ended.set()
        renewing.join()


def _require_creation_once(lease: Lease) -> None:
    """An object store that does not know conditional puts takes the second one as well, as it would a second commit."""
    try:
        lease.store.create(lease.path, b"again")
    except FileExistsError:
        return
    _give_up(lease)
    raise OperatorError(
        f"{lease.store.location} lets two writers create the same file, so that one load could overwrite what another "
        "committed; a table needs a store with conditional puts (If-None-Match), as S3 is"
    )


def _renew(lease: Lease, ended: threading.Event) -> None:
    while not ended.wait(RENEWAL_S):
        try:
            lease.renew()
        except FileNotFoundError:
            return
        except OSError:
            continue  # a file system that is away for a moment


def _give_up(lease: Lease) -> None:
    with suppress(OSError):
        lease.store.remove(lease.path)


@dataclass(frozen=True, slots=True)
class Leases:
    """The ids of loads by the state of their leases."""

    running: frozenset[str]
    expired: frozenset[str]
    revoked: frozenset[str] = frozenset()
    """Taken away by a vacuum that did not live to the end."""


def read_leases(store: Store) -> Leases:
    """Raises OSError."""
    times = {file.name: file.modified_ms for file in store.files(LEASE_DIRECTORY)}
    if not times:
        return Leases(frozenset(), frozenset())
    now_ms = _now_ms(store)
    marked = frozenset(name.removesuffix(_REVOKED) for name in times if name.endswith(_REVOKED))
    held = frozenset(name for name in times if not name.endswith(_REVOKED))
    expired = frozenset(name for name in held if now_ms - times[name] > EXPIRY_S * 1000)
    return Leases(held - expired, expired, marked - held)


def revoke(store: Store, load_id: str) -> bool:
    """Take an expired lease away; False when its load was heard in between. Raises OSError."""
    if load_id not in read_leases(store).expired:
        return False
    store.replace(f"{LEASE_DIRECTORY}/{load_id}{_REVOKED}", b"")
    store.remove(f"{LEASE_DIRECTORY}/{load_id}")
    return True


def forget(store: Store, load_id: str) -> None:
    """To be called when all files of a revoked lease were taken. Raises OSError."""
    store.remove(f"{LEASE_DIRECTORY}/{load_id}{_REVOKED}")


def _now_ms(store: Store) -> int:
    """By the clock of the store."""
    probe = f"{LEASE_DIRECTORY}/.{uuid.uuid4().hex}"
    store.replace(probe, b"")
    try:
        return store.sync(probe).modified_ms
    finally:
        store.remove(probe)
