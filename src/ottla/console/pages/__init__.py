"""Pages of the console: each function of a module takes a `context.Context` and returns a response.

A page runs in a thread of its own and may block. It neither checks rights nor writes the audit log:
`ottla.console.application` does that for each row of the route table.
"""
