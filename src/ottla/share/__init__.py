"""Share partitions and share sessions as the leader of a partition has them (KIP-932): pure, without clock or files."""
