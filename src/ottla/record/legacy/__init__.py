"""Message formats v0 and v1, from before record batches: reading, and conversion to and from format v2.

Start at `message_set` to read; `up_conversion` is for what old producers send, `down_conversion` for what old consumers
get. Where the documents leave something open, Apache Kafka 3.9 is the yardstick, the last that converted down.
"""
