"""The format "ottla" of PySpark: topics as DataFrames, by Spark's Python Data Source API and without a jar.

Options, columns and offsets are those of Spark's own Kafka connector, so that a program moves by changing one word.
"""
