"""The table of docs/causes.md, made from the causal graph."""

from cyclewatch.config.causes import CausalGraph, CauseKind, Direction, Sign, Size

_SIZES = {
    Size.LOST: "the time that was lost",
    Size.LOST_AT_MOST: "at most the time that was lost",
    Size.LOST_OF_NODE: "at most its share of a busy CPU's time",
    Size.FACTOR: "at most the factor, of what it governs",
    Size.PER_EVENT: "at most a time for each event",
    Size.UNSIZED: "what nothing else explains",
}


def causes_table(graph: CausalGraph) -> str:
    """All kinds in their order, in Markdown."""
    head = "| kind | what it is | layer | shown by | can lengthen | by how much |\n|---|---|---|---|---|---|\n"
    return head + "".join(f"{_row(kind)}\n" for kind in graph.kinds.values())


def effects_table(graph: CausalGraph) -> str:
    """What follows directly from each kind, but for the stages of the split, in Markdown."""
    rows = []
    for kind in graph.kinds.values():
        effects = [f"`{name}`" for name in kind.explains if name in graph.kinds]
        if effects:
            rows.append(f"| `{kind.kind}` | {', '.join(effects)} |\n")
    return "| cause | what follows from it |\n|---|---|\n" + "".join(rows)


def next_steps_table(graph: CausalGraph) -> str:
    """What to do about each kind, and which kinds make an incident critical, in Markdown."""
    rows = [
        f"| `{name}` | {graph.next_steps.get(name, '-')} | {'yes' if name in graph.failures else ''} |\n"
        for name in (*graph.kinds, *graph.shown)
    ]
    return "| kind | next step in a message | always critical |\n|---|---|---|\n" + "".join(rows)


def _row(kind: CauseKind) -> str:
    shown = [_sign(sign) for sign in kind.sign] + [f"event `{one.kind}` of `{one.subject}`" for one in kind.event]
    size = f"that of {', '.join(f'`{name}`' for name in kind.through)}" if kind.through else _SIZES[kind.size]
    cells = (
        f"`{kind.kind}`",
        kind.subject,
        kind.layer,
        "; ".join(shown) or "-",
        ", ".join(kind.lengthens) or "-",
        size,
    )
    return f"| {' | '.join(cells)} |"


def _sign(sign: Sign) -> str:
    labels = ", ".join(f"{name} {value}" for name, value in sign.labels.items())
    of_what = f" ({labels})" if labels else ""
    return f"`{sign.reading}`{of_what} {'rises' if sign.direction is Direction.UP else 'falls'}"
