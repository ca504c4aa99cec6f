"""`ottla pipeline push` or `replay` in a process that kills itself: `push_driver.py TRANSACTION STEP ARGUMENT...`.

At that step of that transaction, counted from 1: "sent", "offsets" (both before the commit) or "committed".
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from ottla.client.librdkafka.transactional_producer import TransactionalProducer
from ottla.pipeline.cli import pipeline
from ottla.pipeline.operations import push

if __name__ == "__main__":
    transaction, step, *arguments = sys.argv[1:]
    send_offsets, commit = TransactionalProducer.send_offsets, TransactionalProducer.commit

    def reach(producer: TransactionalProducer, name: str, number: int) -> None:
        if name == step and number == int(transaction):
            os.kill(os.getpid(), signal.SIGKILL)

    def deadly_send_offsets(producer: TransactionalProducer, *offsets: Any) -> None:
        reach(producer, "sent", producer.transaction_count + 1)
        send_offsets(producer, *offsets)
        reach(producer, "offsets", producer.transaction_count + 1)

    def deadly_commit(producer: TransactionalProducer) -> None:
        commit(producer)
        reach(producer, "committed", producer.transaction_count)

    TransactionalProducer.send_offsets = deadly_send_offsets  # type: ignore[assignment,method-assign]
    TransactionalProducer.commit = deadly_commit  # type: ignore[assignment,method-assign]
    push.TRANSACTION_ROWS = 1_000
    pipeline(arguments)
