"""One module a service: what it is sent, and what its answers mean; pure. `registry.py` lists them."""
