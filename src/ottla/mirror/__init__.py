"""`ottla mirror`: topics copied from one cluster to another, exactly once, over the wire protocol.

`copying` decides what of a fetch is written, `progress` what was committed, `routes` what is copied whereto,
`translation` where a group goes on: pure. `driver` fetches, writes and commits, `command` is what an operator types.
"""
