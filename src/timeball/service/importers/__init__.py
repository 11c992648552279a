"""Reading what other systems keep, one module each: jobs, holidays, events."""
