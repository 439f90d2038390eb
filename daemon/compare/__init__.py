"""`cyclewatch compare`: two runs, profiles, files or stretches of time, side by side."""
