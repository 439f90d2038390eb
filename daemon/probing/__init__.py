"""The probe as a part of the daemon: when it is taken, what of, and what comes of it."""
