"""Recordings with their right verdicts. ``PYTHONPATH=tests python -m scorecard`` prints the table."""
