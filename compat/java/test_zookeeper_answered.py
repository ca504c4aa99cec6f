"""ZooKeeper's acknowledged writes survive the crash of a server that is synchronizing with a new leader.

If they were lost, leader epochs and controller claims would go back. Version 3.8.4 has this defect: such a server has
the new leader's epoch on disk before the writes, and wins the next election without them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.cluster.ensemble import Ensemble, Server
from tests.cluster.nodes import eventually

from ottla.app.ports import free_ports

WITHIN_S = 120.0
PATH = "/state"
EPOCH_IS_WRITTEN = "org.apache.zookeeper.server.quorum.QuorumPeer.setCurrentEpoch"

pytestmark = pytest.mark.skipif(shutil.which("jdb") is None, reason="jdb, which stops servers, is not installed")


@contextmanager
def client_of(*servers: Server) -> Iterator[KazooClient]:
    client = KazooClient(",".join(server.seat.address for server in servers))
    client.start(WITHIN_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def stopped_with_a_new_epoch(server: Server, folder: Path) -> Iterator[None]:
    """Start `server`, which is suspended as soon as the epoch of a new leader is on its disk."""
    (port,) = free_ports(1)
    address, said = f"127.0.0.1:{port}", folder / "jdb"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-agentlib:jdwp=transport=dt_socket,server=y,suspend=y,address={address}")
        server.start()
    eventually(lambda: f"at address: {port}" in server.log_text(), "it waits for the debugger", WITHIN_S)
    with (
        said.open("wb") as out,
        subprocess.Popen(["jdb", "-attach", address], stdin=subprocess.PIPE, stdout=out, text=True) as debugger,
    ):
        try:
            for answer, command in (
                ("VM Started", f"stop in {EPOCH_IS_WRITTEN}"),
                ("Deferring breakpoint", "cont"),
                ("Breakpoint hit: .*bci=", "step up"),
                ("Step completed: .*bci=", ""),
            ):
                eventually(lambda answer=answer: re.search(answer, said.read_text()), answer, WITHIN_S)
                assert debugger.stdin is not None
                debugger.stdin.write(f"{command}\n")
                debugger.stdin.flush()
            yield
        finally:
            debugger.kill()


def test_crash_during_synchronization_loses_no_write(zookeeper_classpath: str, tmp_path: Path) -> None:
    with Ensemble(zookeeper_classpath, tmp_path) as ensemble:
        leader = next(server for server in ensemble.servers if server.mode == "leader")
        late, next_leader = (server for server in ensemble.servers if server is not leader)
        with client_of(leader) as client:
            client.create(PATH, b"3")
            late.kill()
            client.set(PATH, b"4")
        leader.kill()
        with stopped_with_a_new_epoch(late, tmp_path):
            late.kill()
        next_leader.kill()
        leader.start()
        late.start()
        eventually(lambda: leader.ready and late.ready, "two serve", WITHIN_S)
        with client_of(leader, late) as client:
            client.sync(PATH)
            assert client.get(PATH)[0] == b"4"
