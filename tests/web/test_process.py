"""The command and its process: refusals, and the console that runs beside a broker."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from ottla.testing import Broker

from .process import WAIT_S, console, run

WITHOUT_EXTRA = """
import sys
sys.modules |= dict.fromkeys(("starlette", "uvicorn", "htpy"))
from ottla.app.main import main
main()
"""


def test_missing_extra_is_named_with_its_remedy():
    for arguments in (["console"], ["start", "--console-port", "0"]):
        command = [sys.executable, "-c", WITHOUT_EXTRA, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == 2, done.stderr
        assert done.stderr.count("\n") == 1
        assert "pip install 'ottla[console]'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--host", "0.0.0.0"], "without TLS"),
        (["--public-url", "ftp://x"], "--public-url"),
        (["-b", "broker:port"], "not an address"),
        (["--tls-cert", "/no/chain.pem", "--tls-key", "/no/key.pem"], "can't be used"),
        (["--audit-log", "/no/such/folder/audit.log"], "--audit-log"),
        (["--tables", "/no/such/folder"], "--tables"),
        (["--metrics-url", "ftp://x"], "--metrics-url"),
        (["--metrics-token-file", "/no/token"], "requires --metrics-url"),
    ],
)
def test_wrong_options_end_with_one_sentence(arguments, reason):
    done = run("console", *arguments)
    assert done.returncode == 2
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_tables_of_a_console_need_its_port():
    done = run("start", "--console-tables", ".")
    assert done.returncode == 2
    assert done.stderr.endswith("--console-tables requires --console-port\n")


def test_start_removes_the_ready_file_of_an_earlier_console(tmp_path):
    ready = tmp_path / "ready.json"
    ready.write_text('{"url": "http://127.0.0.1:1"}')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("console", "--port", str(taken.getsockname()[1]), "--ready-file", str(ready))
    assert (done.returncode, ready.exists()) == (2, False)


def test_credentials_in_client_properties_are_refused(tmp_path):
    properties = tmp_path / "client.properties"
    properties.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=x y=z;\n")
    done = run("console", "--command-config", str(properties))
    assert done.returncode == 2
    assert "would make every browser act as one user" in done.stderr


def test_wrong_mask_file_ends_with_one_sentence(tmp_path):
    masks = tmp_path / "masks.toml"
    masks.write_text('[[masks]]\ntopic = "a"\nfields = ["value..a"]\nmethod = "hidden"\n')
    data = ("--data-dir", str(tmp_path / "data"), "--port", "0")
    for arguments in (["console", "--masks"], ["start", *data, "--console-port", "0", "--console-masks"]):
        done = run(*arguments, str(masks))
        assert done.returncode == 2, done.stderr
        assert "masks.toml: [[masks]] number 1: 'value..a' is not a path" in done.stderr
        assert done.stderr.count("\n") == 1
    done = run("start", *data, "--console-masks", str(masks))
    assert (done.returncode, "requires --console-port" in done.stderr) == (2, True)


def test_port_in_use_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("console", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert "choose another --host or --port" in done.stderr


def test_unreachable_cluster_is_a_page_that_loads_again(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with console(tmp_path, "-b", f"127.0.0.1:{port}") as url, pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(url, timeout=WAIT_S)
    assert caught.value.code == 503
    page = caught.value.read().decode()
    assert "data-reload" in page
    assert f"cannot connect to 127.0.0.1:{port}".lower() in page.lower()


def address_in(log: str) -> str | None:
    found = re.search(r"the console is ready at (\S+)", log)
    return found[1] if found else None


def test_console_of_a_broker_ends_with_it():
    with Broker(arguments=["--console-port", "0", "--metrics-port", "0"]) as broker:
        deadline = time.monotonic() + WAIT_S
        while (url := address_in(broker.logs())) is None:
            assert time.monotonic() < deadline, broker.logs()
            time.sleep(0.05)
        with urllib.request.urlopen(url, timeout=WAIT_S) as response:
            assert b"Healthy: 1 broker" in response.read()
        with urllib.request.urlopen(url + "/clients", timeout=WAIT_S) as response:
            shown = response.read()
        assert b"Clients push once a subscription asks them to" in shown, "it reads the metrics of its broker"
        assert b"Not shown" not in shown
        broker.kill()
        port = int(url.rpartition(":")[2])
        while is_open(port):
            assert time.monotonic() < deadline, "the console outlived its broker"
            time.sleep(0.05)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_console_needs_a_listener_of_its_protocol(tmp_path: Path):
    done = run(
        "start",
        *("--data-dir", str(tmp_path / "data"), "--port", "0", "--console-port", "0"),
        *("--set", "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT", "--set", "sasl.enabled.mechanisms=PLAIN"),
        *("--set", "sasl.mechanism.inter.broker.protocol=PLAIN"),
        *(
            "--set",
            "listener.name.plaintext.plain.sasl.jaas.config="
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b" user_a="b";',
        ),
    )
    assert done.returncode == 2
    assert "--console-config" in done.stderr
