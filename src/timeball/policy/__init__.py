"""Decisions as pure functions: overlap, misfire, retry, lost."""
