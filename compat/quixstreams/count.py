"""Counts records by key: `python count.py SERVERS SOURCE TARGET GROUP DIRECTORY`.

Sends every count to the target, with state in a changelog, exactly once, until SIGTERM.
"""

import sys

from quixstreams import Application, State


def count(_: bytes, state: State) -> str:
    """Increments the count of this key."""
    total = state.get("count", 0) + 1
    state.set("count", total)
    return str(total)


def main() -> None:
    servers, source, target, group, directory = sys.argv[1:]
    client = {"reconnect.backoff.max.ms": 200}
    app = Application(
        broker_address=servers,
        consumer_group=group,
        processing_guarantee="exactly-once",
        auto_offset_reset="earliest",
        commit_interval=0.1,
        state_dir=directory,
        consumer_extra_config={**client, "session.timeout.ms": 6000, "heartbeat.interval.ms": 500},
        producer_extra_config={**client, "transactional.id": group, "transaction.timeout.ms": 10_000},
        loglevel="WARNING",
    )
    lines = app.dataframe(app.topic(source, value_deserializer="bytes"))
    lines.apply(count, stateful=True).to_topic(app.topic(target, value_serializer="string"))
    app.run()


if __name__ == "__main__":
    main()
