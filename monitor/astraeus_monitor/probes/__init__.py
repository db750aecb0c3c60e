"""What may block or lie is read by children with deadlines: how they are run, and what each of them does."""
