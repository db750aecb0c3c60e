"""``astraeus-monitor read``: one source, read once, for a person."""
