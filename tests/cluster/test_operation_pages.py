"""Procedures of the operator's pages run as printed, with the addresses and names of the test."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.app.ports import free_ports
from ottla.client.admin.cluster import Cluster
from ottla.testing import Broker

from ..printed_page import DOCS, PrintedPage, printed_blocks
from ..terminal import Terminal
from .logged_process import LoggedProcess
from .nodes import Node, Nodes, eventually, of_the_quorum

LAG, DISK, DAMAGE, CONNECTIONS, UNDER_REPLICATED, LEADERLESS, CERTIFICATES = (
    f"operations/runbooks/{name}.md"
    for name in (
        *("consumer-lag", "disk-full", "damaged-data", "connection-limits", "under-replicated-partitions"),
        *("leaderless-partition", "certificate-expiry"),
    )
)
SECURITY, MONITORING, UPGRADE, CLUSTER = (
    *(f"operations/{name}.md" for name in ("security", "monitoring", "upgrade")),
    "guides/cluster.md",
)
ELSEWHERE = {
    "ottla start --data-dir": "tests/app/test_start.py",
    "ottla start --config server.properties": "tests/app/test_start.py",
    "ottla start --brokers 3": "tests/pipeline/test_readme.py",
    "ottla format --config host1.properties": "tests/cluster/test_three_hosts.py",
    "useradd": "tests/app/test_deploy.py",
    "apt install ./ottla": "tests/suite/test_debian.py",
    "docker build": "tests/app/test_deploy.py",
    "ottla top -b": "tests/cli/test_top.py",
    "pip install": "tests/clients/test_client_metrics.py",
    "ottla mirror": "tests/clients/test_mirror_page.py",
    "ottla pipeline load --topics views --table": "tests/pipeline/test_dead_letters.py",
    "set -o pipefail": "tests/pipeline/test_dead_letters.py",
    "ottla pipeline redrive": "tests/pipeline/test_redrive.py",
    "ottla topic create views-repaired": "tests/pipeline/test_dead_letters.py",
}
"""Blocks that do not run here, by their first characters, and the test that runs the same commands or parts of them."""
OTHER_PAGES = {"operations/backup.md"}
"""Pages with tests of their own."""
TIMEOUT_S = 60.0


def command(servers: str, *arguments: str, stdin: str = "") -> str:
    """The output of an `ottla` command that no page prints."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *arguments, "-b", servers],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with five records in each of two partitions of `orders`, which the group `billing` has read."""
    with Broker(arguments=["--metrics-port", "0"]) as started:
        servers = started.bootstrap_servers
        command(servers, "topic", "create", "orders", "--partitions", "2")
        for partition in ("0", "1"):
            command(servers, "produce", "orders", "-q", "--partition", partition, stdin="an order\n" * 5)
        command(servers, "consume", "orders", "-g", "billing", "--from-beginning", "--stop-at-end")
        yield started


def page(name: str, folder: Path, broker: Broker, **names: str) -> PrintedPage:
    return PrintedPage(
        name,
        folder,
        {"GROUP": "billing", "TOPIC": "orders", "T": "orders", "PID": str(broker.pid), **names},
        OTTLA_BOOTSTRAP_SERVER=broker.bootstrap_servers,
    )


def test_lagging_group_and_open_transaction(tmp_path: Path, broker: Broker) -> None:
    runbook = page(LAG, tmp_path, broker, N="3", ID="ledger")
    assert "billing" in runbook.run_block("ottla group describe GROUP")
    assert runbook.run("ottla consume TOPIC --partition 0 --offset N --max 1") == "an order\n"
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "ledger"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    assert re.search(r"^ledger .*Ongoing", runbook.run("ottla txn list"), re.MULTILINE)
    runbook.run("ottla txn terminate ID")
    eventually(lambda: "Ongoing" not in runbook.run("ottla txn list"), "the transaction has ended", TIMEOUT_S)
    runbook.run_block("ottla group reset-offsets GROUP T --to-latest")
    assert "Stable" not in runbook.run("ottla group members GROUP")


def test_almost_full_disk_and_noisy_client(tmp_path: Path, broker: Broker) -> None:
    runbook = page(DISK, tmp_path, broker)
    largest = runbook.run_block("ottla log dirs").splitlines()[-1].split("\t")
    assert largest[2] in ("orders", "__consumer_offsets", "__transaction_state")
    runbook.run_block("ottla quota describe")
    assert command(broker.bootstrap_servers, "quota", "describe").count("producer_byte_rate") == 1
    runbook.run_block("ottla config alter topic TOPIC")
    runbook.run("ottla topic trim TOPIC --before-time 2026-01-31T12:00:00Z")
    command(broker.bootstrap_servers, "config", "alter", "topic", "orders", "--delete", "retention.ms")
    assert "Removed producer_byte_rate" in runbook.run("ottla quota remove --default user --producer-byte-rate")
    quotas = page(SECURITY, tmp_path, broker)
    quotas.run_block("ottla quota set --default user")
    quotas.run_block("ottla quota set --user bob")
    assert "request_percentage" in quotas.run("ottla quota describe --user bob")
    assert int(page(CONNECTIONS, tmp_path, broker).run_block("ls /proc/PID/fd").split()[0]) > 10


def test_metrics_of_clients_are_subscribed(tmp_path: Path, broker: Broker) -> None:
    names = {"localhost:9092": broker.bootstrap_servers, "127.0.0.1:9404": str(broker.ready["metrics"])}
    monitoring = page(MONITORING, tmp_path, broker, **names)
    assert "producers" in monitoring.run_block("ottla config alter client-metrics")
    assert "billing" in monitoring.run("ottla top -b localhost:9092 --once --view groups")


def test_damaged_partition_without_other_replicas(tmp_path: Path) -> None:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        command(servers, "topic", "create", "orders", "-c", "internal.segment.bytes=1500")
        for number in range(4):
            command(servers, "produce", "orders", "-q", stdin=f"{number}{'x' * 1000}\n")
        assert broker.stop() == 0
        directory = broker.data_dir / "orders-0"
        segment = min(directory.glob("*.log"))
        content = bytearray(segment.read_bytes())
        content[-1] ^= 1
        segment.write_bytes(content)
        runbook = PrintedPage(
            DAMAGE,
            tmp_path,
            {"DIR": str(broker.data_dir), "TOPIC:PARTITION": "orders:0", "N": "1"},
            OTTLA_BOOTSTRAP_SERVER=servers,
        )
        assert segment.name in runbook.run("ottla log scrub DIR", code=1)
        shutil.copytree(directory, tmp_path / "copy")
        broker.start()
        runbook.run("ottla topic trim TOPIC:PARTITION --before-offset N")
        left = command(servers, "consume", "orders", "--from-beginning", "--stop-at-end").splitlines()
        assert [line[0] for line in left] == ["1", "2", "3"]


def test_certificate_is_replaced_without_a_restart(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    init = [sys.executable, "-m", "ottla", "security", "init", "keys", "--days", "20"]
    subprocess.run(init, cwd=tmp_path, check=True, capture_output=True, timeout=TIMEOUT_S)
    installed = tmp_path / "etc" / "server.pem"
    installed.parent.mkdir()
    shutil.copy(tmp_path / "keys" / "server.pem", installed)
    common = (tmp_path / "keys" / "cluster.properties").read_text()
    replaced = r"^(security\.inter\.broker\.protocol|ssl\.keystore\.location)=.*\n"
    common = re.sub(replaced, "", common, flags=re.MULTILINE)
    (tmp_path / "server.properties").write_text(
        f"{common}listeners=CLIENT://localhost:{port}\nlistener.security.protocol.map=CLIENT:SSL\n"
        f"inter.broker.listener.name=CLIENT\nssl.keystore.location={installed}\n"
    )
    broker = LoggedProcess(tmp_path / "log")
    ready = tmp_path / "ready.json"
    start = [sys.executable, "-m", "ottla", "start", "--config", str(tmp_path / "server.properties")]
    broker.run([*start, "--data-dir", str(tmp_path / "data"), "--ready-file", str(ready)])
    try:
        eventually(ready.exists, "the broker is ready", TIMEOUT_S)
        names = {
            "host1:9092": f"localhost:{port}",
            "/etc/ottla/server.pem": str(installed),
            "admin.properties": "keys/admin.properties",
        }
        admin = {
            "OTTLA_BOOTSTRAP_SERVER": f"localhost:{port}",
            "OTTLA_COMMAND_CONFIG": str(tmp_path / "keys" / "admin.properties"),
        }
        runbook = PrintedPage(CERTIFICATES, tmp_path, names, **admin)
        output = runbook.run_block("ottla cluster describe -b host1:9092 --command-config")
        assert "the certificate of broker 1 expires" in output
        shutil.copy(tmp_path / "keys" / "server.pem", installed)
        security = PrintedPage(SECURITY, tmp_path, names, **admin)
        assert "No certificate to renew" in security.run_block("ottla security renew ./keys")
        security.run_block("ottla config alter broker 1 --set listener.name.client.ssl.keystore.location")
        loaded = "listener CLIENT loaded new certificates or TLS settings"
        eventually(lambda: loaded in broker.log_text(), "the broker has read the certificate", TIMEOUT_S)
        described = "ottla cluster describe -b host1:9092 --command-config admin.properties"
        assert "expires" not in runbook.run(described)
        security.run("ottla config alter broker 1 --delete listener.name.client.ssl.keystore.location")
    finally:
        broker.kill()


@pytest.fixture
def four_nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Three voters and a broker, at the feature levels of Apache Kafka 3.9."""
    nodes = Nodes(tmp_path, 4, voters=3, first=("--release-version", "3.9"))
    nodes.start()
    yield nodes
    nodes.close()


def cluster_page(name: str, nodes: Nodes, **names: str) -> PrintedPage:
    return PrintedPage(name, nodes.folder, names, OTTLA_BOOTSTRAP_SERVER=nodes.bootstrap_servers)


def wait_in_sync(nodes: Nodes) -> None:
    """Wait as the pages say, until `ottla cluster describe` shows 0 for `under replicated`."""
    guide = cluster_page(CLUSTER, nodes)
    whole = re.compile(r"under replicated: +0$", re.MULTILINE)
    eventually(lambda: whole.search(guide.run("ottla cluster describe")), "all are in sync", TIMEOUT_S)


@of_the_quorum(reason="the procedures change the quorum")
def test_upgrade_lost_disk_lost_leader_and_removal_of_a_broker(four_nodes: Nodes) -> None:
    nodes = four_nodes
    servers = nodes.bootstrap_servers
    command(servers, "topic", "create", "orders", "-p", "4", "-r", "3", "-c", "min.insync.replicas=2")
    command(servers, "produce", "orders", "-q", stdin="an order\n" * 100)
    upgrade_one_node(nodes)
    replace_the_disk(nodes, nodes[3])
    elect_an_unclean_leader(nodes)
    remove_broker_2(nodes)
    consumed = command(servers, "consume", "orders", "--from-beginning", "--stop-at-end")
    assert consumed == "an order\n" * 100


def upgrade_one_node(nodes: Nodes) -> None:
    """The new version is the present one; feature levels rise from those of 3.9."""
    upgrade = cluster_page(UPGRADE, nodes)
    before = upgrade.run("ottla cluster features describe")
    assert "3.9-IV0" in before
    wait_in_sync(nodes)
    assert nodes[4].stop() == 0
    nodes[4].start()
    assert re.search(r"^ *4 .* live ", upgrade.run("ottla cluster brokers"), re.MULTILINE)
    wait_in_sync(nodes)
    upgrade.run("ottla cluster quorum")
    upgrade.run("ottla cluster elect")
    assert printed_blocks(UPGRADE)[0] == ["ottla cluster features describe", "ottla cluster features upgrade"]
    with Terminal({"OTTLA_BOOTSTRAP_SERVER": nodes.bootstrap_servers}, "cluster", "features", "upgrade") as terminal:
        terminal.press("y\n")
        assert terminal.wait() == 0, terminal.text
    assert "3.9-IV0" not in upgrade.run("ottla cluster features describe")


def replace_the_disk(nodes: Nodes, node: Node) -> None:
    guide = cluster_page(CLUSTER, nodes, **{"node3.properties": str(node.config)})
    cluster_id = re.findall(r"cluster id: +(\S+)", guide.run("ottla cluster describe"))[0]
    node.kill()
    shutil.rmtree(node.data_dir)
    guide = cluster_page(CLUSTER, nodes, **{"node3.properties": str(node.config), "CLUSTER": cluster_id})
    assert "directory.id=" in guide.run(
        "ottla format --config node3.properties --cluster-id CLUSTER --no-initial-controllers"
    )
    node.start()

    def replaceable() -> bool:
        quorum = guide.run("ottla cluster quorum")
        return bool(re.search(r"^ *3 +observer +live +\d+ +0 ", quorum, re.MULTILINE)) and "Voter 3 is gone" in quorum

    eventually(replaceable, "node 3 is an observer without lag, and a voter that is gone", TIMEOUT_S)
    guide.run("ottla cluster voters replace 3")
    quorum = guide.run("ottla cluster quorum")
    assert re.findall(r"^ *\d +(?:leader|voter) +(\w+)", quorum, re.MULTILINE) == ["live"] * 3
    wait_in_sync(nodes)


def elect_an_unclean_leader(nodes: Nodes) -> None:
    """A partition on node 4 and a voter: the voter dies first and lacks the last record."""
    servers = nodes.bootstrap_servers
    command(servers, "topic", "create", "doomed", "-p", "12", "-r", "2")
    with Cluster(servers) as client:
        partition = next(each for each in client.topics.get("doomed").partitions if 4 in each.replicas)
        position = f"doomed:{partition.index}"
        (voter,) = (nodes[each] for each in partition.replicas if each != 4)

        def isr() -> tuple[int, ...]:
            return client.topics.get("doomed").partitions[partition.index].isr

        voter.kill()
        eventually(lambda: isr() == (4,), "only node 4 is in sync", TIMEOUT_S)
        command(servers, "produce", "doomed", "-q", "--partition", str(partition.index), stdin="lost\n")
        nodes[4].kill()
        voter.start()
        runbook = cluster_page(LEADERLESS, nodes, **{"TOPIC:PARTITION": position, "TOPIC": "doomed"})
        described = f"doomed-{partition.index} has no leader: "
        eventually(lambda: described in runbook.run("ottla cluster describe"), "it has no leader", TIMEOUT_S)
        runbook.run("ottla topic describe TOPIC")
        assert "Elected a leader" in runbook.run_block("ottla cluster elect TOPIC:PARTITION --unclean")
        read = ("--partition", str(partition.index), "--from-beginning", "--stop-at-end")
        assert command(servers, "consume", "doomed", *read) == ""
    nodes[4].start()
    wait_in_sync(nodes)


def remove_broker_2(nodes: Nodes) -> None:
    runbook = cluster_page(UNDER_REPLICATED, nodes)
    assert "under-replicated" not in runbook.run_block("ottla cluster describe --problems")
    assert "Dry run" in runbook.run("ottla cluster decommission 2")
    assert "Broker 2 has no replicas" in runbook.run("ottla cluster decommission 2 --execute")
    assert "Nothing to move." in runbook.run("ottla cluster decommission 2")
    assert nodes[2].stop() == 0
    brokers = cluster_page(UPGRADE, nodes)
    fenced = re.compile(r"^ *2 .* fenced ", re.MULTILINE)
    eventually(lambda: fenced.search(brokers.run("ottla cluster brokers")), "broker 2 is fenced", TIMEOUT_S)
    assert "voters remove 2" in runbook.run("ottla cluster decommission 2 --unregister")
    runbook.run("ottla cluster voters remove 2")
    quorum = brokers.run("ottla cluster quorum")
    assert sorted(re.findall(r"^ *(\d) +(?:leader|voter) ", quorum, re.MULTILINE)) == ["1", "3"]


def test_every_block_of_the_operations_pages_runs_in_some_test() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    covered = (*ELSEWHERE, *re.findall(r'\.run(?:_block)?\(\s*"([^"]+)"', here))
    pages = sorted(str(path.relative_to(DOCS)) for path in (DOCS / "operations").rglob("*.md"))
    missing = [
        f"{page}: {block[0]}"
        for page in pages
        if page not in OTHER_PAGES
        for block in printed_blocks(page)
        if not block[0].startswith(covered)
    ]
    assert missing == []
    assert all((DOCS.parent / path).exists() for path in ELSEWHERE.values())
