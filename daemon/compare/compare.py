"""From what was named to a comparison."""

from collections.abc import Callable

from sqlalchemy import Engine

from cyclewatch.daemon.compare.comparison import Comparison
from cyclewatch.daemon.compare.cycles import compare_cycles
from cyclewatch.daemon.compare.profiles import compare_two_profiles
from cyclewatch.daemon.compare.report import compare_report
from cyclewatch.daemon.compare.sources import (
    CyclesSource,
    ProfileSource,
    RegressionSource,
    ReportSource,
    Source,
    SourceError,
    Sources,
    StoredProfileSource,
    TimeSource,
)
from cyclewatch.daemon.compare.stored import Served, Wanted, compare_times

_KINDS = {
    ProfileSource: "a kernel profile",
    StoredProfileSource: "a kernel profile",
    ReportSource: "a suspicion report, which compares two runs by itself",
    CyclesSource: "a recording of cycles",
    TimeSource: "stored time",
    RegressionSource: "a regression, which has a before and an after by itself",
}


def compare_sources(
    sources: Sources, first: str, second: str | None, wanted: Wanted, store: Callable[[], Engine], served: Served
) -> Comparison:
    """What `first` and `second` name, side by side; `second` is None where the first has both sides.

    `store` opens the database, `served` tells what a run serves; each is asked only where something stored is named.

    Raises:
        SourceError: one of them cannot be read, or they are not of one kind.
        StoreError: the database cannot be opened.
        SQLAlchemyError: it does not answer.
    """
    before = sources.find(first)
    if second is None:
        return _alone(before, wanted, store, served)
    match before, sources.find(second):
        case (ProfileSource() | StoredProfileSource() as old, ProfileSource() | StoredProfileSource() as new):
            return compare_two_profiles(old, new)
        case (CyclesSource() as old, CyclesSource() as new):
            return compare_cycles(old, new, wanted.phase)
        case (TimeSource() as old, TimeSource() as new):
            return compare_times(store(), old, new, wanted, served)
        case old, new:
            what = f"{old.label} is {_KINDS[type(old)]} and {new.label} {_KINDS[type(new)]}"
            raise SourceError(f"{what}: give two of one kind, or a report or a regression alone")


def _alone(source: Source, wanted: Wanted, store: Callable[[], Engine], served: Served) -> Comparison:
    match source:
        case ReportSource():
            return compare_report(source)
        case RegressionSource():
            view = source.view
            of_it = Wanted(view.target, wanted.rank or view.rank, view.phase)
            return compare_times(store(), source.before, source.after, of_it, served)
        case _:
            raise SourceError(f"{source.label} is {_KINDS[type(source)]}: name what it is to be compared with")
