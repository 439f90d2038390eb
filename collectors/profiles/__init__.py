"""Read kernel profiles of every kind into one form: `read.py` finds the format, each other reader knows one."""
