"""How well changes are found, beside the libraries one would use instead and beside what is possible at all.

`__main__` is the command line, `tables` lists the tables, and every table is a module of its own.
"""
