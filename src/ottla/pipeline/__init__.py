"""Topics into lake tables, exactly once, by PySpark.

Reaches a cluster only through `ottla.client`; the broker imports nothing of this. `plan` says what is to be loaded,
`land` moves it inside Spark's Python workers, `decode` turns record batches into Arrow, `sinks` commits data files and
offsets together. Importing this package imports neither Spark nor Arrow: the extra `pipeline` may be missing.
"""
