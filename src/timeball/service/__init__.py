"""Use-cases asked from outside. The command line, the API and the pages call these and nothing else."""
