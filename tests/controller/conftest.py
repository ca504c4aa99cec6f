"""An image with one registered broker, and a helper that applies a handler's records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import pytest

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.platform.endpoint import Endpoint
from ottla.controller.cluster import register_broker
from ottla.controller.features import bootstrap_records
from ottla.controller.heartbeats import BrokerHeartbeats
from ottla.controller.result import ControllerContext
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.records import ApiMessageAndVersion, decode_record, encode_record
from ottla.security.sasl.tokens import TokenIndex

ENDPOINTS = [Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092)]

CLUSTER_ID = "a-cluster-of-tests-0000"

Apply = Callable[[MetadataImage, Sequence[ApiMessageAndVersion]], MetadataImage]
MakeContext = Callable[..., ControllerContext]


def _apply(image: MetadataImage, records: Sequence[ApiMessageAndVersion]) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        # Records of a handler have to survive the round trip through the log.
        delta.replay(decode_record(encode_record(record)).message)
    return delta.apply(image.offset + len(records), 1)[0]


@pytest.fixture
def apply() -> Apply:
    return _apply


def with_brokers(broker_ids: Sequence[int]) -> MetadataImage:
    records = bootstrap_records()
    for broker_id in broker_ids:
        directory_id = bytes([broker_id]) * 16
        records.append(register_broker(broker_id, b"I" * 16, len(records), ENDPOINTS, None, [directory_id]))
    return _apply(EMPTY_IMAGE, records)


@pytest.fixture
def image() -> MetadataImage:
    return with_brokers([1])


@pytest.fixture
def three_brokers() -> MetadataImage:
    return with_brokers([1, 2, 3])


@pytest.fixture
def make_context() -> MakeContext:
    def make(**properties: str) -> ControllerContext:
        numbers = count(1)
        config, _ = BrokerConfig.parse({name.replace("_", "."): text for name, text in properties.items()})
        return ControllerContext(
            config=config,
            new_uuid=lambda: next(numbers).to_bytes(16, "big"),
            cluster_id=CLUSTER_ID,
            heartbeats=BrokerHeartbeats(config.get_int("broker.session.timeout.ms")),
            now_ms=0,
            time_ms=0,
            tokens=TokenIndex(""),
            next_offset=1000,
            kraft_version=1,
            check_voters=lambda: None,
        )

    return make


@pytest.fixture
def context(make_context: MakeContext) -> ControllerContext:
    return make_context()
