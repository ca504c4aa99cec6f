"""`ottla top` while brokers of three, and then all of them, go away and return."""

from __future__ import annotations

import signal

from tests.terminal import Terminal

from ottla import Admin, Producer

from .nodes import Nodes


def test_lost_brokers_are_named_and_the_screen_recovers(nodes: Nodes) -> None:
    with Admin(nodes.bootstrap_servers) as admin:
        admin.create_topic("views", partitions=6, replication_factor=3)
    second = nodes.nodes[1]
    environment = {"OTTLA_BOOTSTRAP_SERVER": nodes.bootstrap_servers}
    with Terminal(environment, "top", "--view", "brokers", "--interval", "0.2") as terminal:
        terminal.wait_for(lambda lines: "3/3 brokers" in lines[0] and not lines[2].startswith("!"), "three brokers")
        name = f"! broker 2 ({second.address})"
        second.kill()
        lines = terminal.wait_for(lambda lines: lines[2].startswith(name), "the killed broker")
        assert "2/3 brokers" in lines[0]
        with Producer(nodes.bootstrap_servers, {"acks": "all"}) as producer:
            producer.send("views", "x")
        second.start()
        terminal.wait_for(lambda lines: "3/3 brokers" in lines[0] and not lines[2].startswith("!"), "its return")

        for node in nodes.nodes:
            node.kill()
        terminal.wait_for(lambda lines: lines[2].startswith("! no response, showing earlier values: "), "the outage")
        for node in nodes.nodes:
            node.start(wait=False)
        terminal.wait_for(lambda lines: "3/3 brokers" in lines[0] and not lines[2].startswith("!"), "the cluster")
        terminal.press("q")
        assert terminal.wait() == 0


def test_broker_that_hangs_does_not_stop_the_others(steady: Nodes) -> None:
    first = steady.nodes[0]
    environment = {"OTTLA_BOOTSTRAP_SERVER": steady.bootstrap_servers}
    with Terminal(environment, "top", "--view", "brokers", "--interval", "0.2") as terminal:
        terminal.wait_for(lambda lines: "3/3 brokers" in lines[0], "three brokers")
        assert first.process is not None
        first.process.send_signal(signal.SIGSTOP)
        try:
            lines = terminal.wait_for(
                lambda lines: lines[2].startswith(f"! broker 1 ({first.address}) does not respond"), "the hung broker"
            )
            assert "2/3 brokers" in lines[0]
            terminal.press("2")
            terminal.wait_for(lambda lines: "by rec/s" in lines[1], "another view")
        finally:
            first.process.send_signal(signal.SIGCONT)
        terminal.wait_for(lambda lines: "3/3 brokers" in lines[0] and not lines[2].startswith("!"), "its return")
