"""A consume-transform-produce loop on confluent-kafka, as a process that others kill.

    python copier.py '{"servers": ..., "source": ..., "target": ..., "group": ..., "name": ..., "consumer": {...}}'

Each transaction takes some records of the source to the same partitions of the target, and the group's offsets with
them; one in eight is aborted. Every step is a line on standard output, so that a killer can choose where; the end of
standard input ends it.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

CHUNK = 20
"""Records a transaction, at most."""
ABORTS = 8
TIMEOUT_S = 30
ANSWER_S = 2
TRANSACTION_TIMEOUT_MS = 5_000
HUNG_S = 6.0
"""If the only broker was away for a moment, librdkafka 2.16 may never send the TxnOffsetCommit after AddOffsetsToTxn,
and waits longer than its timeout, with Apache Kafka too: such a copier has to be restarted."""
EXIT_FATAL = 3
STEPS = ("began", "sent", "offsets", "ended")


def report(step: str) -> None:
    print(step, flush=True)


def complain(error: KafkaError) -> None:
    print(f"{time.monotonic():.1f} {error.name()}: {error.str()}", file=sys.stderr, flush=True)


class Copier:
    """One member of the group, with a transactional id of its own."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._target = settings["target"]
        common = {
            "bootstrap.servers": settings["servers"],
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        self._producer = Producer(
            {
                **common,
                "transactional.id": settings["name"],
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 1,
                "retry.backoff.ms": 20,
            }
        )
        self._consumer = Consumer(
            {
                **common,
                "group.id": settings["group"],
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **settings["consumer"],
            }
        )
        self._producer.init_transactions(TIMEOUT_S)
        self._consumer.subscribe([settings["source"]])
        self._random = random.Random()
        self._ended = threading.Event()
        self._asked = 0.0
        threading.Thread(target=self._wait_for_end, daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()

    def _wait_for_end(self) -> None:
        sys.stdin.read()
        self._ended.set()

    def _watch(self) -> None:
        """End a process that hangs in its library."""
        while not self._ended.wait(0.5):
            if self._asked and time.monotonic() - self._asked > HUNG_S:
                print("the library hangs", file=sys.stderr, flush=True)
                os._exit(EXIT_FATAL)

    def run(self) -> None:
        """Until the end of standard input."""
        while not self._ended.is_set():
            messages = []
            for each in self._consumer.consume(CHUNK, 0.2):
                error = each.error()
                if error is None:
                    messages.append(each)
                elif error.fatal():
                    raise KafkaException(error)
                else:
                    complain(error)
            if messages:
                self._copy(messages)
        self._consumer.close()

    def _copy(self, messages: list[Message]) -> None:
        """One transaction; aborted records are read again."""
        self._producer.begin_transaction()
        report("began")
        try:
            for message in messages:
                self._producer.produce(self._target, message.value(), message.key(), message.partition())
            self._producer.flush(TIMEOUT_S)
            report("sent")
            positions = self._consumer.position(self._consumer.assignment())
            offsets = [each for each in positions if each.offset >= 0]
            metadata = self._consumer.consumer_group_metadata()
            self._until_answered(partial(self._producer.send_offsets_to_transaction, offsets, metadata))
            report("offsets")
            if self._random.randrange(ABORTS):
                self._until_answered(self._producer.commit_transaction)
            else:
                self._abort()
            report("ended")
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            complain(error.args[0])
            self._abort()

    def _abort(self) -> None:
        self._until_answered(self._producer.abort_transaction)
        for each in self._consumer.committed(self._consumer.assignment(), TIMEOUT_S):
            each.offset = max(each.offset, 0)
            self._consumer.seek(each)

    def _until_answered(self, ask: Any) -> None:
        """Retry a repeatable request until it is answered."""
        while True:
            self._asked = time.monotonic()
            try:
                ask(ANSWER_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                complain(error.args[0])
            else:
                return
            finally:
                self._asked = 0.0


def main() -> int:
    try:
        Copier(json.loads(sys.argv[1])).run()
    except KafkaException as error:
        complain(error.args[0])
        return EXIT_FATAL
    return 0


if __name__ == "__main__":
    sys.exit(main())
