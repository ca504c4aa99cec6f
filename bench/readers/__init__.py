"""Programs that read a topic by Spark, for `bench/pipeline.py` and `bench/micro_batch.py`."""
