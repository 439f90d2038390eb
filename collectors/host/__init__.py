"""What Linux says of the node and of the serving processes: one module a source, `collector` puts them together."""
