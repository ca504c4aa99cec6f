"""Ctrl-C while Spark starts: no words, no process that stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.client.cluster import Cluster
from ottla.testing import Broker

WAIT_S = 90


def jvm_of(session_id: int) -> int | None:
    """The Java process of that session, once it is Spark's."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            spark = b"pyspark-shell" in (entry / "cmdline").read_bytes() and os.getsid(int(entry.name)) == session_id
            if spark and os.readlink(entry / "exe").endswith("java"):
                return int(entry.name)
        except OSError:  # it ended meanwhile
            continue
    return None


@pytest.mark.pipeline
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_jvm_that_is_just_starting_ends_too(ottla_broker: Broker, tmp_path: Path, number: signal.Signals) -> None:
    topic = f"interrupted-{number.name.lower()}"
    with Cluster(ottla_broker.bootstrap_servers) as cluster:
        cluster.create_topic(topic)
    environment = {**os.environ, "OTTLA_BOOTSTRAP_SERVER": ottla_broker.bootstrap_servers}
    ottla = [sys.executable, "-m", "ottla"]
    subprocess.run([*ottla, "produce", topic, "-q"], input=b"one\n", env=environment, check=True)
    load = subprocess.Popen(
        [*ottla, "pipeline", "load", "-t", topic, "--table", str(tmp_path / "table"), "--master", "local[1]"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    deadline = time.monotonic() + WAIT_S
    while (jvm := jvm_of(load.pid)) is None:
        assert load.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    load.send_signal(number)
    try:
        output = load.communicate(timeout=WAIT_S)  # the JVM has both pipes too, and holds them until it ends
    except subprocess.TimeoutExpired:
        os.kill(jvm, signal.SIGKILL)
        raise
    assert (load.returncode, output) == (128 + number, (b"", b""))
