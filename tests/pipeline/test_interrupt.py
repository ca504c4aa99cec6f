"""Ctrl-C while Spark starts and while it works: no output, no remaining process, nothing in the table."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.client.admin.cluster import Cluster
from ottla.testing import Broker

WAIT_S = 250
DENIAL = struct.pack(">qBii", 17, 8, 0, 0)
"""A StreamFailure of Spark's network library."""


def process_of(session_id: int, what: bytes, executable: str) -> int | None:
    """The process of that session with `what` in its command line, once it is the executable."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            found = what in (entry / "cmdline").read_bytes() and os.getsid(int(entry.name)) == session_id
            if found and executable in os.readlink(entry / "exe"):
                return int(entry.name)
        except OSError:  # it ended meanwhile
            continue
    return None


def jvm_of(session_id: int) -> int | None:
    return process_of(session_id, b"pyspark-shell", "java")


@pytest.mark.pipeline
@pytest.mark.parametrize(
    ("number", "what", "executable"),
    [
        pytest.param(signal.SIGINT, b"pyspark-shell", "java", id="SIGINT-start"),
        pytest.param(signal.SIGTERM, b"pyspark-shell", "java", id="SIGTERM-start"),
        pytest.param(signal.SIGINT, b"pyspark.daemon", "python", id="SIGINT-work"),
        pytest.param(signal.SIGINT, b"ottla.pipeline.local.worker", "python", id="SIGINT-local"),
        pytest.param(signal.SIGTERM, b"ottla.pipeline.local.worker", "python", id="SIGTERM-topics"),
    ],
)
def test_interrupted_load_is_silent_and_leaves_no_process(
    ottla_broker: Broker,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    number: signal.Signals,
    what: bytes,
    executable: str,
) -> None:
    """The signal goes to the whole group, as a terminal's does, once to the command alone.

    SIGTERM ends the JVM while it starts, which must not be reported as a failed start.
    """
    topic = f"interrupted-{request.node.callspec.id.lower()}"
    with Cluster(ottla_broker.bootstrap_servers) as cluster:
        cluster.topics.create(topic)
    environment = {**os.environ, "OTTLA_BOOTSTRAP_SERVER": ottla_broker.bootstrap_servers}
    ottla = [sys.executable, "-m", "ottla"]
    engine = ["--engine", "local", "--max-bytes-per-task", "1"] if b"local" in what else []
    subprocess.run([*ottla, "produce", topic, "-q"], input=b"one\n", env=environment, check=True)
    chosen = ["--topics-pattern", f"{topic}.*", "--table", str(tmp_path / "{topic}")]
    options = chosen if topic.endswith("-topics") else ["-t", topic, "--table", str(tmp_path / "table")]
    load = subprocess.Popen(
        [*ottla, "pipeline", "load", *options, "--master", "local[1]", *engine],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    deadline = time.monotonic() + WAIT_S
    while (process := process_of(load.pid, what, executable)) is None:
        assert load.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    if executable == "java" and number == signal.SIGINT:
        load.send_signal(number)
    else:
        os.killpg(load.pid, number)
    try:
        output = load.communicate(timeout=WAIT_S)  # Spark has both pipes too, and holds them until it ends
    except subprocess.TimeoutExpired:
        os.kill(process, signal.SIGKILL)
        raise
    assert (load.returncode, output) == (128 + number, (b"", b""))
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.pipeline
def test_ctrl_c_while_master_rejects_application(ottla_broker: Broker, tmp_path: Path) -> None:
    """The master answers the command's probe as Spark does, and disconnects Spark itself, which would retry three
    times."""
    with Cluster(ottla_broker.bootstrap_servers) as cluster:
        cluster.topics.create("untaken")
    environment = {**os.environ, "OTTLA_BOOTSTRAP_SERVER": ottla_broker.bootstrap_servers}
    ottla = [sys.executable, "-m", "ottla"]
    subprocess.run([*ottla, "produce", "untaken", "-q"], input=b"one\n", env=environment, check=True)
    with socket.create_server(("127.0.0.1", 0)) as master:
        master.settimeout(WAIT_S)
        options = ["--table", str(tmp_path / "table"), "--master", f"spark://127.0.0.1:{master.getsockname()[1]}"]
        load = subprocess.Popen([*ottla, "pipeline", "load", "-t", "untaken", *options], env=environment)
        for answer in (DENIAL, DENIAL, b""):  # probes before the table is created and before Java starts, then Spark
            connection = master.accept()[0]
            connection.sendall(answer)
            connection.close()
        load.send_signal(signal.SIGINT)
        assert load.wait(WAIT_S) == 128 + signal.SIGINT
        master.setblocking(False)
        with pytest.raises(BlockingIOError):  # no second attempt
            master.accept()
