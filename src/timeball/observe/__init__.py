"""Subscribers of facts: logs now; metrics and alerts are to come."""
