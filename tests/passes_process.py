"""A daemon that forms incidents and does nothing else, as a process that a test can kill.

Arguments: address of the database, the instant of `time.monotonic_ns` at which its clock began, and its speed.
"""

import sys
import time

from cyclewatch.collectors.base import Now
from cyclewatch.config.incidents import Incidents
from cyclewatch.daemon.clock import ScaledClock
from cyclewatch.daemon.incidents.service import IncidentService
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.store.database import open_database
from incident_daemons import SINKS
from made_incidents import START_NS

QUICK = Incidents(interval_s=2, join_s=1, gather_s=5, resolve_after_s=60)


def main() -> None:
    """Make passes until killed."""
    url, origin_ns, speed = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    clock = ScaledClock(Now(0, START_NS), origin_ns, speed)
    IncidentService(QUICK, SINKS, open_database(url, create=False), "node:1", Metrics(), clock).start()
    print("ready", flush=True)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
