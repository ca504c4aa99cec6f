"""Parts of `Consumer`: the library's consumer, fetched records, positions, commits, membership, the reader."""
