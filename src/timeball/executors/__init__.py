"""Ways to run work, one folder each. Executors run no SQL and know no scheduler: Work in, exactly one Outcome out."""
