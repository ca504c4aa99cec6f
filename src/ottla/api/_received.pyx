# cython: language_level=3
"""`Record` and how the library's messages become some, compiled; `_received_py.py` is its twin and reference."""

from types import GenericAlias

cimport cython

from ottla.api._received_py import parts_of, restored


@cython.freelist(1024)
cdef class Record:
    """A record that was read. Its bytes are its own, and stay for as long as it does.

    `message` is confluent-kafka's; where there are deserializers it holds what they gave. Equal are records of
    equal messages.
    """

    cdef readonly object message

    __class_getitem__ = classmethod(GenericAlias)

    def __init__(self, message):
        self.message = message

    @property
    def key(self):
        return self.message.key()

    @property
    def value(self):
        return self.message.value()

    @property
    def topic(self):
        return self.message.topic()

    @property
    def partition(self):
        return self.message.partition()

    @property
    def offset(self):
        return self.message.offset()

    @property
    def leader_epoch(self):
        """Of the leader that wrote it (KIP-320)."""
        return self.message.leader_epoch()

    @property
    def timestamp_ms(self):
        """When it was made, or with `message.timestamp.type=LogAppendTime` appended; None where it has none."""
        kind, timestamp = self.message.timestamp()
        return timestamp if kind else None

    @property
    def headers(self):
        return tuple(self.message.headers() or ())

    def __eq__(self, other):
        return self.message == (<Record>other).message if isinstance(other, Record) else NotImplemented

    __hash__ = None

    def __reduce__(self):
        return restored, (type(self), *parts_of(self.message))

    def __repr__(self):
        return f"<Record {self.topic}-{self.partition} at {self.offset}: key {self.key!r}, value {self.value!r}>"


def records_of(list messages):
    """A record of each message, up to the first that is an error."""
    cdef list records = []
    cdef Record record
    if not messages:
        return records
    error = type(messages[0]).error  # found once: to look it up costs as much as to call it
    for message in messages:
        if error(message) is not None:
            break
        record = Record.__new__(Record)
        record.message = message
        records.append(record)
    return records
