"""How long a cycle should take at its load: the fitted model, and the physical bound."""
