"""Topics that belong to the brokers themselves."""

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
"""Topics that Metadata marks as internal; consumer patterns do not match them."""
MAX_DEFAULT_REPLICAS = 3
"""Replicas of an internal topic without a configured replication factor, if there are enough brokers."""
