"""Running functions of the program: async ones on the jobs' own loop, sync ones in threads."""
