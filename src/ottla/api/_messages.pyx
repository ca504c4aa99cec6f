# cython: language_level=3, nonecheck=True
"""Records and deliveries of librdkafka messages, compiled.

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
"""C functions of the methods of library messages: a lookup by name costs more than the call itself."""
known.kind = NULL
cdef object known_kind = None
"""Keeps a reference to the type."""


cdef Getter getter_of(object kind, str name):
    """The C function of a method; NULL for another kind of attribute."""
    method = getattr(kind, name, None)
    if Py_TYPE(method) != &PyMethodDescr_Type:
        return NULL
    cdef PyMethodDef* definition = (<PyMethodDescrObject*>method).d_method
    return <Getter>definition.ml_meth if definition.ml_flags == METH_NOARGS else NULL


cdef void learn(object kind):
    """Use the C functions of this message type from now on, if possible."""
    global known_kind
    known.kind = NULL
    known_kind = kind
    known.error, known.key, known.value = getter_of(kind, "error"), getter_of(kind, "key"), getter_of(kind, "value")
    known.topic, known.partition = getter_of(kind, "topic"), getter_of(kind, "partition")
    known.offset = getter_of(kind, "offset")
    if known.error and known.key and known.value and known.topic and known.partition and known.offset:
        known.kind = <PyTypeObject*>kind


cdef inline void meet(object message):
    """Look up the C functions of a new message type."""
    if Py_TYPE(message) != <PyTypeObject*>known_kind:
        learn(type(message))


cdef inline object asked(object message, Getter getter, str name):
    """Call a method of a message: by `getter`, a field of `known`, otherwise by name."""
    return getter(message, NULL) if Py_TYPE(message) == known.kind else getattr(message, name)()


@cython.freelist(1024)
cdef class Record:
    """A record that was read. It owns its bytes, which stay valid for its lifetime.

    `message` is that of confluent-kafka; with deserializers it contains the deserialized objects. Records of equal
    messages are equal.
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
        """Epoch of the leader that wrote the record (KIP-320)."""
        return self.message.leader_epoch()

    @property
    def timestamp_ms(self):
        """Creation time, or with `message.timestamp.type=LogAppendTime` append time; None without a timestamp."""
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
    """The records of the messages before the first error."""
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
@cython.no_gc  # no reference cycles: exceptions are created on access, and the callback is dropped after its call
@cython.auto_pickle(False)
cdef class Delivery:
    """The outcome of a sent record: a future that is filled when the broker has responded.

    The library calls the object itself. The garbage collector does not track it, since it would visit all records in
    flight again and again.
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
        """True once the outcome is known."""
        return self.known

    @property
    def error(self):
        """The error of a failed delivery."""
        return None if self.failure is None else KafkaError(*self.failure)

    def result(self, timeout_s=None):
        """Wait for the delivery; without `timeout_s` as long as `delivery.timeout.ms` permits.

        Raises the KafkaError of the failure, and KafkaError REQUEST_TIMED_OUT after `timeout_s`.
        """
        if not self.known:
            wait_for(self, self.shared.waiting, timeout_s)
        if self.failure is not None:
            raise KafkaError(*self.failure)
        return RecordMetadata(self.shared.topic, self.partition, self.offset)

    def __call__(self, error, message):
        """The library's delivery report; called once, in any thread that serves reports."""
        if error is not None:
            self.failure = failure_of(error, self.shared.topic)
        meet(message)
        partition = asked(message, known.partition, "partition")
        offset = asked(message, known.offset, "offset")
        self.partition = -1 if partition is None else partition
        self.offset = -1 if offset is None else offset
        self.settle()

    def refuse(self, reason):
        """Handle a record that the library rejected; returns the error."""
        self.failure = failure_of(reason, self.shared.topic)
        self.partition = self.offset = -1
        self.settle()
        return self.error

    cdef settle(self):
        self.known = True
        if self.failure is None and self.on_delivery is None and not self.shared.waiting:
            return
        callback, self.on_delivery = self.on_delivery, None
        if callback is None and self.failure is not None:
            callback = self.shared.untold
        tell(self, self.shared.waiting, callback)


cdef class Deliveries:
    """Shared state of the deliveries of one topic of a producer; `untold` receives failures without `on_delivery`."""

    cdef object topic
    cdef object untold
    cdef list waiting
    """Waiters for a delivery, each with the event of its thread."""

    def __init__(self, topic, untold):
        self.topic = topic
        self.untold = untold
        self.waiting = []

    def one(self, on_delivery=None):
        """The delivery of a record."""
        cdef Delivery delivery = Delivery.__new__(Delivery)
        delivery.shared = self
        delivery.on_delivery = on_delivery
        return delivery

    def many(self, Py_ssize_t count):
        """The deliveries of `count` records."""
        cdef list deliveries = []
        cdef Delivery delivery
        for _ in range(count):
            delivery = Delivery.__new__(Delivery)
            delivery.shared = self
            deliveries.append(delivery)
        return deliveries
