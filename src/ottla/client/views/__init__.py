"""Read models of a cluster that combine several requests, for the command line and other user interfaces.

A view is a function of `Cluster` that returns immutable values. It neither prints nor formats, except for sentences to
the operator. Not here: single requests (`ottla.client.admin`), and output (`ottla.cli`).
"""
