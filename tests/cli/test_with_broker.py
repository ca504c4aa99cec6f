"""The commands on a real broker."""

from __future__ import annotations

import itertools
import json
import os
import pty
import re
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from ottla import full_version
from ottla.app.main import cli
from ottla.cli.cluster import cluster
from ottla.cli.config import config
from ottla.cli.consume import consume
from ottla.cli.group import group
from ottla.cli.log import log
from ottla.cli.produce import produce
from ottla.cli.quota import quota
from ottla.cli.topic import topic
from ottla.client.admin.cluster import Cluster
from ottla.common.config.properties import load_properties
from ottla.record.batch import iter_batches

from ..raw_headers import append_raw_headers

NUMBERS = itertools.count()
WAIT_S = 120


@pytest.fixture
def name() -> str:
    return f"cli-{next(NUMBERS)}"


@pytest.fixture
def servers(ottla_broker) -> str:
    return ottla_broker.bootstrap_servers


@pytest.fixture
def environment(ottla_broker):
    return {**os.environ, "OTTLA_BOOTSTRAP_SERVER": ottla_broker.bootstrap_servers}


def ottla(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ottla", *arguments]


def test_topic_creation_failure_does_not_affect_others(run, name):
    result = run(topic, "create", f"{name}-a", f"{name}-a", "no/name", f"{name}-b", "--json", exit_code=1)
    assert [row["name"] for row in json.loads(result.stdout)] == [f"{name}-a", f"{name}-b"]
    assert f"{name}-a" in result.stderr
    assert "no/name" in result.stderr


def test_the_life_of_a_topic(run, name):
    assert run(topic, "create", name, "-p", "3", "-c", "retention.ms=5000").stdout == f"Created topic {name}.\n"
    listed = {entry["name"]: entry for entry in json.loads(run(topic, "list", "--json").stdout)}
    assert (listed[name]["partitions"], listed[name]["replication_factor"]) == (3, 1)
    assert len(listed[name]["topic_id"]) == 22
    assert name in run(topic, "list").stdout

    described = json.loads(run(topic, "describe", name, "--json").stdout)
    assert described["configs"] == {"retention.ms": "5000"}
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
    assert all((p["start"], p["end"], p["bytes"]) == (0, 0, 0) for p in described["partitions"])
    assert described["partitions"][0]["isr"] == [described["partitions"][0]["leader"]]
    text = run(topic, "describe", name).stdout
    assert "retention.ms = 5000" in text

    run(
        topic,
        "alter",
        name,
        "--partitions",
        "5",
        "--config",
        "segment.bytes=1048576",
        "--delete-config",
        "retention.ms",
    )
    described = json.loads(run(topic, "describe", name, "--json").stdout)
    assert described["configs"] == {"segment.bytes": "1048576"}
    assert len(described["partitions"]) == 5

    assert run(topic, "delete", name).stdout == f"Deleted topic {name}.\n"
    assert name not in run(topic, "list").stdout
    assert name in run(topic, "delete", name, exit_code=1).stderr
    run(topic, "delete", name, "--if-exists")


def test_changes_are_printed_as_json(run, name):
    (created,) = json.loads(run(topic, "create", name, "-p", "2", "--json").stdout)
    assert (created["name"], created["partitions"], created["replication_factor"]) == (name, 2, 1)
    assert created["created"] is True
    (again,) = json.loads(run(topic, "create", name, "--if-not-exists", "--json").stdout)
    assert again == {**created, "created": False}
    altered = json.loads(run(topic, "alter", name, "-p", "3", "-c", "retention.ms=5000", "--json").stdout)
    assert (altered["partitions"], altered["set"], altered["deleted"]) == (3, {"retention.ms": "5000"}, [])
    changed = json.loads(run(config, "alter", "topic", name, "--delete", "retention.ms", "--dry-run", "--json").stdout)
    assert (changed["executed"], changed["changes"]) == (
        False,
        [{"config": "retention.ms", "operation": "delete", "value": None}],
    )
    assert json.loads(run(topic, "delete", name, "--json").stdout) == {"deleted": [name]}


def test_offsets_and_trimming(run, name):
    run(topic, "create", name, "-p", "2")
    run(produce, name, "-p", "0", "-q", stdin="".join(f"a{i}\n" for i in range(10)))
    run(produce, name, "-p", "1", "-q", stdin="b\n")
    assert run(topic, "offsets", name).stdout.splitlines()[1:] == [
        f"{name}          0      0   10",
        f"{name}          1      0    1",
    ]
    newest = json.loads(run(topic, "offsets", f"{name}:0", "--time", "max-timestamp", "--json").stdout)
    assert [(row["topic"], row["partition"]) for row in newest] == [(name, 0)]
    assert newest[0]["timestamp"] > 0
    assert json.loads(run(topic, "offsets", name, "--time", "2999-01-01", "--json").stdout)[0]["offset"] is None

    assert "exactly one" in run(topic, "trim", name, exit_code=2).stderr
    trimmed = json.loads(run(topic, "trim", f"{name}:0", "--before-offset", "4", "--json").stdout)
    assert trimmed == [{"topic": name, "partition": 0, "was": 0, "start": 4, "end": 10}]
    assert run(consume, name, "--from-beginning", "-e", "-p", "0").stdout.split()[0] == "a4"
    run(topic, "trim", name, "--before-time", "2001-01-01")
    rows = {row["partition"]: row for row in json.loads(run(topic, "offsets", name, "--json").stdout)}
    assert [(rows[index]["start"], rows[index]["end"]) for index in (0, 1)] == [(4, 10), (0, 1)]
    refused = run(topic, "trim", f"{name}:1", "--before-offset", "9", exit_code=1)
    assert f"{name}-1: offset out of range" in refused.stderr.lower()
    run(topic, "trim", name, "--all")
    run(topic, "create", f"{name}-compacted", "--config", "cleanup.policy=compact")
    run(produce, f"{name}-compacted", "--key-separator", ":", "-q", stdin="k:v\n")
    refused = run(topic, "trim", f"{name}-compacted", "--all", exit_code=1)
    assert f"{name}-compacted-0: records are deleted only where cleanup.policy has delete in it" in refused.stderr
    assert run(consume, name, "--from-beginning", "-e").stdout == ""
    named = json.loads(run(topic, "offsets", f"{name}:1", f"{name}:0", "--json").stdout)
    assert [row["partition"] for row in named] == [0, 1]
    named = json.loads(run(topic, "offsets", name, f"{name}:0", "--json").stdout)
    assert [row["partition"] for row in named] == [0, 1]
    assert "no partition 7" in run(topic, "offsets", f"{name}:7", exit_code=1).stderr


def test_the_data_directories(run, name, ottla_broker):
    run(topic, "create", name, "-p", "2")
    run(produce, name, "-p", "1", "-q", stdin="x\n")
    (directory,) = json.loads(run(log, "dirs", "--json").stdout)
    assert directory["path"] == ottla_broker.ready["data_dir"]
    assert directory["error"] is None
    assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
    sizes = {(row["topic"], row["partition"]): row["bytes"] for row in directory["replicas"]}
    assert sizes[name, 0] == 0 < sizes[name, 1]
    assert directory["path"] in run(log, "dirs").stdout
    assert name in run(log, "dirs", "--replicas").stdout


def test_misspelled_configs_get_a_suggestion(run, name):
    refused = run(topic, "create", name, "-c", "retention.mss=1", exit_code=1).stderr
    assert refused.endswith("Unknown topic config name: retention.mss; did you mean retention.ms?\n")
    run(topic, "create", name)
    for arguments in (
        (topic, "alter", name, "-c", "cleanup.polcy=delete"),
        (config, "alter", "topic", name, "--set", "cleanup.polcy=delete"),
        (config, "describe", "topic", name, "--key", "cleanup.polcy"),
    ):
        assert "did you mean cleanup.policy?" in run(*arguments, exit_code=1).stderr


def test_misspelled_topics_get_a_suggestion(run, name):
    run(topic, "create", f"{name}-views")
    meant = f"topic '{name}-vews' does not exist; did you mean {name}-views?\n"
    for arguments in (
        (consume, f"{name}-vews"),
        (produce, f"{name}-vews", "-p", "0"),
        (topic, "describe", f"{name}-vews"),
        (topic, "alter", f"{name}-vews", "-p", "9"),
        (topic, "delete", f"{name}-vews"),
        (topic, "trim", f"{name}-vews", "--all"),
        (config, "describe", "topic", f"{name}-vews"),
        (cluster, "reassign", f"{name}-vews", "--replication-factor", "1"),
    ):
        assert run(*arguments, exit_code=1).stderr == f"ottla: {meant}", arguments
    assert run(topic, "describe", "nothing-like-it", exit_code=1).stderr.endswith("does not exist\n")
    produced = run(produce, f"{name}-vews", stdin="x\n")
    assert meant in produced.stderr, "which the broker makes"
    assert "does not exist" not in run(produce, f"{name}-vews", stdin="x\n").stderr


@pytest.mark.parametrize(
    "command",
    [
        ["consume", "TOPIC", "--group", b"\xff"],
        ["consume", b"\xff"],
        ["consume", "TOPIC", "--group", "g", "-X", b"client.rack=\xff"],
        ["produce", b"\xff"],
        ["produce", "TOPIC", "--transactional-id", b"\xff"],
        ["produce", "TOPIC", "-X", b"client.rack=\xff"],
        ["produce", "TOPIC", "-H", b"a\xff=1"],
        ["produce", "TOPIC", "-H", b"a=\xff"],
        ["produce", "TOPIC", "--transactional-id", "t", "-H", b"a\xff=1"],
        ["topic", "create", b"\xff"],
        ["group", "delete", b"\xff"],
    ],
)
def test_invalid_utf8_arguments_are_rejected(run, name, environment, command):
    """librdkafka would abort the process."""
    run(topic, "create", name)
    words = [name if word == "TOPIC" else word for word in command]
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *words],
        input=b"x\n",
        env=environment,
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(b"ottla: an argument is not valid UTF-8: b'")
    assert done.stderr.count(b"\n") == 1


def test_a_header_name_with_a_nul_is_refused(run, name):
    run(topic, "create", name)
    assert "NUL" in run(produce, name, "-H", "a\0b=1", stdin="x\n", exit_code=2).stderr


def test_headers_of_one_name_are_all_sent(run, name):
    run(topic, "create", name)
    run(produce, name, "-H", "a=1", "-H", "b=", "-H", "a=2", "-H", " c = 3", "-q", stdin="x\n")
    read = run(consume, name, "--from-beginning", "-e", "-f", "{headers}").stdout
    assert read == "a=1,b=,a=2, c = 3\n"


def test_a_group_reads_past_a_header_name_that_is_not_utf8(run, name, servers):
    run(topic, "create", name)
    append_raw_headers(servers, name, [("a?", b"1"), ("b", None)])
    read = run(consume, name, "--group", name, "-n", "2", "--from-beginning", "-f", "{value} {headers}").stdout
    assert read == "bad a\ufffd=1,b\ngood \n"


def test_deleting_internal_topics_needs_the_internal_option(run, name):
    run(topic, "create", "__share_group_state")
    refused = run(topic, "delete", "__share_group_state", exit_code=2).stderr
    assert "--internal" in refused
    run(topic, "delete", "__share_group_state", "--internal")


def test_refusals_are_sentences(run, name):
    run(topic, "create", name)
    again = run(topic, "create", name, exit_code=1)
    assert again.stderr.count("\n") == 1
    assert "exists" in again.stderr
    run(topic, "create", name, "--if-not-exists")
    assert run(topic, "create", "bad/name", exit_code=1).stderr
    assert run(topic, "create", f"{name}-x", "-c", "no.such.config=1", exit_code=1).stderr
    assert run(topic, "create", f"{name}-x", "-c", "retention.ms=abc", exit_code=1).stderr
    assert run(topic, "create", f"{name}-x", "-r", "3", exit_code=1).stderr
    assert run(topic, "alter", name, "-p", "1", exit_code=1).stderr
    for command in (["describe"], ["alter", "-p", "9"]):
        assert "does not exist" in run(topic, *command, f"{name}-none", exit_code=1).stderr
    assert "does not exist" in run(consume, f"{name}-none", exit_code=1).stderr
    assert "not 7" in run(consume, name, "-p", "7", exit_code=1).stderr
    assert "not 7" in run(produce, name, "-p", "7", stdin="x\n", exit_code=1).stderr
    assert (
        f"partition {name}-0 is empty, and its next offset is 0, not 9"
        in run(consume, name, "-o", "9", exit_code=1).stderr
    )


def test_configs(run, name):
    run(topic, "create", name)
    run(config, "alter", "topic", name, "--set", "retention.ms=7000", "--set", "cleanup.policy=compact")
    changed = {
        e["name"]: e["value"] for e in json.loads(run(config, "describe", "topic", name, "--changed", "--json").stdout)
    }
    assert (changed["retention.ms"], changed["cleanup.policy"]) == ("7000", "compact")
    run(config, "alter", "topic", name, "--append", "cleanup.policy=delete", "--delete", "retention.ms")
    entries = {e["name"]: e for e in json.loads(run(config, "describe", "topic", name, "--json", "--doc").stdout)}
    assert set(entries["cleanup.policy"]["value"].split(",")) == {"compact", "delete"}
    assert entries["retention.ms"]["value"] == "-1"
    assert entries["retention.ms"]["doc"]
    before = run(config, "describe", "topic", name).stdout
    run(config, "alter", "topic", name, "--set", "retention.ms=1", "--dry-run")
    assert run(config, "describe", "topic", name).stdout == before
    assert run(config, "alter", "topic", name, "--set", "retention.ms=abc", exit_code=1).stderr
    (entry,) = json.loads(run(config, "describe", "broker", "1", "--key", "num.partitions", "--json").stdout)
    assert (entry["name"], entry["value"]) == ("num.partitions", "1")
    assert "broker '99' does not exist" in run(config, "describe", "broker", "99", exit_code=1).stderr


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_in_and_come_out(run, name, ottla_broker, codec):
    run(topic, "create", name)
    lines = b"".join(b"line %d \xff\x00\r.\n" % i for i in range(2500))
    result = run(produce, name, "-z", codec, stdin=lines)
    assert "Produced 2,500 records" in result.stderr
    assert result.stdout == ""
    assert run(consume, name, "--from-beginning", "--stop-at-end").stdout_bytes == lines
    with Cluster(ottla_broker.bootstrap_servers) as cluster:
        batches = list(iter_batches(cluster.records.fetch(name, 0, 0).records))
    assert {batch.compression for batch in batches} == {codec}
    assert batches[0].producer_id >= 0


def test_keys_headers_nulls_and_json(run, name):
    run(topic, "create", name)
    run(
        produce, name, "-k", r"\t", "--null", "NULL", "-H", "source=test", "-H", "x=a=b", "-q",
        stdin="k1\tv1\nNULL\tv2\nk3\tNULL\nk4\t\n",
    )  # fmt: skip
    records = [json.loads(line) for line in run(consume, name, "--from-beginning", "-e", "--json").stdout.splitlines()]
    assert [(record["key"], record["value"]) for record in records] == [
        ("k1", "v1"),
        (None, "v2"),
        ("k3", None),
        ("k4", ""),
    ]
    assert records[0]["headers"] == [{"name": "source", "value": "test"}, {"name": "x", "value": "a=b"}]
    assert [record["offset"] for record in records] == [0, 1, 2, 3]
    assert records[0]["timestamp_type"] == "CreateTime"
    template = r"{partition}:{offset}|{key}|{value}|{headers}"
    assert run(consume, name, "--from-beginning", "-e", "-f", template).stdout.splitlines() == [
        "0:0|k1|v1|source=test,x=a=b",
        "0:1|null|v2|source=test,x=a=b",
        "0:2|k3|null|source=test,x=a=b",
        "0:3|k4||source=test,x=a=b",
    ]


def test_where_to_start_and_stop(run, name):
    run(topic, "create", name, "-p", "2")
    run(produce, name, "-p", "0", "-q", stdin="".join(f"a{i}\n" for i in range(10)))
    run(produce, name, "-p", "1", "-q", stdin="".join(f"b{i}\n" for i in range(3)))
    assert run(consume, name, "-o", "-2", "-e", "-p", "0").stdout == "a8\na9\n"
    assert sorted(run(consume, name, "-o", "-2", "-e").stdout.split()) == ["a8", "a9", "b1", "b2"]
    assert run(consume, name, "-o", "7", "-e", "-p", "0").stdout == "a7\na8\na9\n"
    assert run(consume, name, "-o", "10", "-e", "-p", "0").stdout == ""
    assert run(consume, name, "--from-beginning", "-n", "4", "-p", "0").stdout == "a0\na1\na2\na3\n"
    assert any(  # a longer wait for the first record extends the timeout
        "b2" in run(consume, name, "--from-beginning", "--timeout", seconds).stdout.split()
        for seconds in ("1", "8", "30")
    )
    assert run(consume, name, "-e").stdout == ""
    line = json.loads(run(consume, name, "-o", "5", "-n", "1", "-p", "0", "--json").stdout)
    from_time = run(consume, name, "--timestamp", str(line["timestamp"]), "-e", "-p", "0").stdout.split()
    assert "a5" in from_time
    assert from_time[-1] == "a9"
    assert run(consume, name, "-t", "2999-01-01", "-e").stdout == ""


def test_a_line_without_a_key_fails_after_what_came_before(run, name):
    run(topic, "create", name)
    result = run(produce, name, "-k", ":", stdin="a:1\nb\nc:3\n", exit_code=1)
    assert result.stderr == "ottla: line 2 has no key: ':' not found; correct the line, or omit --key-separator\n"
    assert run(consume, name, "--from-beginning", "-e").stdout == "1\n"


def test_a_file_with_a_last_line_that_is_not_ended(run, name, tmp_path):
    path = tmp_path / "input"
    path.write_bytes(b"one\n\nthree")
    run(topic, "create", name)
    run(produce, name, "--file", str(path))
    assert run(consume, name, "--from-beginning", "-e").stdout == "one\n\nthree\n"


def test_a_record_that_is_too_large_names_the_reason(run, name):
    run(topic, "create", name, "-c", "max.message.bytes=1000")
    result = run(produce, name, stdin="x" * 5000 + "\n", exit_code=1)
    assert result.stderr.startswith("ottla: 1 of 1 record was not delivered: ")
    assert result.stderr.count("\n") == 1


def test_first_undelivered_line_is_named(run, name):
    run(topic, "create", name, "-c", "max.message.bytes=1000")
    lines = "a\nb\n" + "x" * 5000 + "\n"
    result = run(produce, name, "-X", "batch.num.messages=1", stdin=lines, exit_code=1)
    assert result.stderr.startswith("ottla: 1 of 3 records was not delivered: ")
    assert result.stderr.endswith("; the first is line 3\n")
    assert run(consume, name, "--from-beginning", "-e").stdout == "a\nb\n"


def test_other_names_of_commands_and_assignments_work(run, name):
    run(topic, "create", name)
    assert name in run(topic, "ls").stdout
    run(config, "set", "topic", name, "retention.ms=1234")
    assert "1234" in run(config, "get", "topic", name, "--key", "retention.ms").stdout
    assert run(quota, "list").stdout.startswith("USER")
    assert "not of the form NAME=VALUE" in run(config, "set", "topic", name, "retention.ms", exit_code=2).stderr


def test_unknown_dynamic_setting_is_stored_with_a_warning(run):
    result = run(config, "alter", "broker", "1", "--set", "log.retention.mss=1")
    assert "log.retention.mss is not a broker config of Ottla and has no effect; did you mean" in result.stderr
    run(config, "alter", "broker", "1", "--delete", "log.retention.mss")
    assert run(config, "alter", "broker", "1", "--set", "log.retention.ms=100000000").stderr == ""
    run(config, "alter", "broker", "1", "--delete", "log.retention.ms")


def test_describe_filters_partitions_and_shows_the_factor(run, name):
    run(topic, "create", name, "--partitions", "2")
    assert "2 partitions, replication factor 1" in run(topic, "describe", name).stdout
    assert run(topic, "describe", "--under-replicated", "--unavailable", "--under-min-isr").stdout == (
        "No partition matches.\n"
    )
    found = json.loads(run(topic, "describe", name, "--at-min-isr", "--json").stdout)
    assert [each["partition"] for each in found] == [0, 1]
    assert "give a topic, or a filter" in run(topic, "describe", exit_code=2).stderr
    assert run(cluster, "describe", "--problems").stdout == "No problems.\n"


@pytest.mark.parametrize("options", [(), ("--group", "readers-of-a-pipe")])
def test_consumer_ends_when_the_reader_of_its_pipe_is_gone(run, name, servers, options):
    run(topic, "create", name)
    run(produce, name, stdin="1\n2\n3\n")
    command = [sys.executable, "-m", "ottla", "consume", name, "--from-beginning", "-b", servers, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_records_that_fail_in_the_last_flush_are_counted(run, name):
    """The command stops at the first failure; records that are queued then fail after it."""
    run(topic, "create", name, "-c", "max.message.bytes=1000")
    queue = ("-X", "queue.buffering.max.messages=1500")
    result = run(produce, name, *queue, stdin=("x" * 2000 + "\n") * 5000, exit_code=1)
    failed, sent = re.match(r"ottla: ([0-9,]+) of ([0-9,]+) records were not delivered: ", result.stderr).groups()
    assert failed == sent
    assert result.stderr.count("\n") == 1


def test_closed_output_pipe_exits_with_0(run, name, environment):
    run(topic, "create", name)
    run(produce, name, "-q", stdin=b"x" * 99 + b"\n" + b"y" * 99 + b"\n" * 20000)
    command = subprocess.Popen(
        ottla("consume", name, "--from-beginning"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    assert command.stdout.readline() == b"x" * 99 + b"\n"
    command.stdout.close()
    # It writes until the pipe breaks; one more record ensures that there is something to write.
    run(produce, name, "-q", stdin="one more\n")
    assert command.wait(WAIT_S) == 0
    assert command.stderr.read() == b""
    command.stderr.close()


def test_an_interrupt_ends_with_130_and_no_words(run, name, environment):
    run(topic, "create", name)
    run(produce, name, "-q", stdin="first\n")
    with subprocess.Popen(
        ottla("consume", name, "--from-beginning"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as command:
        assert command.stdout.readline() == b"first\n"
        command.send_signal(signal.SIGINT)
        assert command.wait(WAIT_S) == 130
        assert command.stderr.read() == b""


def test_following_shows_a_record_when_it_comes(run, name, environment):
    run(topic, "create", name)
    with subprocess.Popen(
        ottla("consume", name, "-n", "2", "--from-beginning"), stdout=subprocess.PIPE, env=environment
    ) as command:
        for text in (b"one\n", b"two\n"):
            run(produce, name, "-q", stdin=text)
            assert command.stdout.readline() == text
        assert command.wait(WAIT_S) == 0


def test_a_terminal_gets_a_table_and_a_progress_bar(run, name, environment, tmp_path):
    run(topic, "create", name)
    path = tmp_path / "input"
    path.write_bytes(b"some line\n" * 50_000)
    for arguments, expected in (
        (["produce", name, "--file", str(path)], b"Produced 50,000 records"),
        (["topic", "list"], name.encode()),
        (["topic", "delete", name, "--yes"], b"Deleted topic"),
    ):
        primary, secondary = pty.openpty()
        with subprocess.Popen(
            ottla(*arguments), stdin=secondary, stdout=secondary, stderr=secondary, env=environment
        ) as command:
            os.close(secondary)
            output = b""
            try:
                while data := os.read(primary, 65536):
                    output += data
            except OSError:  # the terminal's other end is closed
                pass
            assert command.wait(WAIT_S) == 0
        os.close(primary)
        assert expected in output, output


def test_completion_of_topic_names(run, name, environment):
    run(topic, "create", name)
    asked = {
        **environment,
        "_OTTLA_COMPLETE": "bash_complete",
        "COMP_WORDS": f"ottla consume {name}",
        "COMP_CWORD": "2",
    }
    program = "import sys; sys.argv[0] = 'ottla'; from ottla.app.main import main; main()"
    result = subprocess.run([sys.executable, "-c", program], env=asked, capture_output=True, check=False)
    assert f"plain,{name}" in result.stdout.decode().splitlines()


def test_ctrl_c_ends_a_producer_and_what_was_read_is_delivered(run, name, environment):
    run(topic, "create", name)
    with subprocess.Popen(
        ottla("produce", name), stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as command:
        command.stdin.write(b"typed\n")
        command.stdin.flush()
        assert run(consume, name, "--from-beginning", "-n", "1").stdout == "typed\n"
        command.stdin.write(b"typed later\n")
        command.stdin.flush()
        assert run(consume, name, "-o", "1", "-n", "1").stdout == "typed later\n"
        command.send_signal(signal.SIGINT)
        assert command.wait(WAIT_S) == 130
        assert command.stderr.read() == b""


def test_producing_to_a_topic_that_may_not_be_created(ottla_broker_factory):
    broker = ottla_broker_factory(configs={"auto.create.topics.enable": False})
    result = CliRunner().invoke(
        cli,
        ["produce", "nowhere", "--timeout", "2", "-b", broker.bootstrap_servers],
        input="x\n",
        catch_exceptions=False,
    )
    assert result.exit_code == 1
    assert result.stderr.startswith("ottla: 1 of 1 record was not delivered: ")


def test_ipv6_addresses_and_protocols_before_them(ottla_broker_factory):
    """Like Java's clients, commands accept `PROTOCOL://host:port`; printed addresses are valid for `-b`."""
    broker = ottla_broker_factory(configs={"listeners": "PLAINTEXT://[::1]:0"})
    servers = ("-b", f"PLAINTEXT://[::1]:{broker.port},my-listener://[::1]:{broker.port}")
    invoke = CliRunner().invoke
    assert invoke(produce, ["t", *servers], input="x\n").exit_code == 0
    assert invoke(consume, ["t", "--from-beginning", "-n", "1", *servers]).stdout == "x\n"
    assert invoke(consume, ["t", "--group", "g", "--from-beginning", "-n", "1", *servers]).stdout == "x\n"
    (listed,) = json.loads(invoke(cluster, ["brokers", "--json", *servers]).stdout)
    assert listed["version"] == full_version()
    state = json.loads(invoke(group, ["state", "g", "--json", *servers]).stdout)
    assert {listed["address"], state["coordinator"]} == {f"[::1]:{broker.port}"}


def test_security_init_writes_ipv6_addresses_in_brackets(tmp_path):
    done = CliRunner().invoke(cli, ["security", "init", str(tmp_path / "keys"), "--host", "::1"])
    assert done.exit_code == 0, done.output
    properties = load_properties(str(tmp_path / "keys" / "server.properties"))
    assert properties["advertised.listeners"] == "SSL://[::1]:9093"
    assert load_properties(str(tmp_path / "keys" / "admin.properties"))["bootstrap.servers"] == "[::1]:9093"
