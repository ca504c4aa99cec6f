"""Loads of topics into lake tables, exactly once, with PySpark.

Connects to clusters only through `ottla.client`; the broker does not import this package. `plan` selects the offsets to
load, `land` writes them as files in Spark's Python workers, `decode` converts record batches to Arrow, `sinks` commits
data files and offsets together. Python programs use `api`. Importing this package imports neither Spark nor Arrow: the
extra is optional.
"""
