"""Message formats v0 and v1, from before record batches: reading, and conversion to and from format v2.

`message_set` reads; `up_conversion` is for old producers, `down_conversion` for old consumers. Behaviour that the
documents leave open follows Apache Kafka 3.9, the last that converted down.
"""
