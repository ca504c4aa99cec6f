"""Programs that read a topic into Parquet files by Spark, for `bench/pipeline.py`."""
