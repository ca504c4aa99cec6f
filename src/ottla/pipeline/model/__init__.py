"""Values of the pipeline that every room uses: plans, decoded batches, results, failures. Imports no other room."""
