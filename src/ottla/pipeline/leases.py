"""Leases: how a vacuum tells the files of a load that runs from those of one that was killed.

A load (or a compaction) holds the file `_leases/LOAD` beside its table and renews it while it runs. One that was not
renewed for EXPIRY_S is expired: its holder was killed, or stopped for that long. Before a vacuum takes the files of an
expired lease it takes the lease away, and a load that finds its own gone commits nothing. `_leases/LOAD.revoked` tells
the next vacuum whose files to take, should this one be killed before it has.

Times are those of the files, so that one clock counts, the one of the file system. Left out: a load that is stopped for
longer than EXPIRY_S between its last look at the lease and its commit.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ottla.common.errors import OperatorError, OttlaError

LEASE_DIRECTORY = "_leases"
RENEWAL_S = 30.0
EXPIRY_S = 600.0
_PROBE = ".now"
_REVOKED = ".revoked"


@dataclass(frozen=True, slots=True)
class Lease:
    """That of one load on a table's directory."""

    path: Path

    def renew(self) -> None:
        """Raises FileNotFoundError when a vacuum took it."""
        os.utime(self.path)

    def require(self) -> None:
        """To be called right before a commit. Raises OperatorError when a vacuum took the lease, and the files then."""
        try:
            self.renew()
        except OSError as error:
            raise OperatorError(
                f"nothing was committed: the lease {self.path} is gone, as it is when a load stood still for more than "
                f"{EXPIRY_S / 60:.0f} minutes and a vacuum took its files; run the load again"
            ) from error


@contextmanager
def held_lease(directory: str | os.PathLike[str], load_id: str) -> Iterator[Lease]:
    """Hold a lease; it is given up at the end, but left to expire where the end is no orderly one.

    Raises OperatorError when it can't be written.
    """
    lease = Lease(Path(directory) / LEASE_DIRECTORY / load_id)
    try:
        lease.path.parent.mkdir(parents=True, exist_ok=True)
        lease.path.touch(exist_ok=False)
    except OSError as error:
        raise OperatorError(f"the lease {lease.path} of the load can't be written: {error}") from error
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
        lease.path.unlink()


@dataclass(frozen=True, slots=True)
class Leases:
    """The ids of loads by the state of their leases."""

    running: frozenset[str]
    expired: frozenset[str]
    revoked: frozenset[str] = frozenset()
    """Taken away by a vacuum that did not live to the end."""


def read_leases(directory: Path) -> Leases:
    """Raises OSError."""
    leases = directory / LEASE_DIRECTORY
    if not leases.is_dir():
        return Leases(frozenset(), frozenset())
    now = _now(leases)
    times = {}
    for path in leases.iterdir():
        with suppress(FileNotFoundError):  # given up in this moment
            times[path.name] = path.stat().st_mtime
    marked = frozenset(name.removesuffix(_REVOKED) for name in times if name.endswith(_REVOKED))
    held = frozenset(name for name in times if not name.endswith(_REVOKED))
    expired = frozenset(name for name in held if now - times[name] > EXPIRY_S)
    return Leases(held - expired, expired, marked - held)


def revoke(directory: Path, load_id: str) -> bool:
    """Take an expired lease away; False when its load was heard in between. Raises OSError."""
    path = directory / LEASE_DIRECTORY / load_id
    if load_id not in read_leases(directory).expired:
        return False
    path.with_name(f"{load_id}{_REVOKED}").touch()
    path.unlink(missing_ok=True)
    return True


def forget(directory: Path, load_id: str) -> None:
    """To be called when all files of a revoked lease were taken. Raises OSError."""
    (directory / LEASE_DIRECTORY / f"{load_id}{_REVOKED}").unlink(missing_ok=True)


def _now(leases: Path) -> float:
    """By the clock of the file system."""
    probe = leases / _PROBE
    probe.touch()
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)
