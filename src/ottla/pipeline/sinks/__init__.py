"""Lake tables as targets: files and offsets in one commit. `table` is the interface, one module a format."""
