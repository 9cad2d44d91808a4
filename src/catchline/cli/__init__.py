"""The command line: one file a command, help without torch."""
