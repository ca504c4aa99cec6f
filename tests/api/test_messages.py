"""Both twins of `Record` and `Delivery`: their fields equal those of the library's message."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref

import confluent_kafka
import pytest

from ottla.api import _messages_py
from ottla.common.errors import ErrorCode, KafkaError

_messages = pytest.importorskip("ottla.api._messages", reason="the compiled module was not built")

TWINS = [pytest.param(_messages, id="compiled"), pytest.param(_messages_py, id="pure")]
FULL = {
    "topic": "views",
    "partition": 3,
    "offset": 7,
    "key": b"k",
    "value": b"v",
    "headers": [("h", b"1"), ("h", None)],
    "timestamp": (confluent_kafka.TIMESTAMP_CREATE_TIME, 5),
    "leader_epoch": 2,
}
BARE = {"topic": "views", "partition": 0, "offset": 0}


def message(**changes):
    return confluent_kafka.Message(**FULL | changes)


def said(record):
    return (
        record.topic,
        record.partition,
        record.offset,
        record.key,
        record.value,
        record.headers,
        record.timestamp_ms,
        record.leader_epoch,
        repr(record),
    )


@pytest.mark.parametrize("twin", TWINS)
def test_record_fields_equal_message_fields(twin):
    full, bare = twin.records_of([message(), confluent_kafka.Message(**BARE)])
    assert said(full)[:-1] == ("views", 3, 7, b"k", b"v", (("h", b"1"), ("h", None)), 5, 2)
    assert repr(full) == "<Record views-3 at 7: key b'k', value b'v'>"
    assert said(bare)[:-1] == ("views", 0, 0, None, None, (), None, None)


@pytest.mark.parametrize("twin", TWINS)
def test_records_of_equal_messages_are_equal_and_unhashable(twin):
    one, same, other = twin.records_of([message(), message(), message(value=b"w")])
    assert one == same
    assert one != other
    assert one != one.message
    assert twin.Record(one.message) == one
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


@pytest.mark.parametrize("twin", TWINS)
def test_a_record_reaches_another_process_whole(twin):
    for record in twin.records_of([message(), confluent_kafka.Message(**BARE)]):
        for again in (pickle.loads(pickle.dumps(record)), copy.deepcopy(record)):
            assert said(again) == said(record)
            assert type(again) is twin.Record


@pytest.mark.parametrize("twin", TWINS)
def test_records_end_before_the_first_error(twin):
    failed = confluent_kafka.Message(error=confluent_kafka.KafkaError(confluent_kafka.KafkaError._PARTITION_EOF))
    messages = [message(), message(offset=8), failed, message(offset=9)]
    assert [record.offset for record in twin.records_of(messages)] == [7, 8]
    assert twin.records_of(messages[2:]) == []
    assert twin.records_of([]) == []


@pytest.mark.parametrize("twin", TWINS)
def test_record_is_read_only_and_has_a_repr(twin):
    (record,) = twin.records_of([message()])
    with pytest.raises(AttributeError):
        record.value = b"w"
    assert twin.Record[bytes, str].__args__ == (bytes, str)


class Stranger:
    """A message of another type."""

    def __init__(self, offset):
        self._offset = offset

    def partition(self):
        return 5

    def offset(self):
        return self._offset

    def error(self):
        return None

    def value(self):
        return b"strange"


@pytest.mark.parametrize("twin", TWINS)
def test_messages_of_another_type_are_asked_too(twin, untold):
    def reported(messages):
        return [(record.partition, record.offset, record.value) for record in twin.records_of(messages)]

    assert reported([message(), message(offset=8)]) == [(3, 7, b"v"), (3, 8, b"v")]
    assert reported([Stranger(6), Stranger(7)]) == [(5, 6, b"strange"), (5, 7, b"strange")]
    assert reported([message()]) == [(3, 7, b"v")]
    for said in (message(), Stranger(7)):
        delivery = made(twin, untold)
        delivery(None, said)
        assert delivery.result().offset == 7


REFUSED = confluent_kafka.KafkaError(confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE)


class Heard(list):
    """A delivery callback; falsy while it is empty."""

    def __call__(self, delivery):
        self.append(delivery)


@pytest.fixture
def untold():
    return Heard()


def made(twin, untold, **given):
    return twin.Deliveries("views", untold).one(**given)


@pytest.mark.parametrize("twin", TWINS)
def test_a_delivery_says_where_the_record_got_to(twin, untold):
    for delivery in (made(twin, untold), *twin.Deliveries("views", untold).many(3)):
        assert isinstance(delivery, twin.Delivery)
        assert (delivery.topic, delivery.done, delivery.error) == ("views", False, None)
        delivery(None, message())
        assert (delivery.done, delivery.error) == (True, None)
        assert delivery.result() == ("views", 3, 7)
    assert not untold


@pytest.mark.parametrize("twin", TWINS)
def test_unknown_offset_and_partition_are_minus_one(twin, untold):
    delivery = made(twin, untold)
    delivery(None, message(offset=-1))  # as with acks=0; the library returns None
    assert delivery.result() == ("views", 3, -1)


@pytest.mark.parametrize("twin", TWINS)
def test_failure_is_reported_once_and_raised_each_time(twin, untold):
    heard = Heard()
    silent, reporting = made(twin, untold), made(twin, untold, on_delivery=heard)
    for delivery in (silent, reporting):
        delivery(REFUSED, message(offset=-1))
        for _ in range(2):
            with pytest.raises(KafkaError, match="a record for topic 'views' was not delivered") as raised:
                delivery.result()
            assert raised.value.code is delivery.error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert (untold, heard) == ([silent], [reporting])


@pytest.mark.parametrize("twin", TWINS)
def test_rejected_record_is_reported_like_a_failure(twin, untold):
    delivery = made(twin, untold)
    assert delivery.refuse(REFUSED).code is ErrorCode.MESSAGE_TOO_LARGE
    assert untold == [delivery]
    assert delivery.done


@pytest.mark.parametrize("twin", TWINS)
def test_on_delivery_is_called_on_success_and_may_raise(twin, untold, caplog):
    def fail(delivery):
        raise ZeroDivisionError

    made(twin, untold, on_delivery=fail)(None, message())
    assert "on_delivery of a record of topic 'views' failed" in caplog.text
    assert not untold


@pytest.mark.parametrize("twin", TWINS)
def test_waiting_threads_wake_for_their_record_only(twin, untold):
    first, second = twin.Deliveries("views", untold).many(2)
    found = {}
    waiting = [
        threading.Thread(target=lambda each=each: found.update({id(each): each.result(60)}))
        for each in (first, second, second)
    ]
    with pytest.raises(KafkaError, match=r"no response from 'views' within 0\.01 s"):
        first.result(0.01)
    for thread in waiting:
        thread.start()
    second(None, message(offset=8))
    for thread in waiting[1:]:
        thread.join(60)
    assert found == {id(second): ("views", 3, 8)}
    first(None, message())
    waiting[0].join(60)
    assert found[id(first)] == ("views", 3, 7)


@pytest.mark.parametrize("twin", TWINS)
def test_nothing_is_left_of_deliveries_that_know_of_themselves(twin, untold):
    """The compiled twin is not tracked by the garbage collector."""

    class Noted:
        """Freed together with the delivery that has it as callback."""

        def __call__(self, delivery):
            self.delivery = delivery

    noted = Noted()
    left = weakref.ref(noted)
    delivery = made(twin, untold, on_delivery=noted)
    delivery(REFUSED, message())
    with pytest.raises(KafkaError):
        delivery.result()
    del noted, delivery
    gc.collect()
    assert left() is None
