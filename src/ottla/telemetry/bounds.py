"""Limits of client metrics: memory of a broker, work for one push, and names in the exposition."""

from __future__ import annotations

MAX_INSTANCES = 16_384
"""Client instances of a broker, as in Apache Kafka."""
MAX_CLIENT_SERIES = 2_000
"""Series of one client."""
MAX_SERIES = 50_000
"""Series of all clients of a broker."""

MAX_MESSAGES = 10_000
"""Resources, scopes and metrics of one push."""
MAX_METRIC_BYTES = 256 * 1024
"""Size of one metric with all its points."""
MAX_RESOURCE_BYTES = 16 * 1024
"""Size of one resource."""
MAX_POINTS = 500
"""Points that are read of one metric; the rest is omitted."""
MAX_ATTRIBUTES = 32
"""Attributes that are read of one point or resource."""
MAX_BUCKETS = 200
"""Buckets of a histogram; a point with more is omitted, since a part of it would be wrong."""

MAX_NAME_CHARACTERS = 200
"""Longest name of a metric; longer ones are omitted."""
MAX_LABELS = 16
"""Attributes of a point that become labels."""
MAX_LABEL_CHARACTERS = 200
"""Longest name and value of a label; the rest is cut off."""
