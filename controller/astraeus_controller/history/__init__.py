"""What is kept: events, findings, intents, evidence and flags, in one SQLite database."""
