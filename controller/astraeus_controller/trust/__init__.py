"""Who speaks to the controller, what each may see, and what may be asked of Slurm."""
