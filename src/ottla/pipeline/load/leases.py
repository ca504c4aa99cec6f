"""Leases: files that show a vacuum which files belong to a running load, and which to a killed one.

A load (or a compaction) holds the file `_leases/LOAD` beside its table and renews it while it runs. A lease that was
not renewed for EXPIRY_S is expired: its owner was killed, or suspended for that long. A vacuum revokes an expired lease
before it removes the files, and a load whose lease is gone commits nothing. `_leases/LOAD.revoked` names the load for
the next vacuum, in case this one is killed before it has removed the files.

Times are the modification times of the files, so only the clock of the store counts. Not covered: a load that is
suspended for longer than EXPIRY_S between its last check of the lease and its commit.
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
    """The lease of one load in a table's store."""

    store: Store
    path: str

    @property
    def location(self) -> str:
        return self.store.locate(self.path)

    def renew(self) -> None:
        """Set the time of the lease to now. Raises FileNotFoundError if a vacuum revoked it, and OSError."""
        self.store.touch(self.path)

    def require(self) -> None:
        """Renew the lease; call this right before each commit.

        Raises OperatorError if the lease can't be renewed, or if a vacuum revoked it and so removed the files.
        """
        try:
            self.renew()
        except FileNotFoundError as error:
            if not self.store.child(LEASE_DIRECTORY).exists():
                raise OperatorError(
                    f"nothing was committed: {self.store.location} was removed, or is not mounted any more; restore it "
                    "and run the load again"
                ) from error
            raise OperatorError(
                f"nothing was committed: the lease {self.location} is gone. A vacuum revokes the lease of a load that "
                f"was suspended for more than {EXPIRY_S / 60:.0f} minutes and removes its files; or the table's "
                "directory was cleaned. Run the load again"
            ) from error
        except OSError as error:
            raise OperatorError(
                f"nothing was committed: the lease {self.location} can't be renewed: {os_reason(error)}; fix the "
                "cause and run the load again"
            ) from error


@contextmanager
def held_lease(store: Store, load_id: str) -> Iterator[Lease]:
    """Hold a lease; it is removed at the end, but left to expire after an unexpected exception.

    Raises OperatorError when it can't be written, or in a store without atomic creation of files.
    """
    lease = Lease(store, f"{LEASE_DIRECTORY}/{load_id}")
    try:
        store.create(lease.path, load_id.encode())
        _require_exclusive_creation(lease)
    except OSError as error:
        raise OperatorError(
            f"the lease {lease.location} can't be written: {os_reason(error)}; a change of a table needs write access "
            f"to {store.location}: grant it, or name another table with --table"
        ) from error
    ended = threading.Event()
    renewing = threading.Thread(target=_renew, args=(lease, ended), name="lease", daemon=True)
    renewing.start()
    try:
        yield lease
    except OttlaError:  # its files are discarded already, or have to stay
        _release(lease)
        raise
    else:
        _release(lease)
    finally:
        ended.set()
        renewing.join()


def _require_exclusive_creation(lease: Lease) -> None:
    """Raise OperatorError for an object store without conditional puts, which would also overwrite a commit."""
    try:
        lease.store.create(lease.path, b"again")
    except FileExistsError:
        return
    _release(lease)
    raise OperatorError(
        f"{lease.store.location} lets two writers create the same file, so that one load could overwrite the commit "
        "of another; use a store with conditional puts (If-None-Match), such as S3"
    )


def _renew(lease: Lease, ended: threading.Event) -> None:
    while not ended.wait(RENEWAL_S):
        try:
            lease.renew()
        except FileNotFoundError:
            return
        except OSError:
            continue  # a file system that is temporarily unavailable


def _release(lease: Lease) -> None:
    with suppress(OSError):
        lease.store.remove(lease.path)


@dataclass(frozen=True, slots=True)
class Leases:
    """The ids of loads by the state of their leases."""

    running: frozenset[str]
    expired: frozenset[str]
    revoked: frozenset[str] = frozenset()
    """Revoked by a vacuum that was killed before it removed the files."""


def read_leases(store: Store, now_ms: int | None = None) -> Leases:
    """Return the loads with a lease or a revocation mark in the store. Raises OSError.

    `now_ms`: the time of a reader that may not write; None writes a file to read the clock of the store.
    """
    times = {file.name: file.modified_ms for file in store.files(LEASE_DIRECTORY)}
    if not times:
        return Leases(frozenset(), frozenset())
    now_ms = _now_ms(store) if now_ms is None else now_ms
    marked = frozenset(name.removesuffix(_REVOKED) for name in times if name.endswith(_REVOKED))
    held = frozenset(name for name in times if not name.endswith(_REVOKED))
    expired = frozenset(name for name in held if now_ms - times[name] > EXPIRY_S * 1000)
    return Leases(held - expired, expired, marked - held)


def revoke(store: Store, load_id: str) -> bool:
    """Revoke an expired lease; False if its load renewed it in between. Raises OSError."""
    if load_id not in read_leases(store).expired:
        return False
    store.replace(f"{LEASE_DIRECTORY}/{load_id}{_REVOKED}", b"")
    store.remove(f"{LEASE_DIRECTORY}/{load_id}")
    return True


def forget(store: Store, load_id: str) -> None:
    """Remove the revocation mark of a load, after all its files were removed. Raises OSError."""
    store.remove(f"{LEASE_DIRECTORY}/{load_id}{_REVOKED}")


def _now_ms(store: Store) -> int:
    """The current time by the clock of the store."""
    probe = f"{LEASE_DIRECTORY}/.{uuid.uuid4().hex}"
    store.replace(probe, b"")
    try:
        return store.sync(probe).modified_ms
    finally:
        store.remove(probe)
