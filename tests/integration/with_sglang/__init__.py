"""Tests against the real SGLang on a CPU."""
