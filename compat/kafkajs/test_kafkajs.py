"""kafkajs: create a topic, produce with every codec, and read everything from the start and from an offset."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Broker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
OLDEST = [{0: 0, 1: 0, 2: 0}, {0: 1, 1: 1, 2: 0}, {0: 2, 1: 3, 2: 0}]
"""Versions of Produce, Fetch and ListOffsets in Kafka 0.8, 0.9 and 0.10.0."""
OLD_CODECS = CODECS[:3]
"""Also without lz4: lz4js truncates the frames of some message sets, and kafkajs then waits for the rest."""


def run(
    home: Path,
    command: str,
    broker: Broker,
    *arguments: str,
    records: list[dict[str, Any]] | None = None,
    highest: dict[int, int] | None = None,
) -> list[Any]:
    """Returns the printed values of client.mjs, one per line; `highest` is the maximum version by API key."""
    try:
        result = subprocess.run(
            ["node", "client.mjs", command, broker.bootstrap_servers, *arguments],
            cwd=home,
            input="".join(json.dumps(record) + "\n" for record in records or []),
            env={**os.environ, "OTTLA_COMPAT_HIGHEST": json.dumps(highest or {})},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"{command} did not end: {error.stdout!r}, {error.stderr!r}") from error
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def text(value: str | None) -> str | None:
    """Decodes bytes that JSON carries."""
    return None if value is None else base64.b64encode(value.encode()).decode()


def record(key: str | None, value: str | None, **headers: str) -> dict[str, Any]:
    return {
        "key": text(key),
        "value": text(value),
        "headers": [[name, text(content)] for name, content in headers.items()],
    }


@pytest.mark.parametrize("codec", CODECS)
def test_round_trip(kafkajs: Path, broker: Broker, codec: str) -> None:
    topic = f"kafkajs-{codec}"
    [metadata] = run(kafkajs, "create", broker, topic, "1")
    assert metadata["topics"][0]["partitions"][0]["partitionErrorCode"] == 0
    records = [
        record("k1", "v" * 2000, trace="abc", other="x"),
        record(None, "without a key"),
        record("tombstone", None),
        record("k2", "페이지 뷰"),
    ]
    run(kafkajs, "produce", broker, topic, codec, records=records)
    read = run(kafkajs, "consume", broker, topic, "0", "0", "4")
    assert [entry.pop("offset") for entry in read] == [0, 1, 2, 3]
    assert read == records
    tail = run(kafkajs, "consume", broker, topic, "0", "2", "2")
    assert [entry["offset"] for entry in tail] == [2, 3]
    [offsets] = run(kafkajs, "offsets", broker, topic)
    assert offsets == [{"partition": 0, "offset": "4", "high": "4", "low": "0"}]
    [by_time] = run(kafkajs, "offsets", broker, topic, "1")
    assert by_time == [{"partition": 0, "offset": "0"}]


def test_transactions(kafkajs: Path, broker: Broker) -> None:
    topic = "kafkajs-transactions"
    run(kafkajs, "create", broker, topic, "1")
    fenced, offsets = run(kafkajs, "transactions", broker, topic, f"{topic}-id")
    assert fenced["fenced"] in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
    assert [each["offset"] for each in offsets[0]["partitions"]] == ["4"]
    read = run(kafkajs, "consume", broker, topic, "0", "0", "3")
    assert [entry["value"] for entry in read] == [text("0 commit"), text("3 commit"), text("second")]


@pytest.mark.parametrize("highest", OLDEST, ids=["0.8", "0.9", "0.10"])
def test_lowest_versions(kafkajs: Path, broker: Broker, highest: dict[int, int]) -> None:
    """Message sets from and to kafkajs, next to record batches."""
    topic = f"kafkajs-lowest-{highest[0]}"
    run(kafkajs, "create", broker, topic, "1")
    records = [record("k1", "v" * 2000), record(None, "without a key"), record("tombstone", None)]
    for codec in OLD_CODECS:
        run(kafkajs, "produce", broker, topic, codec, records=records, highest=highest)
        run(kafkajs, "produce", broker, topic, codec, records=records)
    count = len(records) * 2 * len(OLD_CODECS)
    expected = [{"offset": offset, **records[offset % len(records)]} for offset in range(count)]
    for versions in (highest, None):
        read = run(kafkajs, "consume", broker, topic, "0", "0", str(count), highest=versions)
        assert read == expected
        tail = run(kafkajs, "consume", broker, topic, "0", "4", str(count - 4), highest=versions)
        assert tail == expected[4:]
    [offsets] = run(kafkajs, "offsets", broker, topic, highest=highest)
    assert offsets == [{"partition": 0, "offset": str(count), "high": str(count), "low": "0"}]
