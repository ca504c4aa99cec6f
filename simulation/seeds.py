"""Runs many seeds, in this process or in several.

A separate module, since the processes of a pool import the function to run by its name.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from simulation.groups import GroupSimulation, Options
from simulation.queues import QueueOptions, QueueSimulation
from simulation.replication import ClusterOptions, ReplicationSimulation
from simulation.simulation import RunOutcome
from simulation.transactions import TransactionOptions, TransactionSimulation

COLLECT_AFTER = 20_000
"""Number of new objects until the garbage collector runs: a node that died leaves several thousand in cycles."""
GROUPS, CLUSTER, COMPACTED, TRANSACTIONS, QUEUES = "groups", "cluster", "compacted", "transactions", "queues"


def outcomes_of(chosen: argparse.Namespace) -> Iterator[RunOutcome]:
    """The outcome of each seed, in their order, by the options of the command."""
    run = partial(_run, chosen=chosen)
    seeds = range(chosen.seed, chosen.seed + chosen.many)
    if chosen.jobs <= 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(chosen.jobs, get_context("spawn")) as pool:
        yield from pool.map(run, seeds)


def _run(seed: int, chosen: argparse.Namespace) -> RunOutcome:
    if not gc.get_freeze_count():
        gc.freeze()  # modules, which no collection has to look at again
        gc.set_threshold(COLLECT_AFTER)
    return WORKLOADS[chosen.workload](seed, chosen)


def _groups(seed: int, chosen: argparse.Namespace) -> RunOutcome:
    faults_s = Options.faults_s if chosen.faults_s is None else chosen.faults_s
    return GroupSimulation(seed, Options(protocol=chosen.protocol, faults_s=faults_s), time.process_time).run()


def _cluster(seed: int, chosen: argparse.Namespace) -> RunOutcome:
    faults_s = ClusterOptions.faults_s if chosen.faults_s is None else chosen.faults_s
    options = ClusterOptions(
        protocol=chosen.protocol,
        faults_s=faults_s,
        beyond=chosen.beyond,
        damage=chosen.damage,
        compacted=chosen.workload == COMPACTED,
    )
    return ReplicationSimulation(seed, options, time.process_time).run()


def _transactions(seed: int, chosen: argparse.Namespace) -> RunOutcome:
    faults_s = TransactionOptions.faults_s if chosen.faults_s is None else chosen.faults_s
    options = TransactionOptions(protocol=chosen.protocol, faults_s=faults_s, damage=chosen.damage)
    return TransactionSimulation(seed, options, time.process_time).run()


def _queues(seed: int, chosen: argparse.Namespace) -> RunOutcome:
    faults_s = QueueOptions.faults_s if chosen.faults_s is None else chosen.faults_s
    return QueueSimulation(seed, QueueOptions(faults_s=faults_s), time.process_time).run()


WORKLOADS = {
    GROUPS: _groups,
    CLUSTER: _cluster,
    COMPACTED: _cluster,
    TRANSACTIONS: _transactions,
    QUEUES: _queues,
}
"""The function that runs a seed, by the name of the workload."""
