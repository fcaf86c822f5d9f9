"""What was recorded: journals become columns, and a run folder holds both."""
