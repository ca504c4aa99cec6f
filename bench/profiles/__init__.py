"""Profiles of the broker under its main workloads, kept as text beside this file.

    python -m profiles [NAME...]      from bench/; all of them when none is named

Each is two samplings of a running broker: perf (which part of the machine: kernel, interpreter, extension modules) and
py-spy with native frames (which function of ours). They need root or the right to trace, perf (Debian: linux-perf) and
py-spy (from PyPI, on the PATH or beside the interpreter). The sentence on what dominates is written by hand into
`remarks.toml`, and stands at the head of the file from then on.
"""
