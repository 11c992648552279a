"""Facts about what happened, and the bus that carries them to subscribers."""
