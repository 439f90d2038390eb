"""Two kernel profiles side by side."""

from cyclewatch.collectors.profiles.records import Profile
from cyclewatch.daemon.compare.comparison import Comparison, Subject, growth
from cyclewatch.daemon.compare.sentences import cause_sentences, duration, slower_sentence, split_sentence
from cyclewatch.daemon.compare.sources import ProfileSource, StoredProfileSource
from cyclewatch.daemon.printable import printable
from cyclewatch.daemon.store.kernel_profile import kernel_profile
from cyclewatch.detectors.attribution import Evidence, causes
from cyclewatch.detectors.kernels.comparison import (
    KernelChange,
    PhaseSplit,
    ProfileComparison,
    Substitution,
    Verdict,
    compare_profiles,
)

_TOLD = 3
AnyProfile = ProfileSource | StoredProfileSource


def compare_two_profiles(before: AnyProfile, after: AnyProfile) -> Comparison:
    """The kernels of two profiles, what a step of each is made of, and what is behind the difference."""
    old, new = _profile(before), _profile(after)
    comparison = compare_profiles(old, new)
    parts = comparison.parts
    evidence = Evidence(0, "", before=(), after=(), synchronous=False, kernels=comparison, slower=growth(parts))
    differs = comparison.comparable and not comparison.may_be_noise
    found = causes(evidence, parts) if differs else ()
    return Comparison(
        before=_subject(before, old),
        after=_subject(after, new),
        comparable=comparison.comparable,
        warnings=(*comparison.reasons, *comparison.warnings),
        findings=(
            *_phases(comparison),
            *cause_sentences(found),
            *(() if comparison.may_be_noise else split_sentence(parts)),
            *kernel_sentences(comparison),
        ),
        slower=growth(parts),
        split_of=split_of(comparison),
        split=parts,
        kernels=comparison,
        causes=found,
    )


def split_of(comparison: ProfileComparison) -> str:
    """What the split of a comparison of kernels is of."""
    phase = comparison.phases[0].phase if comparison.phases else ""
    return f"one {comparison.unit.value}{f' of {phase}' if phase else ''}, by what the GPU did"


def kernel_sentences(comparison: ProfileComparison) -> tuple[str, ...]:
    """What became of the kernels: all alike, exchanged, slower, more often called, new."""
    found = []
    if comparison.uniform is not None:
        one = comparison.uniform
        factors = f"{one.factor:.2f} times as long a call ({one.low:.2f} to {one.high:.2f})"
        found.append(f"all {one.kernels} kernels take {factors}: a clock or a neighbour does that, not a kernel")
    found += [_substituted(one) for one in comparison.substitutions[:_TOLD]]
    told = (Verdict.SLOWER, Verdict.MORE_CALLS, Verdict.NEW)
    if comparison.comparable:
        replaced = {name for one in comparison.substitutions for name in one.after}
        worse = [
            one for one in comparison.kernels if one.verdict in told and one.delta_ns > 0 and one.short not in replaced
        ]
        found += [_changed(one) for one in worse[:_TOLD]]
        if not worse and not comparison.substitutions and comparison.uniform is None:
            found.append("no kernel is slower, called more often, or new")
    return tuple(found)


def _substituted(one: Substitution) -> str:
    names = " by ".join(", ".join(printable(name, 60) for name in side[:_TOLD]) for side in (one.before, one.after))
    times = f"{duration(one.before_ns / 1e3)} before, {duration(one.after_ns / 1e3)} after"
    return f"{one.operator or one.family.value} was substituted: {names} ({times})"


def _changed(one: KernelChange) -> str:
    name, more = printable(one.short, 60), duration(one.delta_ns / 1e3)
    if one.verdict is Verdict.NEW or one.before is None or one.after is None:
        return f"{name} is new: {more}"
    if one.verdict is Verdict.MORE_CALLS:
        return f"{name} is called {one.after.calls:,.4g} times, {one.before.calls:,.4g} before: {more} more"
    size = "" if one.effect is None else f" by {one.effect:+.1%} a call"
    return f"{name} is slower{size}: {more} more"


def _phases(comparison: ProfileComparison) -> tuple[str, ...]:
    return tuple(sentence for one in comparison.phases for sentence in _step(one, comparison))


def _step(one: PhaseSplit, comparison: ProfileComparison) -> tuple[str, ...]:
    what = f"a {comparison.unit.value} of {one.phase}" if one.phase else f"a {comparison.unit.value}"
    if one.before_ns <= 0:
        return ()
    if one.may_be_noise:
        change = f"{one.after_ns / one.before_ns - 1:+.1%}"
        return (f"{what}: no difference that can be told from the scatter of the steps ({change})",)
    return slower_sentence(what, one.after_ns / one.before_ns, claims=comparison.comparable)


def _profile(source: AnyProfile) -> Profile:
    return source.profile if isinstance(source, ProfileSource) else kernel_profile(source.stored)


def _subject(source: AnyProfile, profile: Profile) -> Subject:
    facts = {"device": profile.device, "kernels": f"{profile.totals.calls:,} of {profile.totals.distinct:,} names"}
    if isinstance(source, StoredProfileSource):
        facts |= {"server": source.stored.target, "taken because of": source.stored.reason}
    rank = source.stored.rank if isinstance(source, StoredProfileSource) else profile.rank
    facts |= {"format": profile.format.value, "rank": rank or ""}
    return Subject(source.label, "profile", {name: printable(text, 200) for name, text in facts.items() if text})
