"""Clients of a parent process in the child of a fork, tested in separate processes."""

from __future__ import annotations

import itertools
import subprocess
import sys

NUMBERS = itertools.count(1)
PROGRAM = """
import os, sys
from ottla import Admin, ClientClosed, Consumer, Producer
servers, topic = sys.argv[1:]
admin, producer = Admin(servers), Producer(servers)
admin.create_topic(topic, partitions=1, replication_factor=1)
producer.send(topic, "before").result(60)
consumer = Consumer(servers, {"group.id": topic, "auto.offset.reset": "earliest"}, topics=topic)
assert [record.value for record in consumer.poll(60)] == [b"before"]
child = os.fork()
if child == 0:
    for use in (
        lambda: producer.send(topic, "lost"),
        producer.flush,
        lambda: consumer.poll(60),
        consumer.commit,
        lambda: next(iter(consumer)),
        admin.topics,
    ):
        try:
            use()
        except ClientClosed as error:
            assert "created before a fork" in str(error)
        else:
            os._exit(1)
    producer.close(), consumer.close(), admin.close()
    with Producer(servers) as own:
        own.send(topic, "of the child")
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
producer.send(topic, "after").result(60)
found = []
while len(found) < 2:
    found += consumer.poll(60)
print([record.value for record in found], topic in admin.topics())
for client in (producer, consumer, admin):
    client.close()
"""


def test_child_needs_its_own_clients_and_affects_no_parent(servers):
    topic = f"forked-{next(NUMBERS)}"
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM, servers, topic]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == ["3", "[b'of the child', b'after'] True"]
