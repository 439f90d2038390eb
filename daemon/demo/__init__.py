"""The demo: the real daemon, fed by a player of cycles recorded from a real SGLang."""
