"""All clients of a round: their start and end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from .book import Book
from .clients import GROUPS, PRODUCERS, READERS, Client, Member, Producing, Reading, Round
from .transactions import COPIERS, COPY_READER, WRITERS, Copying, Writing, copies_of


class Clients:
    """All of a round; without transactional ones where losses are allowed."""

    def __init__(self, the_round: Round, rng: random.Random) -> None:
        def own() -> random.Random:
            return random.Random(rng.random())

        self.round = the_round
        self.producers = [Producing(the_round, name, own()) for name in PRODUCERS]
        self.readers = [Reading(the_round, name, own(), committed=each) for name, each in READERS.items()]
        self.members = [
            Member(the_round, f"{protocol}-{number}", own(), protocol)
            for protocol, count in GROUPS.items()
            for number in range(count)
        ]
        self.groups = sorted({member.group for member in self.members})
        self.copies = Book(the_round.book.figures.beside(), transactional=True, beside=the_round.book)
        self.writers: list[Writing] = []
        self.copiers: list[Copying] = []
        self.copy_readers: list[Reading] = []
        if not the_round.lossy:
            copying = replace(the_round, topic=copies_of(the_round.topic), book=self.copies)
            self.writers = [Writing(the_round, name, own()) for name in WRITERS]
            self.copiers = [Copying(the_round, self.copies, name, own()) for name in COPIERS]
            self.copy_readers = [Reading(copying, COPY_READER, own(), committed=True)]

    def stop(self, clients: Sequence[Client] | None = None) -> None:
        """End them, by default all; returns when they have."""
        all_clients = [
            *self.producers,
            *self.writers,
            *self.copiers,
            *self.readers,
            *self.copy_readers,
            *self.members,
        ]
        chosen = all_clients if clients is None else clients
        for client in chosen:
            client.stopping.set()
        for client in chosen:
            client.join()
