"""Client quotas (KIP-13, KIP-124, KIP-219, KIP-546, KIP-599, KIP-612): shared groups and throttle times. Pure.

A client above its quota gets its response at once, and its connection is then muted for a while; it is never refused.
Only partition changes and connections of an address are refused. Not here: the responses and the connections
(`server`, `net`), and the replication throttle (`replica.throttle`).
"""
