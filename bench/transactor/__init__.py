"""The transaction generator: `transactor.c`, its frames encoded with Ottla's protocol package, and its results.

    driven = drive(server, wire, topic, rate=1000, seconds=10, warm_up_s=4)

Positions that the program patches or reads are located by a marker in encoded bytes, so that no layout is duplicated
here.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.peers import Server
from harness.processes import Usage
from harness.programs import compiled
from replayer.frames import Wire, place

from ottla.client.admin.cluster import Cluster
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.header import encode_response
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.record.builder import RecordData, build_batch

SOURCE = Path(__file__).with_name("transactor.c")
FIRST_VERSIONS = {ApiKey.PRODUCE: 12, ApiKey.END_TXN: 5}
"""From these versions on Produce adds partitions, and EndTxn returns the next epoch (transactions v2)."""
TIMEOUT_MS = 60_000
START_TIMEOUT_S = 60.0
MARK_16, MARK_64 = 0x5A5B, 0x5A5B5C5D5E5F6061


@dataclass(frozen=True)
class Shape:
    """The number of producers, and the content of each transaction."""

    producers: int
    topic: str
    topic_partitions: int
    partitions: int
    """Number of partitions of each transaction, with one batch of one record each."""
    record_bytes: int


@dataclass(frozen=True)
class Driven:
    """Results of the measured time."""

    transactions: int
    """Completed transactions: the next one was accepted."""
    seconds: float
    answer_us: Mapping[str, float]
    """From the due time of the end to the response, when the decision is durable. p50, p99, p999."""
    complete_us: Mapping[str, float]
    """From the due time of the end until the next transaction is accepted, when the markers are written."""
    retries: int
    client_cpu_s: float
    used: Usage

    @property
    def per_second(self) -> float:
        return self.transactions / self.seconds


def drive(server: Server, wire: Wire, shape: Shape, *, rate: float, seconds: float, warm_up_s: float) -> Driven:
    """Run the program once; `rate` is in transactions per second of all producers, 0 for as fast as possible."""
    _wake_coordinator(server)
    with tempfile.TemporaryDirectory(prefix="ottla-transactor-") as folder:
        frames = Path(folder, "frames")
        command = [str(compiled(SOURCE)), *_places(wire, shape, frames)]
        command += [f"--port={server.port}", f"--rate={rate}", f"--seconds={seconds}", f"--warmup={warm_up_s}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                _expect(process, "begin")
                before = server.usage()
                _expect(process, "end")
                used = server.usage() - before
                found = json.loads(process.stdout.readline() or "null")
            finally:
                process.kill()
    return Driven(**found, used=used)


def _wake_coordinator(server: Server) -> None:
    """Look up a coordinator, because the first lookup creates its topic."""
    with Cluster(server.bootstrap_servers, timeout_s=START_TIMEOUT_S) as cluster:
        try:
            cluster.transactions.describe("nobody")
        except KafkaError as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise


def _expect(process: subprocess.Popen[str], event: str) -> None:
    assert process.stdout is not None
    if process.stdout.readline().strip() != event:
        raise RuntimeError(f"the generator of transactions ended with {process.wait()}; its last words are above")


def _places(wire: Wire, shape: Shape, frames: Path) -> list[str]:
    """Write the frames of all producers; returns the options with the positions in them and in their responses."""
    for key, version in FIRST_VERSIONS.items():
        if wire.version(key) < version:
            raise RuntimeError(f"the server has no transactions v2: {key.name} goes to version {wire.version(key)}")
    batches = [_batch(shape.record_bytes) for _ in range(shape.partitions)]
    names = [f"bench-{number:06}" for number in range(shape.producers)]
    with frames.open("wb") as out:
        for number, name in enumerate(names):
            first = number % shape.topic_partitions
            rows = [((first + each) % shape.topic_partitions, batch) for each, batch in enumerate(batches)]
            produce = wire.produce_request(shape.topic, rows, acks=-1)
            produce.transactional_id = name
            produced = wire.encode(ApiKey.PRODUCE, produce)
            out.write(
                wire.encode(
                    ApiKey.INIT_PRODUCER_ID,
                    InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS),
                )
            )
            out.write(produced)
            out.write(wire.encode(ApiKey.END_TXN, EndTxnRequest(transactional_id=name, committed=True)))
    marked = EndTxnRequest(
        transactional_id=names[0], producer_id=MARK_64, producer_epoch=struct.unpack(">h", b"ZQ")[0], committed=True
    )
    end = wire.encode(ApiKey.END_TXN, marked)
    return [
        f"--frames={frames}",
        f"--count={shape.producers}",
        f"--end-id={place(end, struct.pack('>q', MARK_64))}",
        f"--end-epoch={place(end, b'ZQ')}",
        f"--inited={_answer_places(wire, ApiKey.INIT_PRODUCER_ID, InitProducerIdResponse)}",
        f"--ended={_answer_places(wire, ApiKey.END_TXN, EndTxnResponse)}",
        f"--batches={','.join(str(place(produced, batch)) for batch in batches)}",
        f"--batch-bytes={len(batches[0])}",
        f"--produced={','.join(map(str, _produced_places(wire, shape)))}",
    ]


def _batch(record_bytes: int) -> bytes:
    """Returns one transactional batch of one record; the program patches its producer."""
    record = RecordData(int(time.time() * 1000), None, os.urandom(record_bytes))
    return bytes(build_batch([record], producer_id=0, producer_epoch=0, base_sequence=0, is_transactional=True))


def _answer_places(wire: Wire, key: ApiKey, kind: type[InitProducerIdResponse] | type[EndTxnResponse]) -> str:
    """Returns the positions of error code, producer id and epoch."""
    response = kind(error_code=MARK_16, producer_id=MARK_64 + 1, producer_epoch=struct.unpack(">h", b"ZQ")[0])
    frame = encode_response(key, wire.version(key), 0, response)
    marks = (struct.pack(">h", MARK_16) + struct.pack(">q", MARK_64 + 1), struct.pack(">q", MARK_64 + 1), b"ZQ")
    return ",".join(str(place(frame, mark)) for mark in marks)


def _produced_places(wire: Wire, shape: Shape) -> list[int]:
    """Returns the error code positions of each partition, valid if preceding partitions have no error."""
    places = []
    for marked in range(shape.partitions):
        rows = [
            PartitionProduceResponse(index=0, error_code=MARK_16 if each == marked else 0, base_offset=0)
            for each in range(shape.partitions)
        ]
        answer = ProduceResponse(responses=[wire.produce_answer(shape.topic, rows)])
        frame = encode_response(ApiKey.PRODUCE, wire.version(ApiKey.PRODUCE), 0, answer)
        places.append(place(frame, struct.pack(">h", MARK_16)))
    return places
