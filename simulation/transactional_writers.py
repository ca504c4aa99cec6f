"""Processes that write transactions, one after another under one transactional id; some are replaced while they
live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from simulation.log_clients import MAX_BATCH_RECORDS, LogWorld
from simulation.rng import SimRng
from simulation.transactional_producer import Abortable, FencedProcess, TransactionalProducer, TransactionWorld

PAUSE_S = (0.0, 2.0)
MAX_BATCHES = 4
ABORT_CHANCE = 0.15
STALL_CHANCE = 0.03
"""Share of transactions that their producer leaves open for longer than the timeout."""
DEATH_CHANCE = 0.02
REPLACEMENT_CHANCE = 0.03
OLD_CHANCE = 0.4
"""Share of processes that only know the first version of transactions."""


class ProcessDied(Exception):
    """The process ends abruptly."""


class Writer:
    """One writer process."""

    def __init__(self, world: TransactionWorld, log: LogWorld, transactional_id: str, name: str, rng: SimRng) -> None:
        self._world = world
        self._log = log
        self._rng = rng
        self._name = name
        self._numbers = 0
        self.replaced = asyncio.Event()
        """Set when the next process is to start while this one lives."""
        self._producer = TransactionalProducer(
            world, [log], transactional_id, name, rng, modern=not rng.chance(OLD_CHANCE)
        )

    async def run(self) -> None:
        """Write transaction after transaction until the stop, or until this process is fenced or dies."""
        died = False
        try:
            await self._producer.init()
            while not self._log.stopping:
                await asyncio.sleep(self._rng.uniform(*PAUSE_S))
                await self._transaction()
                if self._misbehaves(REPLACEMENT_CHANCE):
                    self.replaced.set()
        except FencedProcess:
            self._world.trace.note(self._name, "is fenced")
        except ProcessDied:
            died = True
            self._world.trace.note(self._name, "dies")
        self._producer.close(died=died)

    def _misbehaves(self, chance: float) -> bool:
        return self._world.faults.is_set() and self._rng.chance(chance)

    async def _transaction(self) -> None:
        await self._producer.begin()
        try:
            for _ in range(1 + self._rng.randrange(MAX_BATCHES)):
                await self._send()
                if self._misbehaves(DEATH_CHANCE):
                    raise ProcessDied
            if self._misbehaves(STALL_CHANCE):
                await asyncio.sleep(self._world.timeout_ms / 1000 * self._rng.uniform(0.8, 2.0))
        except Abortable:
            await self._producer.abort()
            return
        if self._rng.chance(ABORT_CHANCE):
            await self._producer.abort()
        else:
            await self._producer.commit()

    async def _send(self) -> None:
        count = 1 + self._rng.randrange(MAX_BATCH_RECORDS)
        values = [f"{self._name}:{self._numbers + step}" for step in range(count)]
        self._numbers += count
        await self._producer.send(self._log.topic, self._rng.randrange(self._log.partitions), values)


class WriterSeat:
    """A transactional id, and its successive processes."""

    def __init__(
        self,
        world: TransactionWorld,
        log: LogWorld,
        transactional_id: str,
        rng: SimRng,
        follow: Callable[[asyncio.Task[None]], None],
    ) -> None:
        """Each process is passed to `follow`."""
        self._world = world
        self._log = log
        self._id = transactional_id
        self._rng = rng
        self._follow = follow
        self._lives = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Run one process after another, until the stop and all have ended."""
        loop = self._log.loop
        while not self._log.stopping:
            self._lives += 1
            name = f"{self._id}.{self._lives}"
            writer = Writer(self._world, self._log, self._id, name, self._rng.fork(name))
            task = loop.create_task(writer.run())
            self._follow(task)
            self._tasks.append(task)
            replaced = loop.create_task(_wait(writer.replaced))
            await asyncio.wait([task, replaced], return_when=asyncio.FIRST_COMPLETED)
            replaced.cancel()
            await asyncio.sleep(self._rng.uniform(0.0, 2.0))
        await asyncio.wait(self._tasks)


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
