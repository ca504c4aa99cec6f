"""Each kind of file in a data directory: missing, empty, cut, garbage, unreadable, or replaced by a directory.

Each state is tried before a start after a stop and after a kill. The file is repaired, with every record present, or
the start is refused with the file's name.

`tests/faults/test_strange_files.py` and `test_corruption.py` test some of it with real processes, and
`tests/zookeeper/test_directories.py` the files read only on ZooKeeper. Not here: files of a cluster's node only.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from ottla.app.disk import RealDisk
from ottla.common.errors import OperatorError
from ottla.common.platform.disk import File
from ottla.common.platform.disk_refusal import disk_refusal
from ottla.quorum.election_file import encode_catching_up
from ottla.record.batch import iter_batches
from ottla.storage.files import names
from ottla.storage.files.checkpoints import LastIncarnation, format_running

from ..storage.maintenance import write_checkpoints
from .harness import Server, fetch_request
from .test_read_committed import end, only, values, write

METADATA = "__cluster_metadata-0"
OF_PARTITIONS = (
    *(f"t-0/*{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")),
    "t-0/leader-epoch-checkpoint",
    "t-0/partition.metadata",
    "cleaner-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)
AFTER_A_KILL = ("t-0/*.log", "t-0/*.txnindex", "cleaner-offset-checkpoint", ".ottla_running")
"""Kinds that a start after a kill treats differently; the rest is in `tests/faults/test_corruption.py`."""
OTHERS = (
    "meta.properties",
    ".lock",
    ".kafka_cleanshutdown",
    ".ottla_cleaner",
    *(f"{METADATA}/*{suffix}" for suffix in (".log", ".index", ".timeindex", ".checkpoint")),
    f"{METADATA}/leader-epoch-checkpoint",
    f"{METADATA}/partition.metadata",
    f"{METADATA}/quorum-state",
)
NOTES = {
    ".ottla_running": format_running(LastIncarnation(7), RealDisk().boot_id()),
    f"{METADATA}/.ottla_catching_up": encode_catching_up(3),
    "t-0/.ottla_moved_from": b"11" * 16,
    ".ottla_siblings": b"AAAAAAAAAAAAAAAAAAAAAg\nAAAAAAAAAAAAAAAAAAAAAw\n",
}
"""Files present before some starts."""
VALUES = [b"%d" % number for number in range(12)]


class Unreadable(RealDisk):
    """A disk that refuses to open one file, like another user's; file modes do not restrict root."""

    path = ""

    def _check(self, path: str) -> None:
        if path == self.path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        self._check(path)
        return super().open(path, create=create, read_only=read_only)

    def read_bytes(self, path: str) -> bytes:
        self._check(path)
        return super().read_bytes(path)

    def overwrite(self, path: str, data: bytes, position: int = 0) -> None:
        self._check(path)
        super().overwrite(path, data, position)


def test_every_file_with_a_name_of_its_own_is_tried() -> None:
    ends = ("_FILE", "_CHECKPOINT", "_METADATA", "_PROPERTIES", "_FROM")
    known = {text for name, text in vars(names).items() if name.endswith(ends)} - {names.BOOTSTRAP_CHECKPOINT}
    assert names.SIBLINGS_FILE in known
    assert known <= {os.path.basename(kind) for kind in (*OF_PARTITIONS, *OTHERS, *NOTES)}


def missing(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garbage(path: Path) -> None:
    path.write_bytes(b"\xa5garbage \x00" * 10)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def unreadable(path: Path) -> None:
    """By the disk: see `Unreadable`."""


CHANGES = (missing, empty, cut, garbage, directory, unreadable)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A directory with all of these files, after a stop and after a kill."""
    folder = tmp_path_factory.mktemp("kinds")
    server = Server(folder)
    client = server.connect()
    client.create_topic("t", internal_segment_bytes="400", message_timestamp_type="LogAppendTime")
    for number in range(6):
        client.produce("t", VALUES[number])
    server.restart()  # a stop writes snapshots
    client = server.connect()
    partition = server.broker.parts.replicas.find("t", 0)
    write(partition, b"aborted", b"aborted")
    end(partition, committed=False)
    for number in range(6, 12):
        client.produce("t", VALUES[number])
    write_checkpoints(server.broker.parts.logs)
    (folder / "data" / "cleaner-offset-checkpoint").write_bytes(b"0\n1\nt 0 1\n")
    (folder / "data" / ".ottla_cleaner").write_bytes(b"{}")
    shutil.copytree(folder / "data", folder / "killed")
    server.stop()
    server.loop.close()
    return {"a kill": folder / "killed", "a stop": folder / "data"}


def read(server: Server) -> list[bytes | None]:
    """The topic's records for a read_committed consumer."""
    client, found, offset = server.connect(), [], 0
    while (batches := only(client.ask(fetch_request(("t", 0, offset), isolation_level=1), 12))).records:
        found += values(batches)
        offset = list(iter_batches(batches.records))[-1].next_offset
    return found


@pytest.mark.promise("D7")
@pytest.mark.parametrize(
    ("kind", "ended"),
    [*((kind, "a kill") for kind in AFTER_A_KILL), *((kind, "a stop") for kind in (*OF_PARTITIONS, *OTHERS, *NOTES))],
)
def test_file_is_repaired_or_refused_by_name(
    filled: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, ended: str
) -> None:
    for change in CHANGES:
        data = tmp_path / change.__name__ / "data"
        shutil.copytree(filled[ended], data)
        if kind in NOTES:
            (data / kind).write_bytes(NOTES[kind])
        path = max(data.glob(kind))
        change(path)
        disk = Unreadable()
        disk.path = str(path) if change is unreadable else ""
        caplog.clear()
        try:
            server = Server(data.parent, disk)
        except (OperatorError, OSError) as error:
            message = str(disk_refusal(error, str(data)) if isinstance(error, OSError) else error)
            if str(path) not in message:  # then the directory, and its files
                assert str(data) in message, (change, message)
                assert path.parent.name in message, (change, message)
            continue
        found = read(server)
        server.stop()
        server.loop.close()
        if kind == "t-0/*.log":
            assert found == VALUES[: len(found)], change
        elif kind == "t-0/*.txnindex" and change is unreadable:
            assert str(path) in caplog.text, "no start opens it"
        elif kind == f"{METADATA}/*.log":
            assert change is cut, "the topic is lost, and its log quarantined"
            assert list(data.glob("t-0.*-stray"))
        else:
            assert found == VALUES, change
