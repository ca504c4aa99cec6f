"""Profiles of the broker under its main workloads, stored as text next to this file.

    python -m profiles [NAME...]      from bench/; all of them by default

Each is two samplings of a running broker: perf (shares of kernel, interpreter, extension modules) and py-spy with
native frames (shares of our functions). They need root or the right to trace, perf (Debian: linux-perf) and py-spy
(from PyPI, on the PATH or next to the interpreter). The sentence about the dominating cost is written by hand into
`remarks.toml`, and is at the head of the file from then on.
"""
