"""A whole table under simulated faults, and the storage and the scheduler that inject them."""

from tests.kit.simulation.catalog_simulation import simulate_catalog
from tests.kit.simulation.keyed_simulation import simulate_keyed
from tests.kit.simulation.scheduler import Killed, Scheduler
from tests.kit.simulation.simulated_storage import Faults, SimulatedStorage, SimulatedStore
from tests.kit.simulation.simulation import Report, Violation, simulate
from tests.kit.simulation.transaction_simulation import simulate_transactions

__all__ = [
    "Faults",
    "Killed",
    "Report",
    "Scheduler",
    "SimulatedStorage",
    "SimulatedStore",
    "Violation",
    "simulate",
    "simulate_catalog",
    "simulate_keyed",
    "simulate_transactions",
]
