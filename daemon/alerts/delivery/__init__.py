"""From the outbox to the sinks: a courier for each of them, and what they have in common."""
