"""Words without which a regular expression cannot fit: looking for them is twenty times as fast as searching."""

import re

_SHORTEST = 3
"""Characters of a word that is worth looking for."""

_ATOM = re.compile(r"\\.|\[\^?\]?[^\]]*\]|\{[^}]*\}|.", re.DOTALL)
_OPTIONAL = frozenset("?*{")
_NO_TEXT = ("(?!", "(?=", "(?<")
"""Groups that look around."""


def needed_words(pattern: str) -> frozenset[str]:
    """Words one of which stands in every text that the pattern fits; empty where that cannot be told.

    Flags, references and conditions are not understood, and not used by the rules. Where a pattern is of several
    alternatives, each must need a word.
    """
    atoms = _ATOM.findall(pattern)
    needed: set[str] = set()
    for alternative in _split(atoms):
        words = _of_sequence(alternative)
        if not words:
            return frozenset()
        needed |= words
    return frozenset(needed)


def _of_sequence(atoms: list[str]) -> frozenset[str]:
    """The best words among what must follow one another: those whose shortest is longest."""
    found: list[frozenset[str]] = []
    run, at = "", 0
    while at < len(atoms):
        atom, end = atoms[at], at + 1
        if atom == "(":
            end = _closing(atoms, at)
        following = atoms[end][0] if end < len(atoms) else ""
        literal = _literal(atom)
        if literal and following not in _OPTIONAL:
            run += literal
        if not literal or following in {*_OPTIONAL, "+"}:
            found.append(frozenset({run}))
            run = ""
        if atom == "(" and following not in _OPTIONAL:
            inner = "".join(atoms[at + 1 : end - 1])
            if not f"({inner}".startswith(_NO_TEXT):
                found.append(needed_words(inner.removeprefix("?:")))
        at = end
    found.append(frozenset({run}))
    best = max((words for words in found if words), key=lambda words: min(map(len, words)))
    return best if min(map(len, best)) >= _SHORTEST else frozenset()


def _literal(atom: str) -> str:
    """The character that this part of a pattern stands for, "" where it stands for several or for none."""
    if len(atom) == 1:
        return "" if atom in "()[]{}.^$?*+|" else atom
    return atom[1] if atom[0] == "\\" and not atom[1].isalnum() else ""


def _split(atoms: list[str]) -> list[list[str]]:
    """The alternatives of a pattern, without those inside of its groups."""
    alternatives: list[list[str]] = [[]]
    depth = 0
    for atom in atoms:
        depth += (atom == "(") - (atom == ")")
        if atom == "|" and not depth:
            alternatives.append([])
        else:
            alternatives[-1].append(atom)
    return alternatives


def _closing(atoms: list[str], at: int) -> int:
    """The place behind the group that opens at `at`."""
    depth = 0
    for place in range(at, len(atoms)):
        depth += (atoms[place] == "(") - (atoms[place] == ")")
        if not depth:
            return place + 1
    return len(atoms)
