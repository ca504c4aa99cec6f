# cython: language_level=3, nonecheck=True
"""What the library's messages become, compiled: records that were read, and what became of those that were sent.

`_messages_py.py` is its twin and reference.
"""

from types import GenericAlias

cimport cython
from cpython.object cimport PyObject, PyTypeObject, Py_TYPE

from ottla.api._messages_py import failure_of, parts_of, restored, tell, wait_for
from ottla.api.records import RecordMetadata
from ottla.client.librdkafka.rdkafka import headers_of
from ottla.common.errors import KafkaError

ctypedef object (*Getter)(object message, PyObject* nothing)

cdef extern from "Python.h":
    ctypedef PyObject* (*PyCFunction)(PyObject*, PyObject*)
    ctypedef struct PyMethodDef:
        PyCFunction ml_meth
        int ml_flags
    ctypedef struct PyMethodDescrObject:
        PyMethodDef* d_method
    PyTypeObject PyMethodDescr_Type
    int METH_NOARGS


cdef struct Getters:
    PyTypeObject* kind
    Getter error
    Getter key
    Getter value
    Getter topic
    Getter partition
    Getter offset


cdef Getters known
"""The C functions behind methods of the library's messages: to find one by its name costs more than it takes itself."""
known.kind = NULL
cdef object known_kind = None
"""Keeps that type."""


cdef Getter getter_of(object kind, str name):
    """NULL where the method is another kind of thing."""
    method = getattr(kind, name, None)
    if Py_TYPE(method) != &PyMethodDescr_Type:
        return NULL
    cdef PyMethodDef* definition = (<PyMethodDescrObject*>method).d_method
    return <Getter>definition.ml_meth if definition.ml_flags == METH_NOARGS else NULL


cdef void learn(object kind):
    """Ask messages of this type without a look-up from now on, where that can be."""
    global known_kind
    known.kind = NULL
    known_kind = kind
    known.error, known.key, known.value = getter_of(kind, "error"), getter_of(kind, "key"), getter_of(kind, "value")
    known.topic, known.partition = getter_of(kind, "topic"), getter_of(kind, "partition")
    known.offset = getter_of(kind, "offset")
    if known.error and known.key and known.value and known.topic and known.partition and known.offset:
        known.kind = <PyTypeObject*>kind


cdef inline void meet(object message):
    """Learn of its type what there is to know."""
    if Py_TYPE(message) != <PyTypeObject*>known_kind:
        learn(type(message))


cdef inline object asked(object message, Getter getter, str name):
    """What one of its methods says: by `getter`, which is that of `known`, or else by its name."""
    return getter(message, NULL) if Py_TYPE(message) == known.kind else getattr(message, name)()


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
        return asked(self.message, known.key, "key")

    @property
    def value(self):
        return asked(self.message, known.value, "value")

    @property
    def topic(self):
        return asked(self.message, known.topic, "topic")

    @property
    def partition(self):
        return asked(self.message, known.partition, "partition")

    @property
    def offset(self):
        return asked(self.message, known.offset, "offset")

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
        return headers_of(self.message)

    def __eq__(self, other):
        return self.message == (<Record>other).message if isinstance(other, Record) else NotImplemented

    __hash__ = None

    def __reduce__(self):
        return restored, (type(self), *parts_of(self.message))

    def __repr__(self):
        return f"<Record {self.topic}-{self.partition} at {self.offset}: key {self.key!r}, value {self.value!r}>"


def records_of(list messages):
    """A record of each message, up to the first that is an error."""
    cdef Py_ssize_t number = 0
    cdef list records = [None] * len(messages)
    cdef Record record
    for message in messages:
        meet(message)
        if asked(message, known.error, "error") is not None:
            del records[number:]
            break
        record = Record.__new__(Record)
        record.message = message
        records[number] = record
        number += 1
    return records


@cython.freelist(1024)
@cython.no_gc  # nothing of it leads back: a failure is made for whoever asks, and who is to be told is told once
@cython.auto_pickle(False)
cdef class Delivery:
    """What becomes of a record that was sent: a future that is filled when its broker has answered.

    The library calls the object itself, and it is no work for the garbage collector, which would look at all that are
    on their way, again and again.
    """

    cdef Deliveries shared
    cdef object on_delivery
    cdef object failure
    cdef int partition
    cdef long long offset
    cdef bint known

    @property
    def topic(self):
        return self.shared.topic

    @property
    def done(self):
        """Whether its fate is known."""
        return self.known

    @property
    def error(self):
        """Why it failed, once it did."""
        return None if self.failure is None else KafkaError(*self.failure)

    def result(self, timeout_s=None):
        """Wait until it is delivered; for ever where no time is given, which `delivery.timeout.ms` bounds.

        Raises the KafkaError that it failed with, and KafkaError REQUEST_TIMED_OUT after `timeout_s`.
        """
        if not self.known:
            wait_for(self, self.shared.waiting, timeout_s)
        if self.failure is not None:
            raise KafkaError(*self.failure)
        return RecordMetadata(self.shared.topic, self.partition, self.offset)

    def __call__(self, error, message):
        """The library's delivery report; once, from whichever thread serves it."""
        if error is not None:
            self.failure = failure_of(error, self.shared.topic)
        meet(message)
        partition = asked(message, known.partition, "partition")
        offset = asked(message, known.offset, "offset")
        self.partition = -1 if partition is None else partition
        self.offset = -1 if offset is None else offset
        self.settle()

    def refuse(self, reason):
        """The library would not take it; gives its error."""
        self.failure = failure_of(reason, self.shared.topic)
        self.partition = self.offset = -1
        self.settle()
        return self.error

    cdef settle(self):
        self.known = True
        if self.failure is None and self.on_delivery is None and not self.shared.waiting:
            return
        told, self.on_delivery = self.on_delivery, None
        if told is None and self.failure is not None:
            told = self.shared.untold
        tell(self, self.shared.waiting, told)


cdef class Deliveries:
    """What those of one topic of a producer share; `untold` gets those that failed and have no `on_delivery`."""

    cdef object topic
    cdef object untold
    cdef list waiting
    """Who waits for one of them: each with the event of his thread."""

    def __init__(self, topic, untold):
        self.topic = topic
        self.untold = untold
        self.waiting = []

    def one(self, on_delivery=None):
        """Of a record."""
        cdef Delivery delivery = Delivery.__new__(Delivery)
        delivery.shared = self
        delivery.on_delivery = on_delivery
        return delivery

    def many(self, Py_ssize_t count):
        """Of so many records."""
        cdef list deliveries = []
        cdef Delivery delivery
        for _ in range(count):
            delivery = Delivery.__new__(Delivery)
            delivery.shared = self
            deliveries.append(delivery)
        return deliveries
