"""The command blocks of README.md and docs/guides run as printed, in the order in which a reader meets them.

They run in an empty directory and in a separate network namespace, because they use the ports that the pages name. The
test is in this directory because one block starts Spark.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs" / "guides"
README = ROOT / "README.md"


def guide(name: str) -> Path:
    """A page of docs/guides."""
    return GUIDES / f"{name}.md"


PAGES = (
    README,
    guide("existing-clients"),
    guide("transactions"),
    guide("queues"),
    guide("pipeline"),
    guide("pipeline-cdc"),
    guide("cluster"),
    guide("configure"),
    guide("security"),
)
"""All blocks of these pages run, in this order; the first six pages use the broker that the README starts."""
OTHER_PAGES = (guide("mirror"), guide("testing"))
"""All blocks of these pages run in other tests (`ELSEWHERE`)."""

BLOCK = re.compile(r"^```(sh|python|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ELSEWHERE = {
    "make demo": "tests/pipeline/test_demo.py",
    "make test": "this run",
    "python3 -m venv": "the Makefile installs by the same declarations",
    "export PATH": "the environment of this run",
    "pip install": "the Makefile installs by the same declarations",
    "ottla format --config node1.properties": "tests/cluster/test_three_hosts.py",
    "ottla start --config node1.properties": "tests/cluster/test_three_hosts.py",
    "ottla cluster rebalance --broker": "tests/cluster/test_supervisor.py, tests/client/test_rebalance.py",
    "def test_mine": "tests/testing",
    "ottla mirror --from": "tests/clients/test_mirror_page.py",
}
"""Blocks and commands that do not run here, by their first characters, and the test that runs them."""

OWN_TESTS = {
    "client": "tests/clients/test_client_page.py",
    "from-apache-kafka": "compat/java/test_adopt.py",
    "pipeline-clusters": "tests/pipeline/test_standalone.py",
    "pipeline-object-stores": "tests/pipeline/test_object_store_commands.py",
    "pipeline-snapshots": "tests/pipeline/snapshot",
    "pipeline-source": "tests/pipeline/datasource",
    "pipeline-streams": "tests/pipeline/stream",
    "search": "tests/cli/test_search.py",
    "console": "tests/web/test_process.py",
    "zookeeper": "compat/java/test_zookeeper_brokers.py",
}
"""Guides with commands that need other services or data, and the tests that cover these commands."""

PROPERTIES = """node.id=1
process.roles=broker,controller
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
controller.listener.names=CONTROLLER
num.network.threads=3
log.retention.hours=168
"""
READY = re.compile(r"is ready|are ready")
READY_S = 200
COMMAND_S = 500
POLL_S = 0.02
LOAD = "ottla pipeline "
"""These commands start Spark, so one that several pages print runs once."""
FOR_EVER = " --schedule "
"""A command that contains it runs until it is interrupted."""

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare (util-linux) is not installed on this machine"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="ip (iproute2) is not installed on this machine"),
]


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of the code blocks of a page."""
    return [(match[1], match[2]) for match in BLOCK.finditer(page.read_text())]


def is_elsewhere(text: str) -> bool:
    return any(text.startswith(beginning) for beginning in ELSEWHERE)


def commands(text: str) -> Iterator[str]:
    """The commands of a block without their comments; a loop is one command."""
    command = ""
    for line in text.splitlines():
        command = f"{command}\n{line.split('  #')[0].rstrip()}".strip()
        parsed = subprocess.run(["bash", "-n"], input=command, capture_output=True, text=True, check=False)
        if command and parsed.returncode == 0 and not command.endswith("\\"):
            yield command
            command = ""
    assert not command, command


class Reader:
    """Runs printed commands; a broker runs beside the commands that follow, until the next start."""

    def __init__(self, folder: Path, command_s: float = COMMAND_S) -> None:
        self.folder = folder
        self.command_s = command_s
        self.running: subprocess.Popen[bytes] | None = None
        self.typed: list[str] = []
        binaries = Path(sys.executable).parent
        self.environment = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder)}
        self.environment.pop("OTTLA_BOOTSTRAP_SERVER", None)
        self.namespace = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.namespace.stdout is not None
        assert self.namespace.stdout.readline() == b"up\n"

    def inside(self, *command: str) -> list[str]:
        return ["nsenter", f"--net=/proc/{self.namespace.pid}/ns/net", *command]

    def read(self, language: str, text: str) -> None:
        """Run one block."""
        if language == "python":
            self.run(text.partition("\n")[0], self.inside(sys.executable, "-c", text))
            return
        if language == "toml":
            (self.folder / f"{tomllib.loads(text)['name']}.toml").write_text(text)
            return
        for command in commands(text):
            if is_elsewhere(command) or (command.startswith(LOAD) and command in self.typed):
                continue
            if command.startswith("ottla start"):
                self.start(command)
            elif FOR_EVER in command:
                self.interrupt(command)
            else:
                self.run(command, self.inside("bash", "-c", command))

    def run(self, name: str, command: list[str]) -> None:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=self.command_s,
            check=False,
        )
        assert done.returncode == 0, f"{name}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert "Traceback" not in done.stderr, done.stderr
        assert (done.stdout + done.stderr).strip(), f"{name} printed nothing"
        self.typed.append(name)

    def interrupt(self, command: str) -> None:
        """Send Ctrl-C after the first run, while the command waits for the next one."""
        process = subprocess.Popen(
            self.inside("bash", "-c", f"exec {command}"),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        shown = ""
        while "Schedule: next at" not in shown:
            line = process.stderr.readline()
            assert line, f"{command}\n{shown}"
            shown += line
        process.send_signal(signal.SIGINT)
        output, rest = process.communicate(timeout=self.command_s)
        assert (process.returncode, rest) == (128 + signal.SIGINT, ""), rest
        assert output, f"{command} printed nothing"
        self.typed.append(command)

    def start(self, command: str) -> None:
        self.stop()
        log = self.folder / "start.log"
        with log.open("wb") as stream:
            self.running = subprocess.Popen(
                self.inside("bash", "-c", f"exec {command}"), cwd=self.folder, env=self.environment, stderr=stream
            )
        with log.open() as stream:
            text = ""
            while not READY.search(text):
                assert self.running.poll() is None, f"{command}\n{text}"
                text += stream.readline()
                time.sleep(POLL_S)
        self.typed.append(command)

    def stop(self) -> None:
        if self.running is not None:
            self.running.send_signal(signal.SIGINT)
            assert self.running.wait(READY_S) == 0, (self.folder / "start.log").read_text()[-3000:]
            self.running = None

    def close(self) -> None:
        if self.running is not None:
            self.running.kill()
            self.running.wait()
        self.namespace.communicate()


@pytest.fixture
def reader(tmp_path: Path):
    (tmp_path / "server.properties").write_text(PROPERTIES)
    reader = Reader(tmp_path)
    yield reader
    reader.close()


@pytest.mark.pipeline
@pytest.mark.timeout(1800)
def test_commands_of_readme_and_guides_run(reader: Reader) -> None:
    for page in PAGES:
        for language, text in blocks(page):
            reader.read(language, text)
    reader.stop()
    assert sum(command.startswith("ottla start") for command in reader.typed) == 4
    typed = {command.split()[2] for command in reader.typed if command.startswith(LOAD)}
    assert typed >= {"load", "sql", "stream", "push", "replay", "snapshot"}
    assert any(FOR_EVER in command for command in reader.typed)


def test_every_block_runs_in_some_test() -> None:
    """Pages beside those above: their own tests run them (`ELSEWHERE`, `OWN_TESTS`)."""
    for page in OTHER_PAGES:
        assert all(is_elsewhere(text) for _, text in blocks(page)), page
    rest = {page.stem for page in GUIDES.glob("*.md")} - {page.stem for page in (*PAGES, *OTHER_PAGES)}
    assert rest == OWN_TESTS.keys()
    assert all((ROOT / path).exists() for path in OWN_TESTS.values())
