"""Running commands: argv without a shell, in a process group of their own."""
