"""Operator mistakes at start: exit code 2, one sentence with the cause and the fix.

Root reads everything, so the tests of permissions run the broker without root's capability to do so.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from pathlib import Path

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.testing import Broker

from .refusals import contents, refusal, start

NOBODY_UID = 65534
WITHOUT_RIGHTS = (
    "setpriv",
    "--inh-caps=-dac_override,-dac_read_search,-fowner",
    "--bounding-set=-dac_override,-dac_read_search,-fowner",
)

needs_setpriv = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="taking rights away needs root, which has them, and setpriv",
)


@pytest.fixture
def config(tmp_path: Path):
    """A function that starts with a `server.properties` of these lines and returns the refusal."""
    path = tmp_path / "server.properties"

    def refused(*lines: str) -> str:
        path.write_text(
            "\n".join([f"log.dirs={tmp_path / 'data'}", "listeners=PLAINTEXT://127.0.0.1:0", *lines]) + "\n"
        )
        return refusal("--config", str(path))

    return refused


def test_a_refusal_is_json_where_the_log_is():
    for arguments in (("--set", "num.partitions=0"), ("--brokers", "3", "--metrics-port", "9404")):
        result = start("--log-format", "json", *arguments)
        assert result.returncode == 2
        (line,) = result.stderr.splitlines()
        entry = json.loads(line)
        assert (entry["level"], entry["logger"]) == ("error", "ottla")
        assert any(name in entry["message"] for name in ("num.partitions", "--metrics-port"))


# The config file.


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("num.partitions=many", ("num.partitions", "many")),
        ("num.partitions=0", ("num.partitions", "0")),
        ("log.retention.hours=1.5", ("log.retention.hours", "1.5")),
        ("auto.create.topics.enable=perhaps", ("auto.create.topics.enable", "perhaps")),
        ("log.cleanup.policy=shred", ("log.cleanup.policy", "shred")),
        ("compression.type=rar", ("compression.type", "rar")),
        ("node.id=-7", ("node.id", "-7")),
        ("node.id=99999999999", ("node.id", "99999999999")),
        ("message.max.bytes=-1", ("message.max.bytes", "-1")),
        ("log.segment.bytes=3", ("log.segment.bytes", "3")),
        ("log.message.timestamp.type=Never", ("log.message.timestamp.type", "Never")),
    ],
)
def test_a_bad_value_names_setting_and_value(config, line, words):
    sentence = config(line)
    for word in words:
        assert word in sentence


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("listeners=PLAINTEXT//127.0.0.1:9092",), ("listeners", "NAME://host:port")),
        (("listeners=PLAINTEXT://127.0.0.1:99999",), ("listeners", "99999")),
        (("listeners=ODD://127.0.0.1:0",), ("listeners", "ODD", "listener.security.protocol.map")),
        (("listeners=PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.2:0",), ("listeners", "twice")),
        (("listener.security.protocol.map=PLAINTEXT",), ("listener.security.protocol.map", "NAME:PROTOCOL")),
        (("node.id=1", "broker.id=2"), ("node.id", "broker.id")),
    ],
)
def test_settings_that_contradict_or_can_not_be_read(config, lines, words):
    sentence = config(*lines)
    for word in words:
        assert word in sentence


def test_a_listener_that_asks_for_sasl_says_how(config):
    assert "sasl.enabled.mechanisms of listener SASL_PLAINTEXT" in config("listeners=SASL_PLAINTEXT://127.0.0.1:0")


@pytest.mark.promise("S3")
@pytest.mark.parametrize(
    "lines",
    [
        ("ssl.engine.factory.class=org.example.Factory",),
        ("sasl.server.callback.handler.class=org.example.Handler",),
    ],
    ids=lambda lines: lines[0].partition("=")[0],
)
def test_ineffective_security_setting_refuses_to_start(config, lines):
    """A broker that the operator wrongly believes to be protected is worse than none."""
    sentence = config(*lines)
    assert "not implemented" in sentence
    name = lines[0].partition("=")[0]
    assert name in sentence


@pytest.mark.promise("S3")
@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((), ("ssl.keystore.location", "ottla security init")),
        (("ssl.keystore.location=/nowhere/server.pem",), ("ssl.keystore.location /nowhere/server.pem", "no such file")),
        (("ssl.keystore.location=/etc/hostname",), ("PKCS12", "ssl.keystore.password")),
        (("ssl.keystore.key=a", "ssl.keystore.certificate.chain=b"), ("ssl.keystore.key", "PRIVATE KEY")),
        (("ssl.keystore.key=a",), ("ssl.keystore.certificate.chain", "set both")),
    ],
)
def test_keys_that_are_not_there_refuse_to_start(config, lines, words):
    sentence = config("listeners=SSL://127.0.0.1:0", *lines)
    for word in words:
        assert word in sentence


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"num.partitions=\\u12", "line 3 of the config file"),
        (b"broker.rack=\\uXYZW", "line 3 of the config file"),
        (b"num.partitions=\xff\xfe3", "line 3 of the config file"),
        (b"num.partitions\n=3", "num.partitions"),
    ],
    ids=["cut-escape", "bad-escape", "not-a-number-in-latin-1", "no-value"],
)
def test_a_bad_line_names_file_or_setting(tmp_path, content, named):
    path = tmp_path / "server.properties"
    path.write_bytes(b"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs=%b\n" % bytes(tmp_path / "data") + content + b"\n")
    sentence = refusal("--config", str(path))
    assert named in sentence
    assert (str(path) in sentence) == ("file" in named)


def test_a_config_file_that_is_not_there_or_not_a_file(tmp_path):
    missing = tmp_path / "missing.properties"
    assert str(missing) in refusal("--config", str(missing))
    assert str(tmp_path) in refusal("--config", str(tmp_path))


def test_settings_without_effect_warn_once(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnum.io.threads=8\nno.such.setting=1\nzookeeper.connect=localhost:2181\n"
    )
    with Broker(arguments=["--config", str(path)]) as broker:
        log = broker.logs()
    for name in ("num.io.threads", "no.such.setting", "zookeeper.connect"):
        assert log.count(name) == 1, log


@pytest.mark.parametrize("arguments", [("--set", "num.partitions"), ("--port", "70000"), ("--log-level", "loud")])
def test_a_bad_command_line_is_explained(arguments):
    result = start(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert arguments[-1] in result.stderr


# Ports and other brokers.


def test_a_port_in_use(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sentence = refusal("--port", str(port), "--data-dir", str(tmp_path / "data"))
    assert f"port {port} on 127.0.0.1 is in use" in sentence
    assert "--port" in sentence


def test_a_port_in_use_by_metrics(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sentence = refusal("--port", "0", "--metrics-port", str(port), "--data-dir", str(tmp_path / "data"))
    assert f"port {port}" in sentence
    assert "--metrics-port" in sentence


def test_an_address_that_is_not_ours(tmp_path):
    sentence = refusal(
        "--set", "listeners=PLAINTEXT://192.0.2.1:19092", "--data-dir", str(tmp_path / "data")
    )  # TEST-NET-1
    assert "192.0.2.1" in sentence
    assert "listeners" in sentence


def test_a_second_broker_on_the_same_data_directory():
    with Broker() as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create("kept", 1)
        # The first is halted meanwhile: it writes checkpoints when they are due, and only the second is judged.
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            os.waitid(os.P_PID, broker.pid, os.WSTOPPED | os.WNOWAIT)
            before = contents(broker.data_dir)
            sentence = refusal("--port", "0", "--data-dir", str(broker.data_dir))
            assert contents(broker.data_dir) == before
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        assert str(broker.data_dir) in sentence
        assert "another" in sentence
        with Cluster(broker.bootstrap_servers) as cluster:
            assert list(cluster.topics.all()) == ["kept"]
        data_dir = broker.data_dir
        # The lock goes with its process, however that ended.
        broker.kill()
        broker.start()
        assert (data_dir / ".lock").exists()


def test_another_node_id_than_the_directory_has():
    with Broker(configs={"node.id": 1}) as broker:
        broker.stop()
        sentence = refusal("--port", "0", "--data-dir", str(broker.data_dir), "--set", "node.id=2")
        assert "node.id" in sentence
        assert str(broker.data_dir) in sentence


@pytest.mark.parametrize("content", ["", "nonsense", "version=9\ncluster.id=x\nnode.id=1\n", "version=1\nnode.id=1\n"])
def test_a_broken_meta_properties(content):
    with Broker() as broker:
        broker.stop()
        path = broker.data_dir / "meta.properties"
        path.write_text(content)
        assert str(path) in refusal("--port", "0", "--data-dir", str(broker.data_dir))


def test_damaged_metadata_snapshot_without_its_log_is_named():
    """Impossible after a crash, since it is written to another name and renamed; so no start guesses its content."""
    with Broker() as broker:
        broker.stop()
        folder = broker.data_dir / "__cluster_metadata-0"
        for segment in folder.glob("*.log"):
            segment.unlink()
        *_, path = sorted(folder.glob("*.checkpoint"))
        path.write_bytes(b"nonsense" * 50)
        sentence = refusal("--port", "0", "--data-dir", str(broker.data_dir))
        assert str(path) in sentence
        assert "restore" in sentence


# Files and directories.


def test_the_data_directory_is_a_file(tmp_path):
    path = tmp_path / "data"
    path.write_text("not a directory")
    for place in (path, path / "below"):
        assert str(path) in refusal("--port", "0", "--data-dir", str(place))


@pytest.mark.root
@needs_setpriv
class TestWithoutRights:
    @pytest.fixture
    def foreign(self, tmp_path: Path) -> Path:
        """A directory of another user."""
        path = tmp_path / "foreign"
        path.mkdir()
        os.chown(path, NOBODY_UID, NOBODY_UID)
        return path

    @pytest.mark.parametrize("mode", [0o000, 0o555, 0o111, 0o444], ids=oct)
    def test_a_data_directory_that_may_not_be_used(self, foreign, mode):
        foreign.chmod(mode)
        sentence = refusal("--port", "0", "--data-dir", str(foreign), prefix=WITHOUT_RIGHTS)
        assert str(foreign) in sentence
        assert "Permission denied" in sentence
        assert "--data-dir" in sentence

    def test_a_data_directory_that_may_not_be_made(self, foreign):
        foreign.chmod(0o555)
        path = foreign / "new"
        sentence = refusal("--port", "0", "--data-dir", str(path), prefix=WITHOUT_RIGHTS)
        assert str(path) in sentence
        assert "--data-dir" in sentence

    @pytest.mark.parametrize(
        "name",
        [
            "meta.properties",
            ".lock",
            "recovery-point-offset-checkpoint",
            "__cluster_metadata-0",
            "__cluster_metadata-0/00000000000000000000.log",
            "__cluster_metadata-0/quorum-state",
        ],
    )
    def test_a_file_of_the_broker_that_may_not_be_read(self, name):
        with Broker() as broker:
            with Cluster(broker.bootstrap_servers) as cluster:
                cluster.topics.create("mine", 1)
            broker.stop()
            path = broker.data_dir / name
            os.chown(path, NOBODY_UID, NOBODY_UID)
            path.chmod(0o000)
            sentence = refusal("--port", "0", "--data-dir", str(broker.data_dir), prefix=WITHOUT_RIGHTS)
            assert str(path) in sentence
            # Once it may be read, everything is as before.
            os.chown(path, 0, 0)
            path.chmod(0o755)
            broker.start()
            with Cluster(broker.bootstrap_servers) as cluster:
                assert list(cluster.topics.all()) == ["mine"]

    def test_unreadable_partition_is_reported_rest_is_served(self, tmp_path):
        """Either nothing starts and the sentence names the directory, or that partition alone is offline."""
        with Broker() as broker:
            with Cluster(broker.bootstrap_servers) as cluster:
                cluster.topics.create("mine", 1)
                cluster.topics.create("theirs", 1)
            broker.stop()
            path = broker.data_dir / "theirs-0"
            os.chown(path, NOBODY_UID, NOBODY_UID)
            path.chmod(0o000)
            sentence = refusal("--port", "0", "--data-dir", str(broker.data_dir), prefix=WITHOUT_RIGHTS)
            assert str(path) in sentence

    def test_a_ready_file_that_can_not_be_written(self, foreign, tmp_path):
        foreign.chmod(0o555)
        sentence = refusal(
            "--port",
            "0",
            "--data-dir",
            str(tmp_path / "data"),
            "--ready-file",
            str(foreign / "ready"),
            prefix=WITHOUT_RIGHTS,
        )
        assert str(foreign) in sentence
        assert "--ready-file" in sentence

    def test_a_config_file_that_may_not_be_read(self, tmp_path):
        path = tmp_path / "server.properties"
        path.write_text("num.partitions=3\n")
        os.chown(path, NOBODY_UID, NOBODY_UID)
        path.chmod(0o000)
        sentence = refusal("--config", str(path), prefix=WITHOUT_RIGHTS)
        assert str(path) in sentence
