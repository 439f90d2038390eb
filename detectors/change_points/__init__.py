"""Change points of a series that lies there whole."""
