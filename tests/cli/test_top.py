"""`ottla top`: frames, keys, and output for machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.terminal import ALTERNATE_SCREEN, NORMAL_SCREEN, Terminal

from ottla import Admin, Consumer, Producer
from ottla.cli.top_screen import ScreenState, frame
from ottla.cli.top_session import _keys
from ottla.cli.top_views import BROKERS, CLIENTS, GROUPS, TOPICS, VIEWS, TopReading, View, short_number
from ottla.client.views.activity import BrokerActivity, ClusterActivity, GroupActivity, TopicActivity
from ottla.testing import Broker

EVIL = "g\x1b]0;owned\x07"


def activity(topics: int = 3) -> ClusterActivity:
    brokers = [BrokerActivity(1, "host:9092", None, "live", True, 3, 3, 0, 5.0, None)]
    found = [TopicActivity(f"t{number:03}", False, 3, 0, 0, float(number), 10**number) for number in range(topics)]
    return ClusterActivity("c", 5.0, brokers, found, [GroupActivity(EVIL, None, None, 1, 7, None, None, None)], [])


def screen(
    view: View, *, keys: str = "", width: int = 80, height: int = 24, outage: str | None = None, topics: int = 3
) -> list[str]:
    """The lines of a frame after `keys`."""
    found = activity(topics)
    state = ScreenState(view)
    for key in _keys(keys):
        state.press(key)
    return [line.plain for line in frame(TopReading(found, None, []), outage, "12:00:00", state, (width, height))]


@pytest.mark.parametrize("view", VIEWS, ids=[view.name for view in VIEWS])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (132, 50), (20, 4), (1, 1)])
def test_frame_has_exactly_the_size_of_the_terminal(view: View, width: int, height: int) -> None:
    lines = screen(view, width=width, height=height, outage="no route\nto host", topics=200)
    assert len(lines) == height
    assert max(map(len, lines)) <= max(width, 10)
    assert all(line.isprintable() for line in lines)


def test_topics_are_sorted_by_rate_then_by_the_chosen_column() -> None:
    def order(keys: str) -> list[str]:
        return [line[:4] for line in screen(TOPICS, keys=keys) if line.startswith("t0")]

    assert order("") == ["t002", "t001", "t000"]
    assert order("r") == ["t000", "t001", "t002"]
    assert order("sssss") == ["t000", "t001", "t002"], "by name"
    assert order("ssss") == ["t002", "t001", "t000"], "by bytes"


def test_scrolling_stops_at_the_last_row() -> None:
    assert screen(TOPICS, topics=100)[3].startswith("t099")
    assert screen(TOPICS, keys="j\x1b[B\x1b[6~", topics=100)[3].startswith("t087")
    assert screen(TOPICS, keys="f" * 50, topics=100)[-2].startswith("t000")
    assert screen(TOPICS, keys="jjk", topics=100)[3].startswith("t098")


def test_outage_is_shown_above_earlier_values() -> None:
    lines = screen(TOPICS, outage="cannot connect to host:9092: refused")
    assert lines[2].startswith("! no response, showing earlier values: cannot connect to host:9092")
    assert lines[4].startswith("t002")


def test_names_are_shown_without_control_characters() -> None:
    assert screen(GROUPS)[3].startswith(r"g\x1b]0;owned\x07")


def test_clients_without_metrics_name_the_option() -> None:
    assert "--metrics HOST:PORT" in " ".join(screen(CLIENTS))


@pytest.mark.parametrize("key", ["²", "\x1b", "\x1b[99~", "5", "0", "é", "\x00"])
def test_unknown_key_changes_nothing(key: str) -> None:
    assert screen(BROKERS, keys=key) == screen(BROKERS)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "-"),
        (0, "0"),
        (0.44, "0.4"),
        (12, "12"),
        (999.4, "999"),
        (999.6, "1.0k"),
        (8100, "8.1k"),
        (10**20, "100000P"),
    ],
)
def test_number_fits_its_column(number: float | None, text: str) -> None:
    assert short_number(number) == text


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with a topic of four records, and a group that has read one of them."""
    with Broker(arguments=["--metrics-port", "0"]) as running:
        servers = running.bootstrap_servers
        quota = [*("quota", "set", "--user", "ANONYMOUS", "--default", "client-id"), "--producer-byte-rate", "1e12"]
        subprocess.run([*PROGRAM, *quota, "-b", servers], check=True)
        with Admin(servers) as admin:
            admin.create_topic("views", partitions=2)
        send(servers, 4)
        settings = {"group.id": "readers", "auto.offset.reset": "earliest"}
        with Consumer(servers, settings, topics="views") as consumer:
            next(iter(consumer))
            consumer.commit()
        yield running


PROGRAM = [sys.executable, "-m", "ottla"]


def send(servers: str, count: int) -> None:
    with Producer(servers) as producer:
        for number in range(count):
            producer.send("views", str(number), partition=number % 2)


@contextmanager
def traffic(servers: str) -> Iterator[None]:
    """Records without a pause, since a rate is on the screen only until the next refresh."""
    stop = threading.Event()

    def produce() -> None:
        while not stop.is_set():
            send(servers, 10)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def environment(broker: Broker) -> dict[str, str]:
    return {"OTTLA_BOOTSTRAP_SERVER": broker.bootstrap_servers}


def rate_of(lines: list[str], name: str) -> str:
    """The second column of a row; empty without one."""
    rows = [line.split() for line in lines if line.startswith(name)]
    return rows[0][1] if rows else ""


def test_topics_by_rate_on_a_terminal_of_80_columns(broker: Broker) -> None:
    with Terminal(environment(broker), "top", "--interval", "0.2") as terminal:
        terminal.wait_for(lambda lines: rate_of(lines, "views") == "0", "the idle topic")
        with traffic(broker.bootstrap_servers):
            lines = terminal.wait_for(lambda lines: rate_of(lines, "views") not in ("", "0", "-"), "a rate")
        assert len(lines) == 24
        assert max(map(len, lines)) <= 80
        terminal.press("3")
        lines = terminal.wait_for(lambda lines: any(line.startswith("readers") for line in lines), "the group")
        (row,) = [line.split() for line in lines if line.startswith("readers")]
        assert row[1] in ("Stable", "Empty")
        assert row[2] not in ("0", "-")
        terminal.press("\t")
        terminal.wait_for(lambda lines: any("HOST:PORT" in line for line in lines), "the view of clients")
        terminal.press("1s")
        terminal.wait_for(lambda lines: "by address" in lines[1] and broker.bootstrap_servers in lines[3], "brokers")
        assert terminal.modes != terminal.before
        terminal.press("q")
        assert terminal.wait() == 0
        assert terminal.modes == terminal.before
        assert terminal.text.count(ALTERNATE_SCREEN) == terminal.text.count(NORMAL_SCREEN) == 1


def test_interrupt_restores_the_terminal(broker: Broker) -> None:
    with Terminal(environment(broker), "top") as terminal:
        terminal.wait_for(lambda lines: rate_of(lines, "views") != "", "the topic")
        terminal.process.terminate()
        assert terminal.wait() == 0
        assert terminal.modes == terminal.before
        assert NORMAL_SCREEN in terminal.text
        assert "Traceback" not in terminal.text


def run(broker: Broker, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, "top", *arguments],
        env={**os.environ, **environment(broker)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_json_has_exact_values_and_clients(broker: Broker) -> None:
    done = run(broker, "--once", "--json", "--interval", "0.1", "--metrics", broker.ready["metrics"])
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["problems"] == []
    assert {each["name"]: each["partitions"] for each in found["topics"]}["views"] == 2
    assert [each["state"] for each in found["brokers"]] == ["live"]
    (group,) = found["groups"]
    assert (group["group_id"], group["consumed_per_s"]) == ("readers", 0.0)
    assert group["lag"] >= 3
    assert {"ANONYMOUS"} == {each["user"] for each in found["clients"]}


def test_table_of_one_view_for_a_pipe(broker: Broker) -> None:
    done = run(broker, "--once", "--view", "topics", "--interval", "0.1")
    assert done.stdout.splitlines()[2].split() == [
        "TOPIC",
        "REC/S",
        "PARTITIONS",
        "UNDER",
        "REPL",
        "NO",
        "LEADER",
        "BYTES",
    ]
    assert "\x1b" not in done.stdout


def test_metrics_that_cannot_be_read_are_named(broker: Broker, tmp_path: Path) -> None:
    done = run(broker, "--once", "--view", "clients", "--interval", "0.1", "--metrics", broker.bootstrap_servers)
    assert f"! metrics of {broker.bootstrap_servers}: " in done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "ottla top needs a terminal: use --once or --json"),
        (("--once", "--metrics", "host"), "'host' is not an address of the form host:port"),
        (("--once", "--metrics-token-file", "/no/such"), "--metrics-token-file"),
    ],
)
def test_mistake_is_one_sentence(broker: Broker, arguments: tuple[str, ...], text: str) -> None:
    done = run(broker, *arguments)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr
