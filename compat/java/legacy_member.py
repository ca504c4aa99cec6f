"""One of Ottla's legacy consumers as a process: prints each value that it reads, and leaves its group on SIGTERM."""

from __future__ import annotations

import json
import signal
import sys

from ottla import LegacyConsumer


def main(settings: str, topic: str) -> None:
    """Runs until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with LegacyConsumer(json.loads(settings)) as consumer:
        (stream,) = consumer.create_message_streams({topic: 1})[topic]
        for record in stream:
            print((record.value or b"").decode(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
