"""Apache Kafka's Java producers and consumer."""

from __future__ import annotations

import json

import pytest
from differential_pair import wait_for
from tools import JavaTools

from ottla.testing import Broker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def consume(tools: JavaTools, broker: Broker, topic: str, *arguments: str, count: int) -> list[str]:
    """Returns `count` lines of the console consumer from partition 0."""
    at = ["--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--partition", "0"]
    output = tools.run(
        "kafka-console-consumer", *at, *arguments, "--max-messages", str(count), "--timeout-ms", "100000"
    )
    return output.splitlines()


@pytest.mark.parametrize("codec", CODECS)
def test_console_producer_and_consumer(tools: JavaTools, broker: Broker, codec: str) -> None:
    topic = f"console-{codec}"
    at = ["--bootstrap-server", broker.bootstrap_servers, "--topic", topic]
    tools.run("kafka-topics", *at[:2], "--create", "--topic", topic, "--partitions", "1")
    rows = [f"h1:a,h2:b\tkey{number}\t{'value' * 40}{number}" for number in range(50)] + ["h1:a\tgone\tNULL"]
    properties = ["parse.key=true", "parse.headers=true", "null.marker=NULL"]
    settings = [argument for each in properties for argument in ("--reader-property", each)]
    tools.run("kafka-console-producer", *at, "--compression-codec", codec, *settings, stdin="\n".join(rows) + "\n")
    shown = ["print.key=true", "print.headers=true", "print.offset=true"]
    formatting = [argument for each in shown for argument in ("--formatter-property", each)]
    lines = consume(tools, broker, topic, "--from-beginning", *formatting, count=51)
    expected = []
    for offset, row in enumerate(rows):
        headers, key, value = row.split("\t")
        expected.append(f"Offset:{offset}\t{headers}\t{key}\t{'null' if value == 'NULL' else value}")
    assert lines == expected
    assert consume(tools, broker, topic, "--offset", "49", count=2)[0] == rows[49].split("\t")[2]


@pytest.mark.parametrize(
    ("codec", "acks"), [("none", "all"), ("gzip", "1"), ("snappy", "all"), ("lz4", "0"), ("zstd", "all")]
)
def test_producer_performance(tools: JavaTools, broker: Broker, codec: str, acks: str) -> None:
    topic = f"perf-{codec}"
    output = tools.run(
        "kafka-producer-perf-test",
        *["--topic", topic, "--num-records", "20000", "--record-size", "200", "--throughput", "-1", "--producer-props"],
        *[f"bootstrap.servers={broker.bootstrap_servers}", f"acks={acks}", f"compression.type={codec}"],
        *([] if acks == "all" else ["enable.idempotence=false"]),
    )
    assert "20000 records sent" in output

    def end() -> str:
        return tools.run("kafka-get-offsets", "--bootstrap-server", broker.bootstrap_servers, "--topic", topic).strip()

    if acks == "0":  # with acks=0 the producer exits after the last send, possibly before the records arrive
        wait_for(lambda: end() == f"{topic}:0:20000", "all of it has arrived")
    assert end() == f"{topic}:0:20000"


def test_verifiable_producer(tools: JavaTools, broker: Broker) -> None:
    arguments = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "verifiable", "--max-messages", "2000"]
    events = [json.loads(line) for line in tools.run("kafka-verifiable-producer", *arguments).splitlines()]
    sent = [event for event in events if event["name"] == "producer_send_success"]
    assert len(sent) == 2000
    assert [event for event in events if event["name"] == "producer_send_error"] == []
    assert {event["value"] for event in sent} == {str(number) for number in range(2000)}
    read = consume(tools, broker, "verifiable", "--from-beginning", count=2000)
    assert read == [str(number) for number in range(2000)]
