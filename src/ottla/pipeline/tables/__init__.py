"""Lake tables as targets: committed_offsets, commit(expected -> next). Delta now; one module a format."""
