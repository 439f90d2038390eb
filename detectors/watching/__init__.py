"""A series as it comes: levels, suspicion, confirmation, and what becomes of a change."""
