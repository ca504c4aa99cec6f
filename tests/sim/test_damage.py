"""Damage drawn from a seed: every kind of file and field, a bit of each file at a time."""

from __future__ import annotations

from collections import Counter

from simulation.damage import _KINDS, damage_files
from simulation.disk import SimDisk
from simulation.file_system import Inode
from simulation.loop import SimClock, SimLoop
from simulation.rng import SimRng

from ottla.quorum.metadata_log import QUORUM_STATE
from ottla.record.builder import RecordData, build_batch

BATCH = bytes(build_batch([RecordData(1_700_000_000_000, b"k", b"v")]))
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
FILES = {
    "/data/__cluster_metadata-0/00000000000000000000.log": BATCH,
    f"/data/__cluster_metadata-0/{QUORUM_STATE}": b"{}",
    **{f"/data/{name}-0/{offset:020d}{suffix}": BATCH for name in "ct" for offset in (0, 9) for suffix in SUFFIXES},
    **{f"/data/{name}-0/leader-epoch-checkpoint": b"0\n1\n0 0\n" for name in "ct"},
    **{f"/data/{name}-0/partition.metadata": b"version: 0\n" for name in "ct"},
    "/data/recovery-point-offset-checkpoint": b"0\n0\n",
    "/data/log-start-offset-checkpoint": b"0\n0\n",
    "/data/replication-offset-checkpoint": b"0\n0\n",
    "/data/cleaner-offset-checkpoint": b"0\n0\n",
    "/data/.ottla_running": b"{}",
}


def test_every_kind_is_drawn_and_a_bit_of_a_file_changes() -> None:
    rng, kinds = SimRng(1), Counter[str]()
    for _ in range(150):
        disk = SimDisk(SimClock(SimLoop()), rng)
        disk.names.update({path: Inode(content) for path, content in FILES.items()})
        damaged = damage_files(disk, "/data", 4, rng, {"c-0"})
        kinds.update(each.kind for each in damaged)
        changed = {
            path: int.from_bytes(inode.data) ^ int.from_bytes(FILES[path])
            for path, inode in disk.names.items()
            if inode is not None and inode.data != FILES[path]
        }
        assert changed.keys() == {each.path for each in damaged}
        assert all(difference.bit_count() == 1 for difference in changed.values())
        assert all(inode.durable == inode.data for inode in disk.names.values() if inode is not None)
        assert sum("__cluster_metadata" in path for path in changed) == 1
        assert not any(each.kind == "base offset" and "/c-0/" in each.path for each in damaged)
        assert not any(each.path.endswith(f"{0:020d}.log") and "cluster" not in each.path for each in damaged)
    assert kinds.keys() == {*_KINDS, QUORUM_STATE}
