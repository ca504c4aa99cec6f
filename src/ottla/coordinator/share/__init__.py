"""Share coordinator (KIP-932): durable state of share partitions, a pure state machine over `__share_group_state`."""
