"""Lines of `ottla produce`: blocks of lines, their division into transactions, keys and values."""

from __future__ import annotations

import io
import random
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.cli.lines import LineReader
from ottla.cli.produce import _broker_reason, _parts, _send_lines, _split
from ottla.client.wire.model import LogDirectory, PartitionInfo
from ottla.common.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    ("line", "separator", "null", "expected"),
    [
        (b"a:b", None, None, (None, b"a:b")),
        (b"", None, None, (None, b"")),
        (b"a:b:c", b":", None, (b"a", b"b:c")),
        (b":b", b":", None, (b"", b"b")),
        (b"a:", b":", None, (b"a", b"")),
        (b"a:NULL", b":", b"NULL", (b"a", None)),
        (b"NULL:v", b":", b"NULL", (None, b"v")),
        (b"NULL", None, b"NULL", (None, None)),
        (b"a--b", b"--", None, (b"a", b"b")),
        (b"\xff\tv\r", b"\t", None, (b"\xff", b"v\r")),
        (b"v", None, b"", (None, b"v")),
    ],
)
def test_split(line, separator, null, expected):
    key, value = expected
    keys = None if separator is None else [key, key]
    assert _split([line, line], separator, null) == ([value, value], keys, False)


class RefusingProducer:
    """Accepts records up to one with a refused value."""

    def __init__(self):
        self.sent_count = 0
        self.records = []

    def send_all(self, topic, values, keys, **details):
        for number, value in enumerate(values):
            if value == b"too large":
                raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "Message size too large")
            self.records.append((None if keys is None else keys[number], value))
            self.sent_count += 1


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        (PartitionInfo(0, 2, 1, (1, 2), (1, 2), ()), "directory /d of broker 2, the leader of t-0, is full"),
        (PartitionInfo(0, 1, 1, (1, 2, 3), (1,), ()), "t-0 has 1 in-sync replica, and min.insync.replicas is 2"),
        (PartitionInfo(0, -1, 1, (1, 2, 3), (1,), ()), "t-0 has no leader"),
        (PartitionInfo(0, 1, 1, (1, 2, 3), (1, 2), ()), None),
        (PartitionInfo(0, 1, 1, (1,), (1,), ()), None),
    ],
)
def test_time_out_is_explained_by_the_state_of_the_partition(monkeypatch, partition, expected):
    sizes = {("t", 0): 100}
    client = SimpleNamespace(
        topics=SimpleNamespace(get=lambda name: SimpleNamespace(partitions=[partition])),
        configs=SimpleNamespace(describe=lambda kind, name, keys: [SimpleNamespace(value="2")]),
        log_directories=SimpleNamespace(
            all=lambda: [LogDirectory(node, "/d", None, 1 << 30, 1 << 30 if node == 1 else 0, sizes) for node in (1, 2)]
        ),
    )
    monkeypatch.setattr("ottla.cli.produce.open_cluster", lambda servers: nullcontext(client))
    reason = _broker_reason("host:1", "t", 0, "all")
    assert reason is None if expected is None else expected in str(reason)


def test_line_without_a_key_is_named_after_the_lines_before():
    producer: Any = RefusingProducer()
    with pytest.raises(KafkaError, match="line 9 has no key: ':' not found"):
        _send_lines(producer, 7, [b"a:b", b"nothing", b"c:d"], "clicks", b":", None, {})
    assert producer.records == [(b"a", b"b")]


def test_refused_line_is_named_with_a_remedy():
    producer: Any = RefusingProducer()
    producer.sent_count = 40
    with pytest.raises(KafkaError, match="line 42 can't be sent: message size too large; see -X message"):
        _send_lines(producer, 40, [b"a", b"too large", b"b"], "clicks", None, None, {})
    assert producer.records == [(None, b"a")]


class Chunks(io.RawIOBase):
    """A stream that returns one of some chunks for each read."""

    def __init__(self, chunks):
        self._chunks = list(chunks)

    def readable(self):
        return True

    def read1(self, size=-1):
        return self._chunks.pop(0) if self._chunks else b""


def lines_of(chunks):
    reader = LineReader(cast(io.BufferedReader, Chunks(chunks)), idle=lambda: None)
    return [line for block in reader.blocks() for line in block], reader.read_bytes


def test_lines_are_the_same_for_every_division_into_chunks():
    source = random.Random(3)
    for _ in range(400):
        data = b"".join(source.choices([b"a", b"bc", b"\r", b"\n", b"\r\n", b"\xff"], k=source.randrange(30)))
        cuts = sorted(source.choices(range(len(data) + 1), k=source.randrange(6)))
        chunks = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        *ended, rest = data.split(b"\n")
        expected = [line.removesuffix(b"\r") for line in ended] + ([rest] if rest else [])
        assert lines_of(chunk for chunk in chunks if chunk) == (expected, len(data)), (data, chunks)


def test_parts_end_with_their_transactions():
    blocks = [[b"1", b"2", b"3"], [b"4"], [b"5", b"6", b"7", b"8", b"9"], [b"10"]]
    assert [*_parts(blocks, None)] == blocks
    expected = [[b"1", b"2", b"3"], [b"4"], [b"5", b"6", b"7", b"8"], [b"9"], [b"10"]]
    assert [*_parts(blocks, 4)] == expected
    assert [*_parts(blocks, 1)] == [[line] for block in blocks for line in block]
