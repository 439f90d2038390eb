"""Kernel profiles of the servers: when one may be taken, what it cost, and when to stop taking them."""
