"""Incidents: regressions of one cause and time, what people do about them, and when somebody is told.

`incident.py` has what flows. `joining.py`, `lifecycle.py` and `reconcile.py` decide, without clock or database;
`wording.py` says it; `service.py` does it all, again and again, in one transaction each time.
"""
