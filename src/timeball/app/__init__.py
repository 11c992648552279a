"""Wiring: the only layer that constructs things."""
