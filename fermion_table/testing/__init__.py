"""For tests: stores in memory that crash or lose replies, and a simulation of a whole table."""

from fermion_table.testing.catalog_simulation import simulate_catalog
from fermion_table.testing.keyed_simulation import simulate_keyed
from fermion_table.testing.scheduler import Killed, Scheduler
from fermion_table.testing.simulated_storage import Faults, SimulatedStorage, SimulatedStore
from fermion_table.testing.simulation import Report, Violation, simulate
from fermion_table.testing.stores import (
    Crash,
    CrashingStore,
    ForgetfulStore,
    LostReplies,
    MemoryStore,
    WrappedStore,
    made_up_entry,
    made_up_schema,
)

__all__ = [
    "Crash",
    "CrashingStore",
    "Faults",
    "ForgetfulStore",
    "Killed",
    "LostReplies",
    "MemoryStore",
    "Report",
    "Scheduler",
    "SimulatedStorage",
    "SimulatedStore",
    "Violation",
    "WrappedStore",
    "made_up_entry",
    "made_up_schema",
    "simulate",
    "simulate_catalog",
    "simulate_keyed",
]
