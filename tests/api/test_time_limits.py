"""Time limits that are not numbers."""

from __future__ import annotations

import asyncio
import math

import pytest

from ottla import AsyncConsumer, AsyncProducer, Consumer, Producer
from ottla.api.messages import Deliveries
from ottla.client.librdkafka.group_consumer import GroupConsumer

NOWHERE = "127.0.0.1:1"


def test_nan_is_refused_where_a_limit_of_time_is_given() -> None:
    """No comparison with it is true, so the wait would never end."""
    with Consumer(NOWHERE) as consumer, Producer(NOWHERE) as producer:
        for call in (
            lambda: consumer.poll(math.nan),
            lambda: next(consumer.batches(idle_timeout_s=math.nan)),
            lambda: producer.flush(math.nan),
            lambda: Deliveries("t", print).one().result(math.nan),
        ):
            with pytest.raises(ValueError, match="a time limit can't be NaN: give seconds"):
                call()


def test_nan_is_refused_by_consumers_of_tools() -> None:
    with (
        GroupConsumer(NOWHERE, "g", ["t"]) as consumer,
        pytest.raises(ValueError, match="can't be NaN"),
    ):
        next(consumer.batches(idle_timeout_s=math.nan))


def test_nan_is_refused_by_clients_with_a_loop() -> None:
    async def ask() -> None:
        async with AsyncConsumer(NOWHERE) as consumer, AsyncProducer(NOWHERE) as producer:
            with pytest.raises(ValueError, match="can't be NaN"):
                await consumer.poll(math.nan)
            with pytest.raises(ValueError, match="can't be NaN"):
                await producer.flush(math.nan)

    asyncio.run(ask())
