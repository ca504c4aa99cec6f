"""Record batches: view, builder, walk, compression."""
