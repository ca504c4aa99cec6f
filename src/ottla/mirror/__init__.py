"""`ottla mirror`: exactly-once replication of topics to another cluster over the Kafka protocol.

Pure modules: `copying` selects fetched records to copy, `progress` tracks committed progress, `routes` maps topics to
their targets, `translation` translates group offsets. `driver` fetches, writes and commits; `command` is the CLI.
"""
