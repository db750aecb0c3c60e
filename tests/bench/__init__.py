"""What Astraeus costs a node, measured on this machine without Slurm: ``make bench``."""
