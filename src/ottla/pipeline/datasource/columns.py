"""The columns of the source as DDL: those of Spark's Kafka connector. `rows` fills them."""

SPARK_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS_SCHEMA = ", headers array<struct<key: string, value: binary>>"


def spark_schema(*, headers: bool) -> str:
    """The columns, with or without headers."""
    return SPARK_SCHEMA + (HEADERS_SCHEMA if headers else "")
