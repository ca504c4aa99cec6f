"""Classic groups: members agree through their leader (join, sync, heartbeat, leave)."""
