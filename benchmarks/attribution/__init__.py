"""How often the right cause is named, on simulated nodes whose truth is known, beside a ranking by z-scores.

`__main__` is the command line, `suite` draws the cases, asks and judges, `naive` is what is held beside it, and
`results.md` is what it printed.
"""
