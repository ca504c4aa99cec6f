"""The commands of the pages about mirrors run as printed between real brokers, which have other addresses."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.testing import Broker

from ..printed_page import printed_blocks

PAGES = ("guides/mirror.md", "operations/mirror.md")
SOURCE_HOSTS, TARGET_HOSTS = ("old:9092", "paris:9092"), ("new:9092", "berlin:9092")
TOPICS = ("clicks", "orders", "payments")
CONFIGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
OTTLA = (sys.executable, "-m", "ottla")
COMMAND_S = 120
POLL_S = 0.1


@pytest.fixture(scope="module")
def source() -> Iterator[Broker]:
    """A broker with topics and a record in each."""
    with Broker(configs=CONFIGS) as broker:
        for topic in TOPICS:
            ottla("topic", "create", topic, "-b", broker.bootstrap_servers)
            ottla("produce", topic, "-b", broker.bootstrap_servers, stdin=f"a record of {topic}\n")
        yield broker


def ottla(*arguments: str, stdin: str = "") -> str:
    """Run a command and return its output."""
    done = subprocess.run(
        [*OTTLA, *arguments], input=stdin, capture_output=True, text=True, timeout=COMMAND_S, check=False
    )
    assert done.returncode == 0, f"{shlex.join(arguments)}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


def copied(cluster: Cluster, topics: set[str]) -> bool:
    """Whether all topics exist with a record."""
    positions = {(topic, 0): -1 for topic in topics}
    return topics <= set(cluster.topics.all()) and all(
        end.offset > 0 for end in cluster.records.list_offsets(positions).values()
    )


@pytest.mark.parametrize("command", [each for page in PAGES for block in printed_blocks(page) for each in block])
def test_mirror_command_of_the_page_copies_records(command: str, source: Broker) -> None:
    """A command without `--once` runs until Ctrl-C."""
    with Broker(configs=CONFIGS) as target, Cluster(target.bootstrap_servers) as cluster:
        words = shlex.split(command)[1:]
        addresses = dict.fromkeys(SOURCE_HOSTS, source.bootstrap_servers)
        addresses |= dict.fromkeys(TARGET_HOSTS, target.bootstrap_servers)
        words = [addresses.get(word, word) for word in words]
        pattern = words[words.index("--topics") + 1]
        prefix = "paris." if "--rename" in words else ""
        expected = {f"{prefix}{topic}" for topic in TOPICS if re.fullmatch(pattern, topic)}
        if "--once" in words:
            ottla(*words)
            assert copied(cluster, expected)
            return
        mirror = subprocess.Popen([*OTTLA, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + COMMAND_S
        while not copied(cluster, expected):
            assert mirror.poll() is None, mirror.communicate()
            assert time.monotonic() < deadline
            time.sleep(POLL_S)
        mirror.send_signal(signal.SIGINT)
        _, errors = mirror.communicate(timeout=COMMAND_S)
        assert mirror.returncode == 128 + signal.SIGINT, errors
        assert "Traceback" not in errors
