"""What is kept of a job, its steps and their workers between two looks."""
