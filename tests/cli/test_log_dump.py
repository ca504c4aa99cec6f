"""`ottla log dump` of intact files, and of every kind of damage."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.app.main import cli
from ottla.record.builder import RecordData, build_batch
from ottla.record.control import ControlRecordType, control_record_key

TIME = 1_700_000_000_000
NAME = "00000000000000000100.log"


def batch(base_offset: int, count: int = 3, **settings) -> bytes:
    records = [
        RecordData(TIME + base_offset + i, b"key %d" % (base_offset + i), b"value", (("h", b"\xff"), ("n", None)))
        for i in range(count)
    ]
    return bytes(build_batch(records, base_offset=base_offset, **settings))


class Segment:
    """A segment of three batches at offset 100 with correct indexes; tests damage it before `dump`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        batches = [
            batch(100, leader_epoch=4),
            batch(103, 2, compression="zstd", producer_id=9, producer_epoch=1, base_sequence=2**31 - 1),
            batch(105, 5, is_transactional=True, producer_id=9, producer_epoch=1, base_sequence=1, timestamp_type=1),
        ]
        self.data = bytearray(b"".join(batches))
        self.positions = [0, len(batches[0]), len(batches[0]) + len(batches[1])]
        self.index = [(4, self.positions[1]), (9, self.positions[2])]
        self.time_index = [(TIME + 104, 4), (TIME + 109, 9)]

    def dump(self, *arguments: str):
        self.path.write_bytes(self.data)
        entries = b"".join(struct.pack(">ii", *entry) for entry in self.index)
        self.path.with_suffix(".index").write_bytes(entries)
        entries = b"".join(struct.pack(">qi", *entry) for entry in self.time_index)
        self.path.with_suffix(".timeindex").write_bytes(entries)
        return CliRunner().invoke(cli, ["log", "dump", str(self.path), *arguments], catch_exceptions=False)

    def problems(self) -> list[tuple[int | None, str]]:
        """Dump as JSON; returns the problems, and checks the exit code against them."""
        result = self.dump("--json")
        found = [entry for entry in map(json.loads, result.stdout.splitlines()) if entry["type"] == "problem"]
        assert result.exit_code == (1 if found else 0)
        assert ("found" in result.stderr) == bool(found)
        return [(entry["position"], entry["problem"]) for entry in found]


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return Segment(tmp_path)


def test_batches_as_json(segment):
    result = segment.dump("--json")
    assert result.exit_code == 0, result.output
    *batches, summary = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(b["position"], b["base_offset"], b["last_offset"], b["count"]) for b in batches] == [
        (segment.positions[0], 100, 102, 3),
        (segment.positions[1], 103, 104, 2),
        (segment.positions[2], 105, 109, 5),
    ]
    assert all(b["crc_valid"] for b in batches)
    assert [(b["compression"], b["timestamp_type"]) for b in batches] == [
        ("none", "CreateTime"),
        ("zstd", "CreateTime"),
        ("none", "LogAppendTime"),
    ]
    assert batches[0]["leader_epoch"] == 4
    assert (batches[1]["base_sequence"], batches[1]["last_sequence"]) == (2**31 - 1, 0)
    assert [b["transactional"] for b in batches] == [False, False, True]
    assert {name: summary[name] for name in summary if name != "file"} == {
        "type": "summary",
        "batches": 3,
        "records": 10,
        "valid_bytes": len(segment.data),
        "file_bytes": len(segment.data),
        "offset_index_entries": 2,
        "time_index_entries": 2,
        "problems": 0,
    }


def test_batches_and_records_as_text(segment):
    result = segment.dump("--records")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"position 0  offsets 100 to 102  count 3  size {segment.positions[1]}  none  crc ")
    assert lines[1] == r"  100  2023-11-14T22:13:20.100Z  key key 100  value value  h=\xff  n=null"
    assert len(lines) == 3 + 10 + 1
    assert (
        lines[-1] == f"3 batches, 10 records, {len(segment.data):,} bytes; 2 offset and 2 time index entries compared"
    )


def test_records_as_json(segment):
    lines = [json.loads(line) for line in segment.dump("--records", "--json").stdout.splitlines()]
    records = [line for line in lines if line["type"] == "record"]
    assert [record["offset"] for record in records] == list(range(100, 110))
    assert records[0]["key"] == "key 100"
    assert records[0]["headers"] == [{"name": "h", "value_base64": "/w=="}, {"name": "n", "value": None}]
    assert records[3]["timestamp"] == TIME + 103


def test_control_batches_are_named(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    marker = RecordData(TIME, control_record_key(ControlRecordType.COMMIT), struct.pack(">hi", 0, 1))
    path.write_bytes(build_batch([marker], is_control=True, is_transactional=True, producer_id=1, producer_epoch=0))
    result = CliRunner().invoke(cli, ["log", "dump", str(path), "--records"])
    assert result.exit_code == 0
    assert "control COMMIT" in result.stdout


def test_aborted_transactions_are_shown(tmp_path):
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(struct.pack(">hqqqq", 0, 7, 3, 5, 6))
    result = CliRunner().invoke(cli, ["log", "dump", str(path)])
    assert result.stdout == "producer_id 7  first_offset 3  last_offset 5  last_stable_offset 6\n"
    (line,) = CliRunner().invoke(cli, ["log", "dump", str(path), "--json"]).stdout.splitlines()
    assert json.loads(line) == {
        "type": "aborted_transaction",
        "producer_id": 7,
        "first_offset": 3,
        "last_offset": 5,
        "last_stable_offset": 6,
    }


@pytest.mark.parametrize("data", [struct.pack(">hqqqq", 1, 7, 3, 5, 6), b"short"])
def test_malformed_transaction_index_is_reported(tmp_path, data):
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(data)
    result = CliRunner().invoke(cli, ["log", "dump", str(path)])
    assert result.exit_code == 1
    assert "position 0" in result.stderr


def test_a_flipped_bit_is_found_and_the_rest_is_shown(segment):
    segment.data[segment.positions[1] + 70] ^= 1
    ((position, problem),) = segment.problems()
    assert position == segment.positions[1]
    assert problem.startswith("computed CRC ")
    assert len(segment.dump("--json").stdout.splitlines()) == 5
    result = segment.dump("--records")
    assert "PROBLEM" in result.stdout
    assert result.stderr.endswith("found\n")


@pytest.mark.parametrize("tail", [b"\x00", b"\x00" * 200, b"nonsense" * 30, batch(110)[:-1], batch(110)[:60]])
def test_a_torn_tail_is_named_with_its_position(segment, tail):
    end = len(segment.data)
    segment.data += tail
    ((position, problem),) = segment.problems()
    assert position == end
    assert problem
    summary = json.loads(segment.dump("--json").stdout.splitlines()[-1])
    assert (summary["valid_bytes"], summary["file_bytes"]) == (end, end + len(tail))


def test_offsets_that_go_back_are_found(segment):
    end = len(segment.data)
    segment.data += batch(104)
    assert (end, "offset 104 follows offset 109") in segment.problems()


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda s: s.index.__setitem__(0, (3, s.positions[1])), "index entry 103"),
        (lambda s: s.index.__setitem__(0, (4, s.positions[1] + 1)), "index entry 104"),
        (lambda s: s.index.append((20, 10_000)), "index entry 120"),
        (lambda s: s.index.reverse(), "not after"),
        (lambda s: s.time_index.__setitem__(0, (TIME, 4)), "time index entry"),
        (lambda s: s.time_index.append((TIME + 500, 30)), "time index entry"),
        (lambda s: s.time_index.reverse(), "not after"),
    ],
    ids=[
        "wrong offset",
        "wrong position",
        "beyond the end",
        "order",
        "wrong time",
        "time beyond the end",
        "time order",
    ],
)
def test_a_wrong_index_is_found(segment, spoil, expected):
    spoil(segment)
    problems = segment.problems()
    assert problems
    assert any(expected in problem for _, problem in problems)
    assert all(position is None for position, _ in problems)


def test_preallocated_index_entries_are_ignored(segment):
    segment.dump()
    segment.index += [(0, 0)] * 50
    segment.time_index += [(0, 0)] * 50
    assert segment.problems() == []


def test_missing_indexes_are_not_compared(segment):
    segment.dump()
    segment.path.with_suffix(".index").unlink()
    segment.path.with_suffix(".timeindex").unlink()
    result = CliRunner().invoke(cli, ["log", "dump", str(segment.path)])
    assert result.exit_code == 0
    assert "0 offset and 0 time index entries" in result.stdout


def test_index_files_by_themselves(segment):
    segment.dump()
    index, time_index = segment.path.with_suffix(".index"), segment.path.with_suffix(".timeindex")
    assert CliRunner().invoke(cli, ["log", "dump", str(index)]).stdout.splitlines() == [
        f"offset 104  position {segment.positions[1]}",
        f"offset 109  position {segment.positions[2]}",
    ]
    lines = CliRunner().invoke(cli, ["log", "dump", str(time_index), "--json"]).stdout.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"type": "time_index_entry", "timestamp": TIME + 104, "offset": 104},
        {"type": "time_index_entry", "timestamp": TIME + 109, "offset": 109},
    ]
    other = index.rename(index.parent / "other.index")
    result = CliRunner().invoke(cli, ["log", "dump", str(other)])
    assert result.exit_code == 2
    assert "20 digits" in result.stderr


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = tmp_path / NAME
    path.write_bytes(b"")
    monkeypatch.setattr(
        "ottla.cli.log.open_regular", lambda _: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
    )
    result = CliRunner().invoke(cli, ["log", "dump", str(path)])
    assert (result.exit_code, result.stderr) == (2, f"ottla: cannot read {path}: permission denied\n")


def test_the_files_of_a_broker(ottla_broker_factory):
    broker = ottla_broker_factory()
    environment = {"OTTLA_BOOTSTRAP_SERVER": broker.bootstrap_servers}
    run = CliRunner(env=environment).invoke
    assert (
        run(
            cli, ["topic", "create", "dumped", "-c", "segment.bytes=1048576", "-c", "index.interval.bytes=1000"]
        ).exit_code
        == 0
    )
    lines = b"".join(b"line %d " % i + b"x" * 200 + b"\n" for i in range(20_000))
    assert run(cli, ["produce", "dumped", "-z", "none", "-q"], input=lines).exit_code == 0
    broker.stop()
    segments = sorted((broker.data_dir / "dumped-0").glob("*.log"))
    assert len(segments) > 3
    total = 0
    for path in segments:
        result = CliRunner().invoke(cli, ["log", "dump", str(path), "--json"])
        assert result.exit_code == 0, result.output[-1000:]
        summary = json.loads(result.stdout.splitlines()[-1])
        total += summary["records"]
        assert summary["problems"] == 0
        assert summary["time_index_entries"] > 0
    assert total == 20_000
    (snapshot, *_) = sorted((broker.data_dir / "dumped-0").glob("*.snapshot"), reverse=True)
    (producer,) = map(json.loads, CliRunner().invoke(cli, ["log", "dump", str(snapshot), "--json"]).stdout.splitlines())
    assert (producer["producer_epoch"], producer["last_sequence"]) == (0, 19_999)
    for path in (broker.data_dir / "__cluster_metadata-0").glob("*.log"):
        result = CliRunner().invoke(cli, ["log", "dump", str(path), "--records"])
        assert result.exit_code == 0, result.output[-1000:]
        assert "control LEADER_CHANGE" in result.stdout


def test_the_other_files_of_a_partition(ottla_broker_factory, tmp_path):
    broker = ottla_broker_factory()
    environment = {"OTTLA_BOOTSTRAP_SERVER": broker.bootstrap_servers}
    assert CliRunner(env=environment).invoke(cli, ["topic", "create", "dumped"]).exit_code == 0
    partition = broker.data_dir / "dumped-0"
    shown = CliRunner().invoke(cli, ["log", "dump", str(partition / "partition.metadata")])
    assert (shown.exit_code, shown.stdout) == (0, (partition / "partition.metadata").read_text() + "\n")
    assert shown.stdout.startswith("version: 0\ntopic_id: ")
    broker.stop()
    for path in [*broker.data_dir.iterdir(), *partition.iterdir()]:
        if path.is_file() and not path.name.startswith("."):
            result = CliRunner().invoke(cli, ["log", "dump", str(path), "--json"])
            assert result.exit_code == 0, (path, result.output)
            assert all(json.loads(line) for line in result.stdout.splitlines())


def test_a_file_that_is_none_of_ours_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    result = CliRunner().invoke(cli, ["log", "dump", str(path)])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"ottla: {path} is not a file that log dump can read; supported: .log, ")
    old = tmp_path / "00000000000000000000.log.deleted"
    old.write_bytes(b"")
    assert CliRunner().invoke(cli, ["log", "dump", str(old)]).exit_code == 0


def test_the_checkpoint_of_the_cleaner_is_shown_as_it_is(tmp_path):
    path = tmp_path / "cleaner-offset-checkpoint"
    path.write_text("0\n1\nclicks 0 42\n")
    result = CliRunner().invoke(cli, ["log", "dump", str(path)], catch_exceptions=False)
    assert (result.exit_code, result.output) == (0, "0\n1\nclicks 0 42\n")


@pytest.mark.parametrize(
    ("topic", "good", "bad"),
    [
        ("__transaction_state", RecordData(TIME, b"\0\0\0\1a", None), RecordData(TIME, b"\0\0\0\1a", b"\0\x09x")),
        ("__consumer_offsets", RecordData(TIME, b"\0\2\0\1g", None), RecordData(TIME, b"\0\2\0\1g", b"\0")),
        ("__consumer_offsets", RecordData(TIME, b"\x7f\0new kind", b"any"), RecordData(TIME, None, b"v")),
    ],
)
def test_record_that_a_coordinator_skips_is_named(tmp_path, topic, good, bad):
    segment = tmp_path / f"{topic}-0" / "00000000000000000000.log"
    segment.parent.mkdir()
    segment.write_bytes(build_batch([good, bad, good]))
    result = CliRunner().invoke(cli, ["log", "dump", str(segment), "--records", "--json"], catch_exceptions=False)
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["offset"] for each in documents if each["type"] == "record"] == [0, 1, 2]
    (problem,) = (each["problem"] for each in documents if each["type"] == "problem")
    assert problem.startswith("the record at offset 1 can't be decoded: ")
    assert result.exit_code == 1
