"""``astraeus``: what is stalled, how a job gets on, what happened to it."""
