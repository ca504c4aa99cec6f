"""Options of a read: accepted values, and one-sentence errors for others."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.common.errors import OperatorError
from ottla.pipeline.datasource.options import Bound, for_batch, for_stream, parse_options

LEAST = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a"}


def test_defaults_are_those_of_sparks_connector() -> None:
    options = parse_options(LEAST)
    assert options.isolation == "read_uncommitted"
    assert (options.on_data_loss, options.include_headers, options.no_match) == ("fail", False, "error")
    assert options.max_trigger_delay_ms == 15 * 60_000
    batch, stream = for_batch(options), for_stream(options)
    assert (batch.start, batch.end) == (Bound("", EARLIEST_TIMESTAMP), Bound("", LATEST_TIMESTAMP))
    assert (stream.start, stream.end) == (Bound("", LATEST_TIMESTAMP), None)


def test_option_names_are_case_insensitive() -> None:
    options = parse_options({"KAFKA.BOOTSTRAP.SERVERS": "h:1", "SubscribePattern": "a.*", "FAILONDATALOSS": "False"})
    assert options.bootstrap_servers == "h:1"
    assert options.subscription.pattern == "a.*"
    assert options.on_data_loss == "skip"


def test_precedence_of_time_times_and_offsets() -> None:
    given = {
        "startingOffsets": "latest",
        "startingOffsetsByTimestamp": '{"a":{"0":7}}',
        "startingTimestamp": "5",
    }
    assert parse_options(LEAST | given).start == Bound("startingTimestamp", 5)
    del given["startingTimestamp"]
    assert parse_options(LEAST | given).start == Bound("startingOffsetsByTimestamp", times={("a", 0): 7})
    del given["startingOffsetsByTimestamp"]
    assert parse_options(LEAST | given).start == Bound("startingOffsets", LATEST_TIMESTAMP)


@pytest.mark.parametrize(
    ("text", "expected"), [("15m", 900_000), ("30s", 30_000), ("250", 250), ("1 h", 3_600_000), ("500MS", 500)]
)
def test_times_are_written_as_spark_writes_them(text: str, expected: int) -> None:
    assert parse_options(LEAST | {"maxTriggerDelay": text}).max_trigger_delay_ms == expected


def test_harmless_consumer_settings_are_accepted() -> None:
    options = parse_options(
        LEAST | {"kafka.session.timeout.ms": "1", "kafka.max.poll.records": "9", "groupIdPrefix": "p"}
    )
    assert options.group_id is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": ""}, "subscribe names no topic"),
        ({"assign": '{"a":[0]}'}, "subscribe and assign are given both: give exactly one of"),
        ({"startingOffsets": "sometimes"}, "startingOffsets is not earliest, latest or a JSON object"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "startingOffsets must be JSON such as"),
        ({"startingOffsets": '{"a":{"x":1}}'}, "startingOffsets must be JSON such as"),
        ({"startingOffsets": '{"a":{"0":true}}'}, "startingOffsets must be JSON such as"),
        ({"startingOffsets": '{"a":{"%s":1}}' % ("9" * 5_000)}, "startingOffsets must be JSON such as"),
        ({"startingOffsets": '{"a":{"4294967296":1}}'}, "startingOffsets must be JSON such as"),
        ({"startingOffsets": '{"a":{"0":1,"00":2}}'}, "startingOffsets must be JSON such as"),
        ({"startingOffsets": '{"\\ud800":{"0":1}}'}, "startingOffsets is not earliest, latest or a JSON object"),
        ({"startingOffsets": "[" * 100_000}, "startingOffsets is not earliest, latest or a JSON object"),
        ({"startingOffsetsByTimestamp": '{"a":{"0":-1}}'}, "startingOffsetsByTimestamp must be JSON such as"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp must be milliseconds since 1970"),
        ({"startingTimestamp": "9" * 5_000}, "startingTimestamp must be milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "no"}, "must be error or latest"),
        ({"minPartitions": "0"}, "minPartitions must be a whole number above 0"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger must be a whole number above 0"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            r"\(9\) is higher than maxOffsetsPerTrigger \(8\)",
        ),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a time such as 15m"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss must be true or false"),
        ({"kafka.isolation.level": "serializable"}, r"kafka\.isolation\.level must be read_uncommitted or read_comm"),
        ({"kafka.auto.offset.reset": "latest"}, "can't be given: startingOffsets sets the start"),
        ({"kafka.enable.auto.commit": "true"}, "the query's checkpoint stores the offsets"),
        ({"kafka.key.deserializer": "X"}, "the column `key` has the bytes"),
        ({"kafka.security.protocol": "TLS"}, r"security\.protocol in the options kafka\.\* is TLS: use one of"),
        ({"kafka.security.protocol": "SASL_SSL"}, r"sasl\.mechanism in the options kafka\.\* is GSSAPI: set it to"),
        ({"kafka.sasl.jaas.config": "x"}, r"kafka\.sasl\.jaas\.config has no effect without kafka\.security\.protocol"),
        ({"kafka.ssl.truststore.loction": "x"}, r"did you mean kafka\.ssl\.truststore\.location\?"),
        ({"kafka.isolation.levle": "x"}, r"did you mean kafka\.isolation\.level\?"),
        ({"includeheader": "true"}, r"unknown option 'includeheader'; did you mean includeHeaders\?"),
        ({"path": "/tmp"}, "unknown option 'path'"),
    ],
)
def test_mistakes_are_reported_in_one_sentence(given: dict[str, str], message: str) -> None:
    with pytest.raises(OperatorError, match=message) as caught:
        parse_options(LEAST | given)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_options_refused_in_batch_or_stream() -> None:
    for given in ({"startingOffsets": "latest"}, {"startingOffsets": json.dumps({"a": {"0": -1}})}):
        with pytest.raises(OperatorError, match="can't be latest"):
            for_batch(parse_options(LEAST | given))
    for given in ({"endingOffsets": "earliest"}, {"endingOffsets": json.dumps({"a": {"0": -2}})}):
        with pytest.raises(OperatorError, match="can't be earliest"):
            for_batch(parse_options(LEAST | given))
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        text = '{"a":{"0":1}}' if name.endswith("ByTimestamp") else "1" if name.endswith("Timestamp") else "latest"
        with pytest.raises(OperatorError, match=f"{name} has no meaning in a streaming query"):
            for_stream(parse_options(LEAST | {name: text}))
