"""What watching costs the server, from its cycles with it and without."""
