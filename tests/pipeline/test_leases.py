"""Leases of running loads: renewal, expiry, revocation, and the errors of a load without one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ottla.common.errors import OperatorError

pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.pipeline.load import leases
from ottla.pipeline.load.leases import EXPIRY_S, LEASE_DIRECTORY, held_lease, revoke
from ottla.pipeline.stores.local_store import LocalStore


@pytest.mark.promise("P7")
def test_lease_expires_after_ten_minutes_without_renewal(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with held_lease(store, "one") as lease:
        for age_s, is_expired in ((EXPIRY_S - 60, False), (EXPIRY_S + 60, True)):
            os.utime(lease.location, (time.time() - age_s,) * 2)
            found = leases.read_leases(store)
            assert (found.expired if is_expired else found.running) == {"one"}
            assert revoke(store, "one") == is_expired


def test_a_lease_is_renewed_while_it_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEWAL_S", 0.001)
    with held_lease(LocalStore(tmp_path), "one") as lease:
        path = Path(lease.location)
        os.utime(path, (0, 0))
        while path.stat().st_mtime == 0:
            pass
        assert leases.read_leases(LocalStore(tmp_path)).running == {"one"}
    assert not path.exists()


def test_unrenewable_lease_is_not_reported_as_revoked(tmp_path: Path) -> None:
    with held_lease(LocalStore(tmp_path), "one") as lease:
        leases_directory = tmp_path / LEASE_DIRECTORY
        leases_directory.rename(tmp_path / "aside")
        leases_directory.touch()
        with pytest.raises(OperatorError, match=r"can't be renewed: not a directory; fix the cause and run the load"):
            lease.require()


def test_removed_table_is_not_reported_as_revoked_lease(tmp_path: Path) -> None:
    with held_lease(LocalStore(tmp_path / "table"), "one") as lease:
        (tmp_path / "table").rename(tmp_path / "aside")
        with pytest.raises(OperatorError, match=r"committed: .*/table was removed, or is not mounted"):
            lease.require()


def test_unexpected_exception_leaves_lease(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), held_lease(LocalStore(tmp_path), "one"):
        raise KeyboardInterrupt
    assert leases.read_leases(LocalStore(tmp_path)).running == {"one"}
