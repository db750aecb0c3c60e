"""The controller beside slurmctld: fleet (what is live) → rules (pure) → findings → store → actions."""
