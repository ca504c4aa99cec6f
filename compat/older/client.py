"""kafka-python 1.4 as a command: JSON lines of {key, value} (base64 or null) as input and output.

    client.py produce HOST:PORT VERSION TOPIC none|gzip|snappy|lz4   < records   > offsets
    client.py consume HOST:PORT VERSION TOPIC GROUP COUNT            > records, then the committed offset

VERSION is the broker version that the client assumes; from 0.9 on it joins the group.
"""

from __future__ import annotations

import base64
import json
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

WAIT_S = 30


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def produce(servers: str, version: tuple[int, ...], topic: str, codec: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=servers,
        api_version=version,
        compression_type=None if codec == "none" else codec,
        linger_ms=50,
        retries=0,
    )
    sent = []
    for line in sys.stdin:
        record = json.loads(line)
        sent.append(producer.send(topic, decoded(record["value"]), decoded(record["key"]), partition=0))
    producer.flush(WAIT_S)
    print(json.dumps([one.get(WAIT_S).offset for one in sent]))
    producer.close()


def consume(servers: str, version: tuple[int, ...], topic: str, group: str, count: str) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        api_version=version,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=WAIT_S * 1000,
    )
    partition = TopicPartition(topic, 0)
    if version >= (0, 9):
        consumer.subscribe([topic])
    else:
        consumer.assign([partition])
    left = int(count)
    for message in consumer:
        row = {"offset": message.offset, "key": encoded(message.key), "value": encoded(message.value)}
        print(json.dumps({**row, "timestamp": message.timestamp}))
        left -= 1
        if not left:
            break
    consumer.commit()
    print(json.dumps(consumer.committed(partition)))
    consumer.close()


if __name__ == "__main__":
    command, servers, version, *rest = sys.argv[1:]
    {"produce": produce, "consume": consume}[command](servers, tuple(map(int, version.split("."))), *rest)
