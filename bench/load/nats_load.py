"""The load for NATS JetStream by nats-py, with the modes (except stream), keys and lines of load.c.

The Python client limits the throughput; this does not affect the broker's CPU per record and GB. A publish waits for
the stream's acknowledgement, with at most `IN_FLIGHT` at a time; the stream is a file on one server.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
import time

import nats
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import StorageType, StreamConfig

IN_FLIGHT = 1_000
LATE_S = 10.0
QUANTILES = (0.5, 0.99, 0.999, 1.0)
DUE = struct.Struct("d")


class Load:
    """One run with the `options` of load.c."""

    def __init__(self, options: dict[str, str], context: JetStreamContext) -> None:
        self.context = context
        self.topic = options["topic"]
        self.seconds = float(options.get("seconds", 2))
        self.warm_up_s = float(options.get("warm_up_s", 1))
        self.rate = float(options.get("rate", 0))
        self.records = int(options.get("records", 0))
        size = int(options.get("size", 1024))
        self.payload = os.urandom(size // 2) + b"x" * (size - size // 2)
        self.produced = 0
        self.consumed = 0
        self.window = (0.0, 0.0)
        self.ack: list[float] = []
        self.end_to_end: list[float] = []

    async def publish(self, payload: bytes, due: float = 0.0) -> None:
        await self.context.publish(self.topic, payload)
        self.produced += 1
        if self.window[0] <= due < self.window[1]:
            self.ack.append(time.monotonic() - due)

    async def produce(self) -> None:
        """IN_FLIGHT publishers, each waiting for its acknowledgement."""

        async def publisher() -> None:
            while not self.records or self.produced + IN_FLIGHT <= self.records:
                await self.publish(self.payload)

        await asyncio.gather(*(publisher() for _ in range(IN_FLIGHT)))

    async def produce_at_rate(self) -> None:
        first, number, pending = time.monotonic(), 0, set[asyncio.Task[None]]()
        while True:
            due = first + number / self.rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            task = asyncio.create_task(self.publish(DUE.pack(due) + self.payload[DUE.size :], due))
            pending.add(task)
            task.add_done_callback(pending.discard)
            number += 1

    async def consume(self) -> None:
        """Read the stream from its beginning by an ordered consumer, repeatedly."""
        info = await self.context.stream_info(self.topic)
        while True:
            subscription = await self.context.subscribe(self.topic, ordered_consumer=True)
            for _ in range(info.state.messages):
                await subscription.next_msg(timeout=30)
                self.consumed += 1
            await subscription.unsubscribe()

    async def on_message(self, message: Msg) -> None:
        self.consumed += 1
        (due,) = DUE.unpack_from(message.data)
        if self.window[0] <= due < self.window[1]:
            self.end_to_end.append(time.monotonic() - due)

    async def measure(self) -> tuple[int, int]:
        await asyncio.sleep(self.warm_up_s)
        produced, consumed = self.produced, self.consumed
        began = time.monotonic()
        self.window = (began, began + self.seconds)
        print("begin", flush=True)
        await asyncio.sleep(self.seconds)
        counts = self.produced - produced, self.consumed - consumed
        print("end", flush=True)
        deadline = time.monotonic() + LATE_S
        while self.rate and len(self.end_to_end) < 0.99 * self.rate * self.seconds:
            if time.monotonic() > deadline:
                raise RuntimeError(f"only {len(self.end_to_end)} records of the window came back")
            await asyncio.sleep(0.01)
        return counts


def quantiles(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {f"{each:g}": ordered[min(int(len(ordered) * each), len(ordered) - 1)] for each in QUANTILES}


async def run(mode: str, options: dict[str, str]) -> None:
    connection = await nats.connect(options["brokers"])
    context = connection.jetstream()
    if mode != "consume":
        await context.add_stream(
            StreamConfig(name=options["topic"], subjects=[options["topic"]], storage=StorageType.FILE)
        )
    load = Load(options, context)
    if load.records:
        await load.produce()
        print(json.dumps({"produced": load.produced}))
    else:
        if mode == "latency":
            await context.subscribe(load.topic, ordered_consumer=True, cb=load.on_message)
        bodies = {"produce": load.produce, "consume": load.consume, "latency": load.produce_at_rate}
        body = asyncio.create_task(bodies[mode]())
        measuring = asyncio.create_task(load.measure())
        await asyncio.wait({body, measuring}, return_when=asyncio.FIRST_COMPLETED)
        if body.done():
            body.result()
        produced, consumed = measuring.result()
        row: dict[str, object] = {"produced": produced, "consumed": consumed}
        if load.rate:
            row |= {"ack": quantiles(load.ack), "end_to_end": quantiles(load.end_to_end)}
        print(json.dumps(row), flush=True)
    os._exit(0)  # exit without waiting for messages in flight


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    asyncio.run(run(sys.argv[1], dict(argument.split("=", 1) for argument in sys.argv[2:])))
