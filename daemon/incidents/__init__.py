"""Incidents: regressions of one cause and time, what people do about them, and when somebody is told.

`incident.py` has what flows. `joining.py`, `merging.py`, `lifecycle.py`, `telling.py` and `change.py` are the rules;
`reconcile.py` applies them to all that is known, without clock or database. `acting.py` is what people can do,
`wording.py` says what is told, and `service.py` does it all, again and again, in one transaction each time.
"""
