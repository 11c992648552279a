"""The self-test: real instances on the user's own database, faults from a seed, and a checker over outside evidence."""
