"""Which question is asked when, of whom, and where the answer goes."""
