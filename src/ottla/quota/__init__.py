"""Limits of clients (KIP-13, KIP-124, KIP-219, KIP-546, KIP-599, KIP-612): who shares which, how long to wait. Pure.

A limit is met by answering at once and then serving the connection nothing for a while, never by refusing; only changes
of partitions and connections of an address are refused. Left out: the answers and the connections (`server`, `net`),
and the throttle of replication (`replica.throttle`).
"""
