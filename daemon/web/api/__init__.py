"""The HTTP API, /api/v1: what was found, and what people do about it. docs/api.md is its page."""
