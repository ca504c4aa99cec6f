"""Classic groups: the leader assigns partitions (JoinGroup, SyncGroup, Heartbeat, LeaveGroup)."""
