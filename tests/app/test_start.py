"""`ottla start` as a process: readiness, responses, shutdown, and errors in one line."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from ottla import __version__
from ottla.app.garbage import YOUNG_OBJECTS
from ottla.app.ports import free_ports
from ottla.app.process import connection_limits
from ottla.app.start import StartOptions, choose_loop, read_token
from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import OperatorError

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root")


def test_starts_answers_and_stops(ottla):
    started = ottla.start()
    assert started.api_versions()[:6] == b"\0\0\0\7\0\0"
    ready = started.ready
    assert ready["version"] == __version__
    assert ready["pid"] == started.process.pid
    assert ready["node_id"] == 1
    assert len(ready["cluster_id"]) == 22
    assert ready["listeners"] == {"PLAINTEXT": ready["bootstrap_servers"]}
    assert ready["metrics"] is None
    assert ready["data_dir"] == str(ottla.folder / "data")
    assert ready["record_module"] in ("compiled", "pure")
    assert started.stop() == 0
    assert Path(ready["data_dir"], ".kafka_cleanshutdown").exists()
    text = started.log.read_text()
    assert f"ottla {__version__} is ready" in text
    assert text.rstrip().endswith("stopped")


@pytest.mark.parametrize("has_quorum", [False, True])
def test_a_start_loads_no_code_for_zookeeper(ottla, monkeypatch, has_quorum, code_for_zookeeper):
    (port,) = free_ports(1)
    quorum = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{port}",
    }
    settings = [f"--set={name}={value}" for name, value in quorum.items()] if has_quorum else []
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    started = ottla.start(*settings)
    assert started.api_versions()
    assert started.stop() == 0
    loaded = re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", started.log.read_text(), re.MULTILINE)
    assert "ottla.server.broker" in loaded
    assert ("ottla.server.lifecycle.lifecycle" in loaded) == has_quorum
    assert code_for_zookeeper(loaded) == []


def test_a_start_without_metrics_port_loads_no_collectors(ottla, monkeypatch):
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    started = ottla.start()
    assert started.stop() == 0
    loaded = re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", started.log.read_text(), re.MULTILINE)
    assert "ottla.metrics.registry" in loaded
    assert not [name for name in loaded if re.search("_series$|scraping|exposition|metrics_endpoint|spellings", name)]


def test_same_identity_after_a_restart(ottla):
    first = ottla.start()
    assert first.stop(signal.SIGINT) == 0
    second = ottla.start()
    assert second.ready["cluster_id"] == first.ready["cluster_id"]
    assert second.stop() == 0


def test_sighup_stops_broker_unless_ignored(ottla):
    started = ottla.start()
    assert started.stop(signal.SIGHUP) == 0
    assert Path(started.ready["data_dir"], ".kafka_cleanshutdown").exists()
    nohup = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\nfrom ottla.__main__ import main\nmain()"
    kept = ottla.start(command=("-c", nohup))
    kept.process.send_signal(signal.SIGHUP)
    assert kept.api_versions()
    assert kept.stop() == 0
    assert "SIGHUP" not in kept.log.read_text()


def test_stops_with_clients_connected_and_requests_parked(ottla):
    started = ottla.start()
    with socket.create_connection(started.address) as idle, socket.create_connection(started.address) as half:
        half.sendall(b"\0\0\0\x50half a frame")
        assert started.api_versions()
        assert started.stop() == 0
        assert idle.recv(1) == b""


def test_second_signal_stops_at_once_when_a_client_does_not_read(ottla):
    code = (
        "import ottla.app.process as p\n"
        "async def hang(self): await __import__('asyncio').Event().wait()\n"
        "p.Broker.stop = hang\n"
        "from ottla.app.main import main\nmain()\n"
    )
    started = ottla.start(command=("-c", code))
    started.process.send_signal(signal.SIGTERM)
    while "stopping" not in started.log.read_text():
        assert started.process.poll() is None
    assert started.stop(signal.SIGTERM) == 130
    assert not Path(started.ready["data_dir"], ".kafka_cleanshutdown").exists()


def test_broken_invariant_ends_the_process_without_the_marker(ottla):
    code = (
        "import ottla.app.process as p\n"
        "from ottla.common.errors import InvariantError\n"
        "announce = p.BrokerProcess._announce\n"
        "def planted(self, *arguments):\n"
        "    announce(self, *arguments)\n"
        "    p.asyncio.get_running_loop().call_soon(crash)\n"
        "def crash(): raise InvariantError('planted')\n"
        "p.BrokerProcess._announce = planted\n"
        "from ottla.app.main import main\nmain()\n"
    )
    started = ottla.start(command=("-c", code))
    assert started.process.wait(60) == 1
    assert "inconsistent state: planted" in started.log.read_text()
    assert not Path(started.ready["data_dir"], ".kafka_cleanshutdown").exists()


def test_metrics_and_health_are_served(ottla):
    started = ottla.start("--metrics-port", "0", "--log-format", "json")
    started.api_versions()
    address = started.ready["metrics"]
    text = urllib.request.urlopen(f"http://{address}/metrics", timeout=60).read().decode()
    assert "kafka_server_socket_server_metrics_incoming_byte_total 14" in text
    assert "process_resident_memory_bytes" in text
    assert "# TYPE process_cpu_seconds_total counter" in text
    assert re.search(rf'^ottla_build_info{{.*version="{re.escape(__version__)}"}} 1$', text, re.MULTILINE)
    assert urllib.request.urlopen(f"http://{address}/healthz", timeout=60).read() == b"ok\n"
    assert started.stop() == 0
    lines = [json.loads(line) for line in started.log.read_text().splitlines()]
    assert lines[-1]["message"] == "stopped"


def test_metrics_need_describe_on_the_cluster(ottla, tmp_path):
    token = tmp_path / "metrics.token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    started = ottla.start(
        *("--metrics-port", "0", "--metrics-token-file", str(token), "--set", "super.users=User:metrics"),
        *("--set", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    )
    address = started.ready["metrics"]
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"http://{address}/metrics", timeout=60)
    asked = urllib.request.Request(
        f"http://{address}/metrics", headers={"Authorization": f"Bearer {token.read_text().strip()}"}
    )
    assert b"process_resident_memory_bytes" in urllib.request.urlopen(asked, timeout=60).read()
    assert urllib.request.urlopen(f"http://{address}/healthz", timeout=60).read() == b"ok\n"
    assert token.read_text().strip() not in started.log.read_text()


@pytest.mark.promise("S11")
@pytest.mark.parametrize(
    ("content", "port", "words"),
    [(b"x" * 32, None, "--metrics-port"), (None, 0, "can't be read"), (b"short\n", 0, "rand")],
)
def test_a_token_that_protects_nothing_is_refused(tmp_path, content, port, words):
    path = tmp_path / "metrics.token"
    if content is not None:
        path.write_bytes(content)
    options = StartOptions(None, {}, None, None, None, port, "info", "text", metrics_token_file=str(path))
    with pytest.raises(OperatorError, match=words):
        read_token(options)


def test_limits_of_single_addresses():
    config, warnings = BrokerConfig.parse(
        {"max.connections.per.ip.overrides": "localhost:3, [::ffff:10.0.0.1]:0,[2001:DB8::1]:7"}
    )
    assert not warnings
    overrides = dict(connection_limits(config, 100).per_ip_overrides)
    assert overrides.pop("127.0.0.1") == 3
    assert {name: count for name, count in overrides.items() if count != 3} == {
        "10.0.0.1": 0,
        "2001:db8::1": 7,
    }
    for text in ("localhost", "localhost:", ":3", "a:-1", "a:many", "a:99999999999", "a:" + "9" * 5000):
        with pytest.raises(OperatorError, match=r"host:count.*max\.connections\.per\.ip\.overrides"):
            BrokerConfig.parse({"max.connections.per.ip.overrides": text})


def test_a_broker_that_may_open_hardly_any_file_does_not_start(ottla):
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12)); from ottla.__main__ import main; main()"
    )
    message = ottla.refuse("--port", "0", code=code)
    assert message.count("\n") == 1
    assert message.startswith("ottla: the limit of open files is 12, but a broker needs at least 64")


def test_several_listeners_and_all_addresses(ottla):
    started = ottla.start(
        "--set",
        "listeners=PLAINTEXT://127.0.0.1:0,ALL://:0",
        "--set",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,ALL:PLAINTEXT",
    )
    listeners = started.ready["listeners"]
    assert set(listeners) == {"PLAINTEXT", "ALL"}
    for address in listeners.values():
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))).close()
    assert started.stop() == 0


def test_unknown_and_unsupported_settings_give_one_warning_each(ottla):
    started = ottla.start("--set", "no.such.setting=1", "--set", "queued.max.requests=5")
    text = started.log.read_text()
    assert text.count("no.such.setting") == 1
    assert text.count("queued.max.requests") == 1
    assert started.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "num.partitions=many"), ("num.partitions", "many")),
        (("--set", "listeners=SSL://:9093"), ("ssl.keystore.location", "ottla security init")),
        (("--set", "authorizer.class.name=x"), ("authorizer.class.name", "StandardAuthorizer")),
        (("--set", "log.dirs=/proc/a,/proc/a"), ("log.dirs", "twice")),
        (("--brokers", "3", "--set", "log.dir="), ("log.dirs", "empty")),
        (("--brokers", "3", "--set", "log.dirs=a,b"), ("log.dirs", "several")),
        (("--config", "missing.properties"), ("missing.properties", "--config")),
        (("--config", "broken.properties"), ("broken.properties", "line 2")),
        (("--port", "0", "--data-dir", "file"), ("file", "--data-dir")),
        (("--port", "0", "--ready-file", "no/such/folder/ready.json"), ("no/such/folder", "--ready-file")),
        (("--set", "listeners=PLAINTEXT://192.0.2.1:0"), ("192.0.2.1", "listeners")),
        (("--set", "listeners=PLAINTEXT://no-such-host.invalid:0"), ("no-such-host.invalid", "listeners")),
        (("--port", "70000"), ("--port",)),
        (("--set", "novalue"), ("novalue", "KEY=VALUE")),
        (("--log-level", "loud"), ("--log-level",)),
    ],
)
def test_mistakes_end_with_a_sentence_and_exit_code_2(ottla, arguments, words):
    (ottla.folder / "broken.properties").write_text("a=1\nb=\\u12\n")
    (ottla.folder / "file").write_text("not a directory")
    text = ottla.refuse(*arguments)
    for word in words:
        assert word in text
    assert not (ottla.folder / "ottla-data").exists()


def test_port_in_use_names_port_and_setting(ottla):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = ottla.refuse("--port", str(port), "--data-dir", str(ottla.folder / "other"))
        assert f"port {port} on 127.0.0.1 is in use" in text
        assert "--port" in text
        text = ottla.refuse("--port", "0", "--metrics-port", str(port))
        assert "--metrics-port" in text


@pytest.mark.parametrize("distance", [1, 1001])
def test_busy_port_of_a_cluster_is_reported_before_formatting(ottla, distance):
    """The port of the second broker, and its controller port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = taken.getsockname()[1]
        data = ottla.folder / "cluster"
        text = ottla.refuse("--brokers", "3", "--port", str(busy - distance), "--data-dir", str(data))
    assert str(busy) in text
    assert "--port" in text
    assert not [path for path in data.rglob("*") if path.name != ".lock"]


def test_second_broker_on_the_same_data_directory_is_refused(ottla):
    started = ottla.start()
    text = ottla.refuse("--port", "0", "--data-dir", started.ready["data_dir"])
    assert "in use by another broker" in text
    assert started.api_versions()
    assert started.stop() == 0


@pytest.mark.root
@needs_root
def test_data_directory_of_another_user(ottla):
    """As an unprivileged user, since root may read everything. Modules are loaded before: Python may be private."""
    folder = ottla.folder / "private"
    folder.mkdir(mode=0o700)
    code = (
        "import json, os, resource, uvloop, ottla.app.start\n"
        "from ottla.app.main import main\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); main()\n"
    )
    for path in (folder, folder / "below"):
        text = ottla.refuse("--port", "0", "--data-dir", str(path), code=code)
        assert str(folder) in text
        assert "--data-dir" in text


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("room", ["0", "4096"])
def test_full_disk(ottla, room):
    """A tmpfs with room for this many bytes, in a mount namespace of its own."""
    mounted = ottla.folder / "small"
    mounted.mkdir()
    script = (
        f"mount -t tmpfs -o size=16k tmpfs {mounted} && "
        f"head -c $((16384 - {room} - 4096)) /dev/zero > {mounted}/filler && "
        f"head -c 4096 /dev/zero > {mounted}/more; [ {room} = 0 ] || rm {mounted}/more; "
        f"exec {sys.executable} -m ottla start --port 0 --data-dir {mounted}/data"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("mounts are not allowed here")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "full" in done.stderr
    assert "--data-dir" in done.stderr


def test_the_collector_rests_during_the_import_only():
    code = (
        "import gc\n"
        "from ottla.app.main import cli\n"
        "cli(['start', '--config', '/no/such/file'], standalone_mode=False)\n"
        "print(gc.isenabled(), gc.get_freeze_count() > 0, gc.get_threshold()[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == f"True True {YOUNG_OBJECTS}\n", done.stderr


def test_without_uvloop_asyncio_runs(monkeypatch):
    assert choose_loop()[1] == "uvloop"
    monkeypatch.setitem(sys.modules, "uvloop", None)
    factory, name = choose_loop()
    assert name == "asyncio"
    factory().close()


def test_broker_runs_on_plain_asyncio(ottla):
    code = "import sys\nsys.modules['uvloop'] = None\nfrom ottla.app.main import main\nmain()\n"
    started = ottla.start(command=("-c", code))
    assert started.api_versions()
    assert ", asyncio, Python " in started.log.read_text()
    assert started.stop() == 0
