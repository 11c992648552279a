"""Handing work over to Celery workers that somebody runs already, and waiting for their results."""
