"""Lake tables as targets: committed_offsets, commit(expected -> next). `table` is the interface, one module a format."""
