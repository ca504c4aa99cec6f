"""Search in topics over the wire: query language, decoders, ranges, scan of raw batches, order and report.

Works against every Kafka. `search.engine` runs a query; the command is in `ottla.cli.search`. Pure except for the
client's requests: clocks are arguments, and no filter is evaluated in a second place.
"""
