"""The harness with fake broker processes: reports of broker failures."""

from __future__ import annotations

import json
import os
import select
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing import Broker, BrokerFailure

READY = {"bootstrap_servers": "127.0.0.1:4711", "pid": 1, "node_id": 1}


@pytest.fixture
def stand_in(tmp_path: Path):
    """A function that creates an executable which runs Python code if `python -m ottla start ...` is expected."""

    def make(code: str) -> str:
        path = tmp_path / "stand-in"
        path.write_text(
            f"#!{sys.executable}\nimport json, os, signal, sys, time\n"
            "arguments = sys.argv[1:]\n"
            "def option(name): return arguments[arguments.index(name) + 1]\n"
            "def ready():\n"
            f"    content = json.dumps({READY!r})\n"
            "    open(option('--ready-file') + '.tmp', 'w').write(content)\n"
            "    os.rename(option('--ready-file') + '.tmp', option('--ready-file'))\n" + code
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return make


SERVE = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print(json.dumps(arguments), flush=True)
ready()
while True: signal.pause()
"""


def test_start_uses_documented_command_and_stops_cleanly(stand_in, tmp_path):
    data_dir = tmp_path / "data"
    with Broker(
        python=stand_in(SERVE),
        data_dir=data_dir,
        configs={"auto.create.topics.enable": False, "num.partitions": 3},
        arguments=["--log-level", "debug"],
    ) as broker:
        assert broker.running
        assert broker.bootstrap_servers == "127.0.0.1:4711"
        assert broker.port == 4711
        arguments = json.loads(broker.logs())
        os.kill(broker.pid, 0)
    assert arguments[:3] == ["-m", "ottla", "start"]
    assert arguments[arguments.index("--port") + 1] == "0"
    assert arguments[arguments.index("--data-dir") + 1] == str(data_dir)
    assert "auto.create.topics.enable=false" in arguments
    assert "num.partitions=3" in arguments
    assert arguments[-2:] == ["--log-level", "debug"]
    assert broker.exit_code == 0
    assert not broker.running


def test_a_restart_keeps_the_port_and_the_log(stand_in):
    with Broker(python=stand_in(SERVE)) as broker:
        first = broker.pid
        broker.restart()
        assert broker.pid != first
        second = broker.pid
        broker.restart(crash=True)
        assert broker.pid != second
        ports = [json.loads(line) for line in broker.logs().splitlines()]
    assert [arguments[arguments.index("--port") + 1] for arguments in ports] == ["0", "4711", "4711"]


def test_kill_is_seen_as_such_and_close_does_not_complain(stand_in):
    with Broker(python=stand_in(SERVE)) as broker:
        broker.kill()
        assert broker.exit_code == -9
        with pytest.raises(BrokerFailure, match="not running"):
            _ = broker.pid


def test_a_broker_that_refuses_to_start_is_quoted(stand_in):
    broker = Broker(python=stand_in("sys.exit('num.partitions must be positive')"))
    with pytest.raises(BrokerFailure, match=r"exit code 1 before it was ready.*\n.*num.partitions must be positive"):
        broker.start()
    broker.close()


def test_a_broker_that_never_gets_ready_is_killed(stand_in):
    broker = Broker(python=stand_in("while True: signal.pause()"), start_timeout_s=0.3)
    with pytest.raises(BrokerFailure, match=r"not ready in 0.3 s"):
        broker.start()
    assert not broker.running
    broker.close()


def test_a_broker_that_ignores_sigterm_is_killed_and_reported(stand_in):
    code = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nready()\nwhile True: signal.pause()"
    broker = Broker(python=stand_in(code), stop_timeout_s=0.3).start()
    with pytest.raises(BrokerFailure, match=r"did not stop in 0.3 s"):
        broker.stop()
    assert broker.exit_code == -9
    broker.close()


def test_unexpected_broker_exit_fails_the_test(stand_in):
    code = """
def die(*_):
    print("invariant broken", flush=True)
    sys.exit(3)

signal.signal(signal.SIGUSR1, die)
ready()
while True: signal.pause()
"""
    broker = Broker(python=stand_in(code)).start()
    os.kill(broker.pid, signal.SIGUSR1)
    broker._processes[0].wait()
    with pytest.raises(BrokerFailure, match=r"exit code 3.*\n.*invariant broken"):
        broker.close()


STARTER = """
import signal
from ottla.testing import Broker
broker = Broker().start()
print(broker.pid, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_broker_does_not_outlive_its_parent(number):
    """However that ends; with the broker as it is, since it is the broker that has to see it."""
    with subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE) as starter:
        try:
            broker = os.pidfd_open(int(starter.stdout.readline()))
            starter.send_signal(number)
            assert starter.wait(30) == -number
            assert select.select([broker], [], [], 30)[0], "the broker is gone"
        finally:
            starter.kill()


def test_temporary_files_go_away_and_a_given_data_dir_stays(stand_in, tmp_path):
    given = tmp_path / "kept"
    given.mkdir()
    with Broker(python=stand_in(SERVE)) as own, Broker(python=stand_in(SERVE), data_dir=given) as kept:
        work_dirs = [Path(own._work_dir), Path(kept._work_dir)]
        assert all(path.is_dir() for path in work_dirs)
    assert not any(path.exists() for path in work_dirs)
    assert given.is_dir()
    with pytest.raises(BrokerFailure, match="closed"):
        own.start()


def test_nan_as_a_limit_of_time_is_refused():
    with pytest.raises(ValueError, match="can't be NaN"):
        Broker(stop_timeout_s=float("nan"))
