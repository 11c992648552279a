"""Reading the job files of other systems, one module each."""
